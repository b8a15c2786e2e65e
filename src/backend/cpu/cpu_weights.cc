// Lists the linears of a model and loads its small tensors; matrix_loader.cc does the work.
#include "backend/cpu/cpu_weights.h"

#include <cmath>

#include "backend/cpu/matrix_loader.h"

namespace nibble::cpu {
namespace {

class Loader {
 public:
  Loader(const Weights& weights, const ModelConfig& config, MatrixLoader& matrices)
      : weights_(weights), config_(config), matrices_(matrices) {}

  Result<void> layer(const LayerSources& sources, LayerKind kind, LayerWeights& target);
  Result<void> mtp(const MtpSources& sources, MtpWeights& target);
  Result<void> vision(const VisionSources& sources, VisionWeights& target);
  /// A norm weight, with the 1 of the zero-centred kind added.
  Result<std::vector<float>> norm(const VectorSource& source) const;

 private:
  void add(const LinearSource& source, PackedLinear& target) { matrices_.add(source, target); }
  void add(const MlpSources& sources, MlpWeights& target, Reading reading = Reading::always) {
    matrices_.add(sources.gate, target.gate, reading);
    matrices_.add(sources.up, target.up, reading);
    matrices_.add(sources.down, target.down, reading);
  }
  Result<void> attention(const AttentionSources& sources, AttentionWeights& target);
  Result<void> delta_net(const DeltaNetSources& sources, DeltaNetWeights& target);
  void moe(const MoeSources& sources, MoeWeights& target);
  Result<void> biased(const BiasedSource& source, BiasedLinear& target);
  Result<LayerNormWeights> layer_norm(const LayerNormSource& source) const;

  const Weights& weights_;
  const ModelConfig& config_;
  MatrixLoader& matrices_;
};

Result<std::vector<float>> Loader::norm(const VectorSource& source) const {
  std::vector<float> weight = TRY(weights_.load(source));
  if (config_.norm == NormKind::zero_centred)
    for (float& w : weight) w += 1.0F;
  return weight;
}

Result<void> Loader::attention(const AttentionSources& sources, AttentionWeights& target) {
  add(sources.q, target.q);
  add(sources.k, target.k);
  add(sources.v, target.v);
  add(sources.o, target.o);
  target.q_norm = TRY(norm(sources.q_norm));
  target.k_norm = TRY(norm(sources.k_norm));
  return {};
}

Result<void> Loader::delta_net(const DeltaNetSources& sources, DeltaNetWeights& target) {
  add(sources.qkv, target.qkv);
  add(sources.z, target.z);
  add(sources.b, target.b);
  add(sources.a, target.a);
  add(sources.out, target.out);
  const std::vector<float> conv = TRY(weights_.load(sources.conv));  // [channels][taps]
  const auto taps = static_cast<size_t>(config_.delta_net.conv_kernel);
  const size_t channels = conv.size() / taps;
  target.conv.resize(conv.size());
  for (size_t i = 0; i < conv.size(); ++i) target.conv[i % taps * channels + i / taps] = conv[i];
  const std::vector<float> a_log = TRY(weights_.load(sources.a_log));
  target.decay.reserve(a_log.size());
  for (const float a : a_log) target.decay.push_back(std::exp(static_cast<double>(a)));
  target.dt_bias = TRY(weights_.load(sources.dt_bias));
  target.norm = TRY(weights_.load(sources.norm));
  return {};
}

void Loader::moe(const MoeSources& sources, MoeWeights& target) {
  add(sources.router, target.router);
  target.experts.resize(sources.experts.size());
  for (size_t e = 0; e < sources.experts.size(); ++e)
    add(sources.experts[e], target.experts[e], Reading::routed);
  add(sources.shared, target.shared);
  add(sources.shared_gate, target.shared_gate);
}

Result<void> Loader::layer(const LayerSources& sources, LayerKind kind, LayerWeights& target) {
  target.input_norm = TRY(norm(sources.input_norm));
  target.post_norm = TRY(norm(sources.post_norm));
  if (kind == LayerKind::attention) {
    TRY(attention(sources.attention, target.attention));
  } else {
    TRY(delta_net(sources.delta_net, target.delta_net));
  }
  if (config_.moe) {
    moe(sources.moe, target.moe);
  } else {
    add(sources.dense_mlp, target.dense_mlp);
  }
  return {};
}

Result<void> Loader::mtp(const MtpSources& sources, MtpWeights& target) {
  target.embedding_norm = TRY(norm(sources.embedding_norm));
  target.hidden_norm = TRY(norm(sources.hidden_norm));
  target.norm = TRY(norm(sources.norm));
  add(sources.joined, target.joined);
  add(sources.head, target.head);
  return layer(sources.layer, LayerKind::attention, target.layer);
}

Result<void> Loader::biased(const BiasedSource& source, BiasedLinear& target) {
  add(source.weight, target.weight);
  target.bias = TRY(weights_.load(source.bias));
  return {};
}

Result<LayerNormWeights> Loader::layer_norm(const LayerNormSource& source) const {
  LayerNormWeights norm;
  norm.weight = TRY(weights_.load(source.weight));
  norm.bias = TRY(weights_.load(source.bias));
  return norm;
}

Result<void> Loader::vision(const VisionSources& sources, VisionWeights& target) {
  TRY(biased(sources.patches, target.patches));
  target.positions = TRY(weights_.load(sources.positions));
  target.blocks.resize(sources.blocks.size());
  for (size_t i = 0; i < sources.blocks.size(); ++i) {
    const VisionBlockSources& from = sources.blocks[i];
    VisionBlockWeights& block = target.blocks[i];
    block.norm1 = TRY(layer_norm(from.norm1));
    block.norm2 = TRY(layer_norm(from.norm2));
    TRY(biased(from.qkv, block.qkv));
    TRY(biased(from.proj, block.proj));
    TRY(biased(from.fc1, block.fc1));
    TRY(biased(from.fc2, block.fc2));
  }
  target.merger_norm = TRY(layer_norm(sources.merger_norm));
  TRY(biased(sources.merger_fc1, target.merger_fc1));
  return biased(sources.merger_fc2, target.merger_fc2);
}

bool shares_embedding(const Weights& weights) {
  return weights.head().values == weights.embedding().values;
}

}  // namespace

Result<CpuWeights> CpuWeights::load(const Weights& weights, const ModelConfig& config,
                                    ThreadPool& pool, const LoadLimits& limits) {
  CpuWeights loaded;
  MatrixLoader matrices(weights, limits);
  Loader loader(weights, config, matrices);
  matrices.add(weights.head(), loaded.head);
  if (!shares_embedding(weights)) TRY(matrices.add_embedding(loaded.embedding.emplace()));
  loaded.layers.resize(weights.layers().size());
  for (size_t i = 0; i < loaded.layers.size(); ++i)
    TRY(loader.layer(weights.layers()[i], config.layers[i], loaded.layers[i]));
  if (weights.mtp()) TRY(loader.mtp(*weights.mtp(), loaded.mtp.emplace()));
  if (weights.vision()) TRY(loader.vision(*weights.vision(), loaded.vision.emplace()));
  loaded.arena = TRY(matrices.place());
  loaded.stored = matrices.stored();
  if (loaded.stored.mapped > 0) loaded.mapping = weights.tensors().mapping();
  TRY(matrices.load(pool));
  if (loaded.mapping) TRY(loaded.mapping->intact());
  if (loaded.stored.streamed) loaded.mapping->read_at_random();
  loaded.final_norm = TRY(loader.norm(weights.final_norm()));
  return loaded;
}

void CpuWeights::take_kv_scales(const ModelConfig& config, std::span<const KvScale> scales) {
  if (scales.empty()) return;
  CHECK(std::ssize(scales) == config.count(LayerKind::attention), "scales of ", scales.size(),
        " layers");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (config.layers[i] != LayerKind::attention) continue;
    AttentionWeights& attention = layers[i].attention;
    for (float& weight : attention.q_norm) weight *= scales.front().keys;
    for (float& weight : attention.k_norm) weight /= scales.front().keys;
    attention.value_scale = scales.front().values;
    scales = scales.subspan(1);
  }
}

