// Lists the linears of a model, then reads and repacks them on all threads.
#include "backend/cpu/cpu_weights.h"

#include <cmath>
#include <mutex>

namespace nibble::cpu {
namespace {

struct PackJob {
  const LinearSource* source;
  PackedLinear* target;
};

class Loader {
 public:
  Loader(const Weights& weights, const ModelConfig& config) : weights_(weights), config_(config) {}

  void add(const LinearSource& source, PackedLinear& target) {
    if (source.present()) jobs_.push_back({&source, &target});
  }
  void add(const MlpSources& sources, MlpWeights& target) {
    add(sources.gate, target.gate);
    add(sources.up, target.up);
    add(sources.down, target.down);
  }
  Result<void> layer(int index, LayerWeights& target);
  Result<void> pack(const KernelTable& kernels, ThreadPool& pool) const;

  /// A norm weight, with the 1 of the zero-centred kind added.
  Result<std::vector<float>> norm(const VectorSource& source) const;

 private:
  Result<void> attention(const AttentionSources& sources, AttentionWeights& target);
  Result<void> delta_net(const DeltaNetSources& sources, DeltaNetWeights& target);
  void moe(const MoeSources& sources, MoeWeights& target);

  const Weights& weights_;
  const ModelConfig& config_;
  std::vector<PackJob> jobs_;
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
  for (const float a : TRY(weights_.load(sources.a_log)))
    target.decay.push_back(std::exp(static_cast<double>(a)));
  target.dt_bias = TRY(weights_.load(sources.dt_bias));
  target.norm = TRY(weights_.load(sources.norm));
  return {};
}

void Loader::moe(const MoeSources& sources, MoeWeights& target) {
  add(sources.router, target.router);
  target.experts.resize(sources.experts.size());
  for (size_t e = 0; e < sources.experts.size(); ++e) add(sources.experts[e], target.experts[e]);
  add(sources.shared, target.shared);
  add(sources.shared_gate, target.shared_gate);
}

Result<void> Loader::layer(int index, LayerWeights& target) {
  const LayerSources& sources = weights_.layers()[static_cast<size_t>(index)];
  target.input_norm = TRY(norm(sources.input_norm));
  target.post_norm = TRY(norm(sources.post_norm));
  if (config_.layers[static_cast<size_t>(index)] == LayerKind::attention) {
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

Result<void> pack_one(const Weights& weights, const KernelTable& kernels, const PackJob& job) {
  const LinearWeight weight = TRY(weights.load(*job.source));
  *job.target = TRY(PackedLinear::pack(weight, kernels));
  return {};
}

Result<void> Loader::pack(const KernelTable& kernels, ThreadPool& pool) const {
  std::mutex mutex;
  std::optional<Error> first_error;
  pool.parallel_for(jobs_.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Result<void> done = pack_one(weights_, kernels, jobs_[i]);
      if (done.ok()) continue;
      std::lock_guard lock(mutex);
      if (!first_error) first_error = done.error();
    }
  });
  if (first_error) return *std::move(first_error);
  return {};
}

bool shares_embedding(const Weights& weights) {
  return weights.head().values == weights.embedding().values;
}

}  // namespace

Result<CpuWeights> CpuWeights::load(const Weights& weights, const ModelConfig& config,
                                    const KernelTable& kernels, ThreadPool& pool) {
  CpuWeights loaded;
  Loader loader(weights, config);
  loader.add(weights.head(), loaded.head);
  loaded.layers.resize(weights.layers().size());
  for (int i = 0; i < config.layer_count(); ++i)
    TRY(loader.layer(i, loaded.layers[static_cast<size_t>(i)]));
  TRY(loader.pack(kernels, pool));
  loaded.final_norm = TRY(loader.norm(weights.final_norm()));
  if (!shares_embedding(weights)) loaded.embedding = TRY(weights.load(weights.embedding()));
  return loaded;
}

}  // namespace nibble::cpu
