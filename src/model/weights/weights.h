// Weights: every tensor of a checkpoint bound to its role in a block, whatever dialect or expert
// layout it came in. Binding checks names, dtypes and shapes and reads no data; a backend then
// loads role by role into its own layout, so a model is never in memory twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/weights/vision_sources.h"
#include "model/weights/weight_source.h"
#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble {

/// A loaded linear. `values`: plain [N, K] in the file's dtype; nvfp4 U8 [N, K/2], low nibble =
/// even column; fp8 F8_E4M3 [N, K]. `scales`: nvfp4 F8_E4M3 [N, K/16]; fp8 F32 [1], [N] or
/// [ceil(N/128), ceil(K/128)].
struct LinearWeight {
  std::string module;
  int64_t rows = 0;
  int64_t cols = 0;
  QuantScheme scheme;
  Tensor values;
  Tensor scales;
  GlobalScale global_scale;  // nvfp4 weights
  GlobalScale input_scale;   // nvfp4 or fp8_tensor activations
};

struct AttentionSources {
  LinearSource q, k, v, o;
  VectorSource q_norm, k_norm;  // [head_dim]
};

struct DeltaNetSources {
  LinearSource qkv, z, b, a, out;
  VectorSource conv;     // [qkv_rows, 1, kernel]
  VectorSource a_log;    // [v_heads]
  VectorSource dt_bias;  // [v_heads]
  VectorSource norm;     // [v_dim], plain
};

struct MlpSources {
  LinearSource gate, up, down;
};

struct MoeSources {
  LinearSource router;  // [experts, hidden]
  std::vector<MlpSources> experts;
  MlpSources shared;
  LinearSource shared_gate;  // [1, hidden]
};

struct LayerSources {
  VectorSource input_norm;     // [hidden]
  VectorSource post_norm;      // [hidden]
  AttentionSources attention;  // by LayerKind
  DeltaNetSources delta_net;
  MlpSources dense_mlp;  // by ModelConfig::moe
  MoeSources moe;
};

/// The MTP layer, which drafts: a layer of full attention over rows made of the embedding of a
/// token and the hidden row of the one before it (model.md 3.2). The embedding is the model's own.
struct MtpSources {
  VectorSource embedding_norm;  // [hidden]
  VectorSource hidden_norm;     // [hidden]
  LinearSource joined;          // "mtp.fc": [hidden, 2 hidden], columns of the embedding first
  LayerSources layer;
  VectorSource norm;  // [hidden]
  LinearSource head;  // [ModelConfig::draft_head_rows(), hidden]; absent: the model's own
};

/// Bytes of a tensor in its file.
struct StoredBytes {
  const TensorEntry* entry = nullptr;
  int64_t begin = 0;  // in the tensor
  int64_t bytes = 0;
};

struct SyntheticWeights;  // synthetic_weights.h

class Weights {
 public:
  /// Binds every text tensor of the model, with ModelConfig::draft_layers those of MTP, and with
  /// ModelConfig::vision those of the tower. The checkpoint must outlive the result.
  static Result<Weights> bind(const Checkpoint& checkpoint, const ModelConfig& config);

  /// Weights in the places that synthetic_weights.h names. `tensors` must outlive the result.
  static Weights made_up(const TensorSource& tensors, SyntheticWeights places);

  /// The same places, read from `tensors`, which must have a tensor of the same shape under every
  /// bound name, and outlive the result; plain linears may have another plain type.
  Weights over(const TensorSource& tensors) const;

  /// The same model with another layer that drafts, read from `tensors` like all others, which must
  /// outlive the result.
  Weights with_mtp(const TensorSource& tensors, MtpSources mtp) const;
  const TensorSource& tensors() const { return *tensors_; }

  const LinearSource& embedding() const { return embedding_; }  // [vocab_rows, hidden]
  const LinearSource& head() const { return head_; }            // = embedding when tied
  const VectorSource& final_norm() const { return final_norm_; }
  const std::vector<LayerSources>& layers() const { return layers_; }

  /// Nothing unless ModelConfig::draft_layers asked for it.
  const std::optional<MtpSources>& mtp() const { return mtp_; }
  /// Nothing unless ModelConfig::vision asked for it.
  const std::optional<VisionSources>& vision() const { return vision_; }

  /// One layer alone, without embedding and head: for work layer by layer.
  Weights only(int layer) const;

  Result<LinearWeight> load(const LinearSource& source) const;
  Result<std::vector<float>> load(const VectorSource& source) const;
  /// Rows [row_begin, row_end) of a linear: values and NVFP4 block scales, none of what
  /// load_factors gives.
  Result<LinearWeight> load_rows(const LinearSource& source, int64_t row_begin,
                                 int64_t row_end) const;

  // For backends that move the large tensors themselves.
  /// The values of a bound linear, in the layout of LinearWeight::values.
  StoredBytes values_of(const LinearSource& source) const;
  /// The block scales of a bound NVFP4 linear.
  StoredBytes block_scales_of(const LinearSource& source) const;
  /// A linear without its values and NVFP4 block scales.
  Result<LinearWeight> load_factors(const LinearSource& source) const;
  /// out.size() bytes from `begin` on. Several threads may read at once.
  Result<void> read(const StoredBytes& stored, int64_t begin, std::span<std::byte> out) const;

 private:
  const TensorSource* tensors_ = nullptr;
  LinearSource embedding_;
  LinearSource head_;
  VectorSource final_norm_;
  std::vector<LayerSources> layers_;
  std::optional<MtpSources> mtp_;
  std::optional<VisionSources> vision_;
};

/// The prefix of a vision tower's names in a checkpoint: "model.visual." or "visual."; empty
/// without one.
std::string vision_prefix(const Checkpoint& checkpoint);

/// Dequantizes rows [row_begin, row_end) of a linear to F32 [rows, K], as its format defines:
/// code * block scale (in the direction of the file), rounded once to F32.
void dequantize_rows(const LinearWeight& weight, int64_t row_begin, int64_t row_end, float* out);

}  // namespace nibble
