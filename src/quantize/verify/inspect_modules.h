// The tensors of a checkpoint put together into modules: a linear with its scales, a norm, a bare
// parameter. By names, dtypes and shapes alone, so that it also reads checkpoints whose config is
// unknown or wrong. Binding to roles is model/weights/weights.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/config/quant_config.h"
#include "tensor/quant_scheme.h"

namespace nibble {

enum class ModuleKind : uint8_t {
  expert,
  shared_expert,
  dense_mlp,
  router,
  attention,
  delta_net,
  norm,
  embedding,
  head,
  mtp,
  vision,
  other,
};
inline constexpr int kModuleKinds = 12;
/// "experts", "shared expert", ...: for tables.
std::string_view module_kind_name(ModuleKind kind);
ModuleKind module_kind(std::string_view tensor_name);

struct StoredModule {
  std::string name;  // without ".weight"; a bare parameter's own name
  ModuleKind kind = ModuleKind::other;
  QuantScheme scheme;
  GlobalScale::Direction direction = GlobalScale::Direction::multiply;
  const TensorEntry* values =
      nullptr;  // weight, weight_packed or the bare parameter; may be absent
  const TensorEntry* scales = nullptr;
  const TensorEntry* global_scale = nullptr;
  const TensorEntry* input_scale = nullptr;
  std::vector<const TensorEntry*> others;  // biases, KV scales, unknown scales

  /// Shape of the matrix in values, not bytes: [N, K] also for packed codes.
  Shape shape() const;
  /// Values and bias; scales are not parameters.
  int64_t parameters() const;
  /// The bytes of all its tensors.
  int64_t bytes() const;
  bool quantized() const { return scheme.weights != WeightFormat::plain; }
  /// A matrix that a linear layer multiplies with, stacked experts included; or a quantized
  /// embedding table, which is declared and checked in the same way.
  bool is_linear() const;
};

/// Sorted by name. The checkpoint must outlive the result. Activations are what `declared` says.
std::vector<StoredModule> stored_modules(const Checkpoint& checkpoint, const QuantConfig& declared);

/// "NVFP4 W4A16", "NVFP4 W4A4", "FP8 128x128", "BF16".
std::string scheme_text(const StoredModule& module);

}  // namespace nibble