int64_t VisionWeights::vector_bytes() const {
  size_t floats = positions.capacity();
  const auto norm = [&](const LayerNormWeights& weights) {
    floats += weights.weight.capacity() + weights.bias.capacity();
  };
  for (const BiasedLinear* linear : {&patches, &merger_fc1, &merger_fc2})
    floats += linear->bias.capacity();
  norm(merger_norm);
  for (const VisionBlockWeights& block : blocks) {
    norm(block.norm1);
    norm(block.norm2);
    for (const BiasedLinear* linear : {&block.qkv, &block.proj, &block.fc1, &block.fc2})
      floats += linear->bias.capacity();
  }
  return static_cast<int64_t>(floats * sizeof(float));
}

int64_t CpuWeights::bytes() const {
  size_t floats = final_norm.capacity();
  size_t doubles = 0;
  const auto count = [&](const LayerWeights& layer) {
    const AttentionWeights& a = layer.attention;
    const DeltaNetWeights& d = layer.delta_net;
    for (const std::vector<float>* vector :
         {&layer.input_norm, &layer.post_norm, &a.q_norm, &a.k_norm, &d.conv, &d.dt_bias, &d.norm})
      floats += vector->capacity();
    doubles += d.decay.capacity();
  };
  for (const LayerWeights& layer : layers) count(layer);
  if (mtp) {
    count(mtp->layer);
    for (const std::vector<float>* norm : {&mtp->embedding_norm, &mtp->hidden_norm, &mtp->norm})
      floats += norm->capacity();
  }
  const bool own_rows = embedding && !embedding->is_mapped();
  return arena.bytes() + stored.mapped + (own_rows ? embedding->bytes() : 0) +
         (vision ? vision->vector_bytes() : 0) +
         static_cast<int64_t>(floats * sizeof(float) + doubles * sizeof(double));
}

}  // namespace nibble::cpu
