// The two NVFP4 dialects as names and config blocks. Same bytes in both; what differs is spelling
// and the direction of the FP32 scales. Normative text: docs/formats.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble {

enum class Dialect : uint8_t { compressed_tensors, modelopt };
std::string_view dialect_name(Dialect dialect);
/// Errors: invalid_argument.
Result<Dialect> parse_dialect(std::string_view name);
/// The dialect that the quantization_config of a checkpoint is written in. Errors: unsupported.
Result<Dialect> dialect_of(const Checkpoint& checkpoint);

GlobalScale::Direction scale_direction(Dialect dialect);
/// Shape of an FP32 scale: [1] in compressed-tensors, [] in ModelOpt.
Shape scale_shape(Dialect dialect);

/// Tensor names of an NVFP4 linear.
struct Nvfp4Names {
  std::string codes;        // U8 [N, K/2]
  std::string scales;       // F8_E4M3 [N, K/16]
  std::string global;       // F32
  std::string input_scale;  // F32, with 4-bit activations
};
Nvfp4Names nvfp4_names(std::string_view module, Dialect dialect);

/// The tensors of a linear [rows, cols] in a scheme that the dialect can say (CHECK): values,
/// scales, then what NVFP4 and static activations need beside them. All but the values are small.
std::vector<TensorPlan> stored_tensors(std::string_view module, int64_t rows, int64_t cols,
                                       const QuantScheme& scheme, Dialect dialect);
int64_t stored_bytes(int64_t rows, int64_t cols, const QuantScheme& scheme, Dialect dialect);

/// The scheme that a recipe's one becomes for a module in a dialect. ModelOpt has FP8 per tensor
/// with a static input_scale only. In compressed-tensors FP8 meets activations per token, computed
/// at run time; routed experts then have one weight scale per row, because vLLM takes no other
/// scheme with such activations for them. So has the head.
QuantScheme dialect_scheme(const QuantScheme& scheme, Dialect dialect, std::string_view module);
/// True for one expert's linear: "...mlp.experts.7.up_proj".
bool is_routed_expert(std::string_view module);

/// True if both the declaration and the tensors of a scheme have a known form in the dialect: NVFP4
/// with high or 4-bit activations; FP8 per tensor with static activations (compressed-tensors: or
/// per token); FP8 per channel with activations per token. FP8 in 128x128 blocks has none in
/// ModelOpt that readers agree on.
bool dialect_can_say(const QuantScheme& scheme, Dialect dialect);
/// Shape of the scales of an FP8 linear with `rows` rows, per tensor or per channel.
Shape fp8_scale_shape(WeightFormat format, int64_t rows, Dialect dialect);

/// The declaration of config.json about the modules of a checkpoint.
struct QuantDeclaration {
  struct Module {
    std::string name;
    QuantScheme scheme;
  };
  std::vector<Module> quantized;
  /// Linears that stay as they are, by full name; "...mlp.experts" stands for all experts below it.
  std::vector<std::string> plain;
  /// Names of tensors outside of the text model (mtp.*, visual): whole areas are declared plain. An
  /// MTP layer that is quantized is none: its linears are among the others.
  bool has_mtp = false;
  std::string vision_prefix;  // "model.visual", or empty
};

/// The quantization_config of config.json.
Json quantization_config(const QuantDeclaration& declaration, Dialect dialect);
/// The text of hf_quant_config.json, which ModelOpt's readers want beside it.
Json modelopt_file(const QuantDeclaration& declaration);

}  // namespace nibble
