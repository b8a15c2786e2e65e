// PackedLinear: one weight matrix in the panels the kernels read (kernels.h), in the precision its
// file stores: BF16, F32, E4M3 and E2M1 codes keep their bits; F16 and F64 become F32.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cpu/kernels.h"
#include "base/result.h"
#include "model/weights/weights.h"
#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble::cpu {

inline int64_t padded_columns(int64_t columns) { return (columns + 15) / 16 * 16; }

class PackedLinear {
 public:
  PackedLinear() = default;
  /// Errors: corrupt, naming the module, if a value or scale is NaN or infinite, or an NVFP4 block
  /// scale negative.
  static Result<PackedLinear> pack(const LinearWeight& weight, const KernelTable& kernels);

  int64_t rows() const { return rows_; }  // N
  int64_t cols() const { return cols_; }  // K
  int64_t k_padded() const { return padded_columns(cols_); }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t bytes() const { return panels_.bytes() + scales_.bytes() + final_scale_.bytes(); }
  PanelFormat format() const { return format_; }
  const std::string& module() const { return module_; }
  ActivationFormat activations() const { return activations_; }
  GlobalScale input_scale() const { return input_scale_; }
  /// The weight's part of a kernel call.
  LinearPanels view() const;

 private:
  std::string module_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  PanelFormat format_ = PanelFormat::f32;
  ActivationFormat activations_ = ActivationFormat::high;
  GlobalScale input_scale_;
  Buffer panels_;
  Buffer scales_;
  Buffer final_scale_;
  int64_t panel_bytes_ = 0;
  int64_t scale_bytes_ = 0;

  void pack_f32(const LinearWeight& weight);
  void pack_bf16(const LinearWeight& weight);
  void pack_fp8(const LinearWeight& weight);
  void pack_fp8_scales(const LinearWeight& weight);
  void pack_nvfp4(const LinearWeight& weight, const KernelTable& kernels);
  void pack_nvfp4_scales(const LinearWeight& weight);
  void allocate(int64_t panel_bytes, int64_t scale_bytes);
  float* allocate_final_scale();
};

}  // namespace nibble::cpu
