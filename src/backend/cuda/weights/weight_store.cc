// The layout is walked twice by the same code: once to count bytes, once to fill them.
#include "backend/cuda/weights/weight_store.h"

#include <algorithm>

namespace nibble::cuda {
namespace {

using Change = WeightFiller::Change;

int64_t factor_count(FactorLayout layout, int64_t rows, int64_t cols) {
  switch (layout) {
    case FactorLayout::none:
      return 0;
    case FactorLayout::scalar:
      return 1;
    case FactorLayout::row:
      return rows;
    case FactorLayout::block128:
      return (rows + kFp8Block - 1) / kFp8Block * (cols / kFp8Block);
  }
  CHECK(false, "factor layout ", static_cast<int>(layout));
}

/// Returns matrix `index` of a stack.
DeviceLinear part(const DeviceLinear& stack, int64_t index) {
  DeviceLinear one = stack;
  const int64_t rows = index * stack.rows;
  one.values += rows * value_bytes(stack.format, stack.cols);
  if (stack.scales != nullptr) one.scales += rows * (stack.cols / kNvfp4Group);
  if (stack.factors != nullptr) one.factors += index * stack.factor_stride;
  return one;
}

class Builder {
 public:
  /// A null base counts only.
  Builder(uint8_t* base, WeightFiller& filler, const WeightReading& reading)
      : base_(base), filler_(filler), reading_(reading) {}
  int64_t used() const { return used_; }
  /// All that follows is of the layer that drafts: its inputs are rounded to BF16, whatever is
  /// declared, since drafts change no answer.
  void begin_drafts() { drafts_ = true; }

  Result<void> linear(const LinearSource& source, DeviceLinear& to) {
    if (!source.present()) return {};
    place(source, 1, to);
    return fill(source, to);
  }
  Result<void> vector(const VectorSource& source, Change change, const float*& to,
                      float factor = 1.0F) {
    if (!source.present()) return {};
    uint8_t* bytes = take(source.shape.count() * int64_t{sizeof(float)});
    auto* data = reinterpret_cast<float*>(bytes);
    to = data;
    return base_ == nullptr ? Result<void>() : filler_.vector(source, change, factor, data);
  }
  void tokens(const std::vector<int32_t>& tokens, const int32_t*& to) {
    if (tokens.empty()) return;
    const auto bytes = static_cast<int64_t>(tokens.size() * sizeof(int32_t));
    uint8_t* place = take(bytes);
    to = reinterpret_cast<const int32_t*>(place);
    if (base_ != nullptr) copy_to_device(place, tokens.data(), bytes);
  }
  Result<void> mlp(const MlpSources& sources, MlpWeights& to) {
    TRY(linear(sources.gate, to.gate));
    TRY(linear(sources.up, to.up));
    return linear(sources.down, to.down);
  }
  Result<void> experts(const std::vector<MlpSources>& sources, MlpWeights& to);
  /// A matrix of the vision tower with `rows` rows, those beyond its own zero, and its biases.
  Result<void> biased(const BiasedSource& source, int64_t rows, BiasedWeights& to);
  Result<void> layer_norm(const LayerNormSource& source, LayerNormWeights& to) {
    TRY(vector(source.weight, Change::none, to.weight));
    return vector(source.bias, Change::none, to.bias);
  }

 private:
  Result<void> stack(const std::vector<MlpSources>& sources, LinearSource MlpSources::*role,
                     DeviceLinear& to);
  void place(const LinearSource& source, int64_t count, DeviceLinear& to);
  bool keeps_parts(const LinearSource& source) const {
    return reading_.activations == Activations::f32 &&
           source.scheme.weights == WeightFormat::plain && filler_.is_wider(source);
  }
  Result<void> fill(const LinearSource& source, const DeviceLinear& to) {
    return base_ == nullptr ? Result<void>() : filler_.linear(source, to);
  }
  uint8_t* take(int64_t bytes) {
    const int64_t at = used_;
    used_ += (bytes + 255) / 256 * 256;
    return base_ == nullptr ? nullptr : base_ + at;
  }

