// A WeightStore owns all weights of a model in device memory, in one block, bound to their roles.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/weights/device_weights.h"
#include "backend/cuda/weights/vision_weights.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/synthetic_weights.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

struct Launcher;
class WeightSenders;

struct AttentionWeights {
  DeviceLinear q, k, v, o;
  const float* q_norm = nullptr;  // [head_dim], times the scale of keys in pages
  const float* k_norm = nullptr;  // [head_dim], divided by it
  float value_scale = 1.0F;       // of values in pages
};

struct DeltaNetWeights {
  DeviceLinear qkv, z, b, a, out;
  const float* conv = nullptr;     // [qkv_rows][taps], as in the file
  const float* a_log = nullptr;    // [v_heads]
  const float* decay = nullptr;    // [v_heads], exp(A_log)
  const float* dt_bias = nullptr;  // [v_heads]
  const float* norm = nullptr;     // [v_dim]
};

struct MlpWeights {
  DeviceLinear gate, up, down;  // for experts each is a stack
};

struct MoeWeights {
  DeviceLinear router, shared_gate;
  MlpWeights experts, shared;
};

/// Norm weights hold the 1 of a zero-centred norm already.
struct LayerWeights {
  const float* input_norm = nullptr;  // [hidden]
  const float* post_norm = nullptr;
  AttentionWeights attention;
  DeltaNetWeights delta_net;
  MlpWeights dense_mlp;
  MoeWeights moe;
};

/// The source of the values. Each call fills one tensor at `to` (device), at the latest in
/// finish().
class WeightFiller {
 public:
  virtual ~WeightFiller() = default;
  /// `to` has room for one matrix of a stack; its padding is zero already.
  virtual Result<void> linear(const LinearSource& source, const DeviceLinear& to) = 0;
  enum class Change : uint8_t { none, add_one, exponent };
  /// Multiplies what comes of the change by `factor`.
  virtual Result<void> vector(const VectorSource& source, Change change, float factor,
                              float* to) = 0;
  /// True if plain values have more bits than BF16.
  virtual bool is_wider(const LinearSource&) const { return false; }
  virtual Result<void> finish() { return {}; }
};

struct WeightReading {
  // declared: linears say how inputs are rounded; f32: values wider than BF16 are kept in parts.
  Activations activations = Activations::bf16;
  InputScales input_scales = InputScales::amax;
  std::span<const KvScale> kv_scales = {};  // of each attention layer; none: 1
  WeightSenders* senders = nullptr;         // used and kept; nullptr: made for this reading
};

/// The tensors a store is made of, as Weights has them.
struct WeightSources {
  const LinearSource& embedding;
  const LinearSource& head;
  const VectorSource& final_norm;
  const std::vector<LayerSources>& layers;
  const std::optional<MtpSources>& mtp;
  const std::optional<VisionSources>& vision;
  WeightReading reading = {};
};

class WeightStore {
 public:
  /// Errors: no_memory; those of the filler; unsupported for experts of mixed formats.
  static Result<WeightStore> build(DeviceContext& device, const WeightSources& sources,
                                   const ModelConfig& config, WeightFiller& filler);
  /// Loads a checkpoint with many threads. Errors also: corrupt for numbers that are not finite.
  static Result<WeightStore> load(const Weights& weights, const ModelConfig& config,
                                  const Launcher& launcher, const WeightReading& reading = {});
  /// Deterministic normal weights made on the device; nothing is read.
  static Result<WeightStore> random(const ModelConfig& config, const FormatOf& formats,
                                    const Launcher& launcher);

  int64_t bytes() const { return memory_.bytes(); }
  /// All of it in one block, to be put to sleep and filled again.
  DeviceBuffer& memory() { return memory_; }
  const DeviceBuffer& memory() const { return memory_; }

  DeviceLinear embedding, head;
  const float* final_norm = nullptr;
  /// Those of the model, then that of a layer that drafts, if it is loaded.
  std::vector<LayerWeights> layers;
  /// That layer's other weights: its input is joined * [norm(embedding) | norm(hidden row)].
  struct Draft {
    const float* embedding_norm = nullptr;  // [hidden]
    const float* hidden_norm = nullptr;
    const float* norm = nullptr;      // before the head
    DeviceLinear joined;              // [hidden][2 hidden]
    DeviceLinear head;                // [draft_head_rows][hidden]; of no rows: the model's own
    const int32_t* tokens = nullptr;  // [head rows], the token of each; null: its number
  } draft;
  VisionWeights vision;
  InputScales input_scales = InputScales::amax;  // of all linears
  std::string choice;  // why --activations auto is what it is, for people; or empty

 private:
  DeviceBuffer memory_;
};

}  // namespace nibble::cuda
