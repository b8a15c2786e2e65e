// LinearBinder: finds one linear of a checkpoint by module name, tells its weight format from the
// names, dtypes and shapes of its tensors, and checks it against what the config declares.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/quant_config.h"
#include "model/weights/weights.h"

namespace nibble {

/// biased: a tensor "bias" beside the weight belongs to it, and its owner binds that.
enum class LinearKind : uint8_t { plain, biased };

/// A module name and the shape of its weight [rows, cols].
struct LinearShape {
  std::string module;
  int64_t rows = 0;
  int64_t cols = 0;
  LinearKind kind = LinearKind::plain;
};

class LinearBinder {
 public:
  /// Both arguments must outlive the binder.
  LinearBinder(const Checkpoint& checkpoint, const QuantConfig& quantization)
      : checkpoint_(&checkpoint), quantization_(&quantization) {}

  /// Any tensor of the module's weight exists.
  bool has(std::string_view module) const;
  /// Errors: not_found, corrupt (dtype, shape, contradiction with the config), unsupported.
  Result<LinearSource> bind(const LinearShape& shape) const;
  /// A small tensor in BF16, F16 or F32.
  Result<VectorSource> bind_vector(std::string name, const Shape& shape) const;

 private:
  Result<void> bind_packed(LinearSource& source) const;    // compressed-tensors NVFP4
  Result<void> bind_modelopt(LinearSource& source) const;  // ModelOpt NVFP4
  Result<void> bind_fp8(LinearSource& source) const;
  Result<void> bind_fp8_scales(LinearSource& source, const TensorEntry& scales) const;
  Result<void> bind_activations(LinearSource& source) const;
  Result<std::string> bind_scalar(std::string name) const;
  Result<void> refuse_extras(const LinearSource& source, LinearKind kind) const;
  Error missing(const LinearShape& shape) const;

  const Checkpoint* checkpoint_;
  const QuantConfig* quantization_;
};

/// Reads a bound linear or small tensor. Errors: io; corrupt for a scale that is not positive.
Result<LinearWeight> load_linear(const TensorSource& tensors, const LinearSource& source);
Result<std::vector<float>> load_vector(const TensorSource& tensors, const VectorSource& source);

}  // namespace nibble