  uint8_t* base_;
  WeightFiller& filler_;
  WeightReading reading_;
  bool drafts_ = false;
  int64_t used_ = 0;
};

void Builder::place(const LinearSource& source, int64_t count, DeviceLinear& to) {
  to.format = format_of(source.scheme);
  to.layout = layout_of(source.scheme);
  to.rows = static_cast<int32_t>(source.rows);
  to.cols = static_cast<int32_t>(padded_columns(source.cols));
  if (keeps_parts(source)) to.rest_rows = static_cast<uint32_t>(count * source.rows);
  to.values = take((to.rest_rows > 0 ? kF32Parts : 1) * count * source.rows *
                   value_bytes(to.format, to.cols));
  if (to.format == Format::nvfp4) to.scales = take(count * source.rows * (to.cols / kNvfp4Group));
  to.factor_stride = static_cast<int32_t>(factor_count(to.layout, to.rows, to.cols));
  if (reading_.activations == Activations::declared && !drafts_)
    to.activations = source.scheme.activations;
  to.input_scales = reading_.input_scales;
  if (has_input_scale(to.activations)) ++to.factor_stride;
  if (to.factor_stride > 0)
    to.factors =
        reinterpret_cast<const float*>(take(count * to.factor_stride * int64_t{sizeof(float)}));
}

Result<void> Builder::biased(const BiasedSource& source, int64_t rows, BiasedWeights& to) {
  to.weight = {.rows = static_cast<int32_t>(source.weight.rows),
               .cols = static_cast<int32_t>(vision_padded(source.weight.cols))};
  to.weight.values = take(vision_padded(rows) * value_bytes(Format::bf16, to.weight.cols));
  TRY(fill(source.weight, to.weight));
  to.weight.rows = static_cast<int32_t>(rows);
  uint8_t* bias = take(rows * int64_t{sizeof(float)});
  to.bias = reinterpret_cast<const float*>(bias);
  return base_ == nullptr
             ? Result<void>()
             : filler_.vector(source.bias, Change::none, 1.0F, reinterpret_cast<float*>(bias));
}

Result<void> Builder::stack(const std::vector<MlpSources>& sources, LinearSource MlpSources::*role,
                            DeviceLinear& to) {
  const LinearSource& first = sources.front().*role;
  place(first, static_cast<int64_t>(sources.size()), to);
  for (size_t e = 0; e < sources.size(); ++e) {
    const LinearSource& source = sources[e].*role;
    if (source.scheme.weights != first.scheme.weights || keeps_parts(source) != keeps_parts(first))
      return make_error(ErrorCode::unsupported, {.what = source.module,
                                                 .expected = "the weight format of " + first.module,
                                                 .found = "another",
                                                 .advice = "run it with --backend cpu"});
    TRY(fill(source, part(to, static_cast<int64_t>(e))));
  }
  return {};
}

Result<void> Builder::experts(const std::vector<MlpSources>& sources, MlpWeights& to) {
  TRY(stack(sources, &MlpSources::gate, to.gate));
  TRY(stack(sources, &MlpSources::up, to.up));
  return stack(sources, &MlpSources::down, to.down);
}

Result<void> build_layer(Builder& builder, const LayerSources& sources, LayerKind kind,
                         const ModelConfig& config, const KvScale& kv, LayerWeights& to) {
  const Change norm = config.norm == NormKind::zero_centred ? Change::add_one : Change::none;
  TRY(builder.vector(sources.input_norm, norm, to.input_norm));
  TRY(builder.vector(sources.post_norm, norm, to.post_norm));
  if (kind == LayerKind::attention) {
    const AttentionSources& s = sources.attention;
    AttentionWeights& a = to.attention;
    TRY(builder.linear(s.q, a.q));
    TRY(builder.linear(s.k, a.k));
    TRY(builder.linear(s.v, a.v));
    TRY(builder.linear(s.o, a.o));
    // Pages keep key / scale and value / scale; scores and outputs stay what they are.
    TRY(builder.vector(s.q_norm, norm, a.q_norm, kv.keys));
    TRY(builder.vector(s.k_norm, norm, a.k_norm, 1.0F / kv.keys));
    a.value_scale = kv.values;
  } else {
    const DeltaNetSources& s = sources.delta_net;
    DeltaNetWeights& d = to.delta_net;
    TRY(builder.linear(s.qkv, d.qkv));
    TRY(builder.linear(s.z, d.z));
    TRY(builder.linear(s.a, d.a));  // b follows it: adjoin() of prompt_blocks.cc
    TRY(builder.linear(s.b, d.b));
    TRY(builder.linear(s.out, d.out));
    TRY(builder.vector(s.conv, Change::none, d.conv));
    TRY(builder.vector(s.a_log, Change::none, d.a_log));
    TRY(builder.vector(s.a_log, Change::exponent, d.decay));
    TRY(builder.vector(s.dt_bias, Change::none, d.dt_bias));
    TRY(builder.vector(s.norm, Change::none, d.norm));
  }
  if (!config.moe) return builder.mlp(sources.dense_mlp, to.dense_mlp);
  TRY(builder.linear(sources.moe.router, to.moe.router));
  TRY(builder.linear(sources.moe.shared_gate, to.moe.shared_gate));
  TRY(builder.mlp(sources.moe.shared, to.moe.shared));
  return builder.experts(sources.moe.experts, to.moe.experts);
}

Result<void> build_vision(Builder& builder, const VisionSources& sources, VisionWeights& to) {
  const auto biased = [&](const BiasedSource& source, BiasedWeights& weights) {
    return builder.biased(source, source.weight.rows, weights);
  };
  TRY(biased(sources.patches, to.patches));
  TRY(builder.vector(sources.positions, Change::none, to.positions));
  to.blocks.assign(sources.blocks.size(), VisionBlockWeights());
  for (size_t i = 0; i < sources.blocks.size(); ++i) {
    const VisionBlockSources& from = sources.blocks[i];
    VisionBlockWeights& block = to.blocks[i];
    TRY(builder.layer_norm(from.norm1, block.norm1));
    TRY(builder.layer_norm(from.norm2, block.norm2));
    TRY(biased(from.qkv, block.qkv));
    TRY(biased(from.proj, block.proj));
    TRY(builder.biased(from.fc1, vision_padded(from.fc1.weight.rows), block.fc1));
    TRY(biased(from.fc2, block.fc2));
  }
  TRY(builder.layer_norm(sources.merger_norm, to.merger_norm));
  TRY(biased(sources.merger_fc1, to.merger_fc1));
  return biased(sources.merger_fc2, to.merger_fc2);
}

Result<void> build_all(Builder& builder, const WeightSources& sources, const ModelConfig& config,
                       WeightStore& store) {
  const Change norm = config.norm == NormKind::zero_centred ? Change::add_one : Change::none;
  TRY(builder.linear(sources.embedding, store.embedding));
  if (sources.head.values == sources.embedding.values) {
    store.head = store.embedding;
  } else {
    TRY(builder.linear(sources.head, store.head));
  }
  TRY(builder.vector(sources.final_norm, norm, store.final_norm));
  store.layers.assign(sources.layers.size(), LayerWeights());
  std::span<const KvScale> scales = sources.reading.kv_scales;
  for (size_t i = 0; i < sources.layers.size(); ++i) {
    const bool scaled = config.layers[i] == LayerKind::attention && !scales.empty();
    TRY(build_layer(builder, sources.layers[i], config.layers[i], config,
                    scaled ? scales.front() : KvScale(), store.layers[i]));
    if (scaled) scales = scales.subspan(1);
  }
  if (sources.vision) TRY(build_vision(builder, *sources.vision, store.vision));
  if (!sources.mtp) return {};
  builder.begin_drafts();
  const MtpSources& mtp = *sources.mtp;
  TRY(builder.vector(mtp.embedding_norm, norm, store.draft.embedding_norm));
  TRY(builder.vector(mtp.hidden_norm, norm, store.draft.hidden_norm));
  TRY(builder.vector(mtp.norm, norm, store.draft.norm));
  TRY(builder.linear(mtp.joined, store.draft.joined));
  TRY(builder.linear(mtp.head, store.draft.head));
  builder.tokens(config.draft_tokens, store.draft.tokens);
  return build_layer(builder, mtp.layer, LayerKind::attention, config, {},
                     store.layers.emplace_back());
}

}  // namespace

Result<WeightStore> WeightStore::build(DeviceContext& device, const WeightSources& sources,
                                       const ModelConfig& config, WeightFiller& filler) {
  WeightStore store;
  store.input_scales = sources.reading.input_scales;
  Builder counter(nullptr, filler, sources.reading);
  TRY(build_all(counter, sources, config, store));
  store.memory_ = TRY(DeviceBuffer::allocate(device, counter.used(), "the weights"));
  Builder builder(store.memory_.as<uint8_t>(), filler, sources.reading);
  TRY(build_all(builder, sources, config, store));
  TRY(filler.finish());
  return store;
}

}  // namespace nibble::cuda
