// Weights of a real shape without a file.
#include <cmath>

#include "backend/cuda/bench_access.h"
#include "backend/cuda/weight_store.h"

namespace nibble::cuda {
namespace {

/// Names only have to differ.
LinearSource linear_of(int64_t rows, int64_t cols, WeightFormat format) {
  LinearSource source{.module = "dummy", .rows = rows, .cols = cols, .values = "dummy"};
  source.scheme.weights = format;
  return source;
}
VectorSource vector_of(const Shape& shape) { return {.name = "dummy", .shape = shape}; }

struct Formats {
  WeightFormat delta_net, attention, mlp, head;
};

Formats formats_of(DummyRecipe recipe) {
  constexpr auto kPlain = WeightFormat::plain;
  constexpr auto kFp8 = WeightFormat::fp8_tensor;
  constexpr auto kNvfp4 = WeightFormat::nvfp4;
  switch (recipe) {
    case DummyRecipe::mixed:
      return {kFp8, kFp8, kNvfp4, kNvfp4};
    case DummyRecipe::nvfp4:
      return {kPlain, kNvfp4, kNvfp4, kNvfp4};
    case DummyRecipe::bf16:
      return {kPlain, kPlain, kPlain, kPlain};
  }
  CHECK(false, "recipe ", static_cast<int>(recipe));
}

MlpSources mlp_of(int64_t width, int64_t hidden, WeightFormat format) {
  return {.gate = linear_of(width, hidden, format),
          .up = linear_of(width, hidden, format),
          .down = linear_of(hidden, width, format)};
}

LayerSources layer_of(const ModelConfig& config, LayerKind kind, const Formats& formats) {
  const int64_t hidden = config.hidden;
  LayerSources layer{.input_norm = vector_of({hidden}), .post_norm = vector_of({hidden})};
  if (kind == LayerKind::attention) {
    const AttentionConfig& a = config.attention;
    const int64_t q = int64_t{a.q_heads} * a.head_dim;
    const int64_t kv = int64_t{a.kv_heads} * a.head_dim;
    layer.attention = {.q = linear_of(a.output_gate ? 2 * q : q, hidden, formats.attention),
                       .k = linear_of(kv, hidden, formats.attention),
                       .v = linear_of(kv, hidden, formats.attention),
                       .o = linear_of(hidden, q, formats.attention),
                       .q_norm = vector_of({a.head_dim}),
                       .k_norm = vector_of({a.head_dim})};
  } else {
    const DeltaNetConfig& d = config.delta_net;
    layer.delta_net = {.qkv = linear_of(d.qkv_rows(), hidden, formats.delta_net),
                       .z = linear_of(d.z_rows(), hidden, formats.delta_net),
                       .b = linear_of(d.v_heads, hidden, WeightFormat::plain),
                       .a = linear_of(d.v_heads, hidden, WeightFormat::plain),
                       .out = linear_of(hidden, d.z_rows(), formats.delta_net),
                       .conv = vector_of({d.qkv_rows(), 1, d.conv_kernel}),
                       .a_log = vector_of({d.v_heads}),
                       .dt_bias = vector_of({d.v_heads}),
                       .norm = vector_of({d.v_dim})};
  }
  if (!config.moe) {
    layer.dense_mlp = mlp_of(config.dense_width, hidden, formats.mlp);
    return layer;
  }
  const MoeConfig& m = *config.moe;
  layer.moe.router = linear_of(m.experts, hidden, WeightFormat::plain);
  layer.moe.experts.assign(static_cast<size_t>(m.experts),
                           mlp_of(m.expert_width, hidden, formats.mlp));
  if (m.shared_width == 0) return layer;
  layer.moe.shared = mlp_of(m.shared_width, hidden, formats.mlp);
  layer.moe.shared_gate = linear_of(1, hidden, WeightFormat::plain);
  return layer;
}

/// Normal with deviation 1 / sqrt(K); small tensors constant.
class RandomFiller final : public WeightFiller {
 public:
  explicit RandomFiller(const Launcher& launcher) : launcher_(launcher) {}
  Result<void> linear(const LinearSource& source, const DeviceLinear& to) override {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(source.cols));
    fill_random(to, 1, deviation, ++seed_, launcher_);
    return {};
  }
  Result<void> vector(const VectorSource& source, Change change, float* to) override {
    const float value = change == Change::exponent  ? 0.05F
                        : change == Change::add_one ? 1.0F
                                                    : 0.3F;
    const std::vector<float> values(static_cast<size_t>(source.shape.count()), value);
    CUDA_CHECK(
        cudaMemcpy(to, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return {};
  }

 private:
  Launcher launcher_;
  uint32_t seed_ = 0;
};

}  // namespace

Result<WeightStore> WeightStore::random(const ModelConfig& config, DummyRecipe recipe,
                                        const Launcher& launcher) {
  const Formats formats = formats_of(recipe);
  const LinearSource embedding = linear_of(config.vocab_rows, config.hidden, WeightFormat::plain);
  LinearSource head = linear_of(config.vocab_rows, config.hidden, formats.head);
  head.values = "dummy head";
  const VectorSource final_norm = vector_of({config.hidden});
  std::vector<LayerSources> layers;
  for (const LayerKind kind : config.layers) layers.push_back(layer_of(config, kind, formats));
  RandomFiller filler(launcher);
  return build({.embedding = embedding, .head = head, .final_norm = final_norm, .layers = layers},
               config, filler);
}

}  // namespace nibble::cuda
