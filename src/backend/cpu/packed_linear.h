// PackedLinear: one weight matrix as the kernels read it (kernels.h), in panels or where its file
// is mapped, in the precision its file stores: BF16, F32, E4M3 and E2M1 codes keep their bits; F16
// and F64 become F32.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/weight_arena.h"
#include "base/result.h"
#include "model/weights/weights.h"
#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble::cpu {

inline int64_t padded_columns(int64_t columns) { return (columns + 15) / 16 * 16; }

class PackedLinear {
 public:
  PackedLinear() = default;
  /// The layout of a matrix whose values have this type in the file; no memory yet.
  PackedLinear(const LinearSource& source, DType stored);
  /// A whole weight in memory of its own. Errors: those of pack_rows.
  static Result<PackedLinear> pack(const LinearWeight& weight);
  /// One that reads_stored_rows() (CHECK), and reads those of `weight`, which must outlive it.
  static Result<PackedLinear> over(const LinearWeight& weight);

  /// Bytes that place() takes from an arena.
  int64_t room() const;
  /// Gives it memory, zeroed.
  void place(WeightArena& arena);

  /// True if kernels can read the rows as the file has them: whole panels, in pieces of
  /// kStoredRowBytes, of a type that is kept.
  bool reads_stored_rows() const { return reads_stored_; }
  /// The part of room() that place_stored() leaves in the file: values, and block scales of NVFP4.
  int64_t stored_bytes() const;
  /// It reads values, and the block scales of NVFP4, where they lie; only its factors take memory
  /// of the arena. In place of place() and pack_rows().
  void place_stored(const std::byte* values, const std::byte* block_scales, WeightArena& arena);
  /// All but the values and NVFP4 block scales. Errors: corrupt, as pack_rows.
  Result<void> set_factors(const LinearWeight& factors);
  /// Packs the values, and the block scales of NVFP4, of rows from `row_begin`, a multiple of 16,
  /// on. Several threads may pack rows of different panels. Errors: corrupt, naming the module, if
  /// a value or scale is NaN or infinite, or an NVFP4 block scale negative.
  Result<void> pack_rows(const LinearWeight& rows, int64_t row_begin);

  /// Asks for the bytes that lie in a file, which will be read soon.
  void want() const;

  int64_t rows() const { return rows_; }  // N
  int64_t cols() const { return cols_; }  // K
  int64_t k_padded() const { return padded_columns(cols_); }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t bytes() const { return panels() * (panel_bytes_ + scale_bytes_) + final_scale_bytes(); }
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
  WeightArena own_;  // of a weight that pack() made
  const std::byte* panels_ = nullptr;
  const std::byte* scales_ = nullptr;
  std::byte* own_panels_ = nullptr;  // the same, where they are this object's to write
  std::byte* own_scales_ = nullptr;
  float* final_scale_ = nullptr;
  int64_t panel_bytes_ = 0;
  int64_t scale_bytes_ = 0;
  bool reads_stored_ = false;
  bool stored_ = false;

  bool scales_rows() const { return format_ == PanelFormat::nvfp4 || format_ == PanelFormat::fp8; }
  int64_t final_scale_bytes() const {
    return scales_rows() ? panels() * kPanelRows * int64_t{sizeof(float)} : 0;
  }
  void spread_block_scales(const float* from);
};

}  // namespace nibble::cpu
