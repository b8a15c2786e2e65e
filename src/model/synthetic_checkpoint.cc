// Tensors are filled from blocks of random numbers, each from a place of its own.
#include "model/synthetic_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

constexpr size_t kBlockBytes = size_t{8} << 20;

uint64_t scramble(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// The sum of eight uniform bytes, scaled to deviation 1.
float normal_of(uint64_t bits) {
  int sum = 0;
  for (int i = 0; i < 8; ++i) sum += static_cast<int>(bits >> 8 * i & 0xFF);
  constexpr float kDeviation = 209.0F;  // sqrt(8 * (256^2 - 1) / 12)
  return (static_cast<float>(sum) - 8 * 127.5F) / kDeviation;
}

/// The one of `endings` that `module` ends with, or null.
const std::string* ending_of(std::string_view module, const std::vector<std::string>& endings) {
  const auto found = std::ranges::find_if(
      endings, [&](const std::string& ending) { return module.ends_with(ending); });
  return found == endings.end() ? nullptr : &*found;
}

using Block = std::vector<std::byte>;

Block normal_block(uint64_t seed, float mean, float deviation) {
  Block block(kBlockBytes);
  auto* values = reinterpret_cast<uint16_t*>(block.data());
  for (size_t i = 0; i < kBlockBytes / 2; ++i)
    values[i] = float_to_bf16(mean + deviation * normal_of(scramble(seed + i)));
  return block;
}
/// Random bytes, masked and shifted.
Block byte_block(uint64_t seed, uint8_t mask, uint8_t add) {
  Block block(kBlockBytes);
  for (size_t i = 0; i < kBlockBytes; i += 8) {
    uint64_t bits = scramble(seed + i);
    for (size_t k = 0; k < 8; ++k, bits >>= 8)
      block[i + k] = static_cast<std::byte>((bits & mask) + add);
  }
  return block;
}

/// One tensor to write.
struct Fill {
  TensorPlan plan;
  const Block* block = nullptr;  // null: `scalar`
  float scalar = 0.0F;
};

class Filler {
 public:
  explicit Filler(const SyntheticOptions& options) : options_(options) {}

  void linear(const LinearSource& source, float deviation);
  void vector(const VectorSource& source, float mean, float deviation) {
    fills_.push_back(
        {.plan = {source.name, DType::bf16, source.shape}, .block = normals(mean, deviation)});
  }
  void mlp(const MlpSources& sources) {
    for (const LinearSource* part : {&sources.gate, &sources.up, &sources.down}) usual(*part);
  }
  /// A linear of deviation 1 / sqrt(columns).
  void usual(const LinearSource& source) {
    if (source.present()) linear(source, 1.0F / std::sqrt(static_cast<float>(source.cols)));
  }
  void layer(const LayerSources& layer, const ModelConfig& config);
  const std::vector<Fill>& fills() const { return fills_; }
  /// Bits of the inputs of what ends so.
  const std::map<std::string, int>& declared() const { return declared_; }

 private:
  const Block* normals(float mean, float deviation) {
    const auto [found, added] = normals_.try_emplace({mean, deviation});
    if (added) found->second = normal_block(options_.seed * 977 + normals_.size(), mean, deviation);
    return &found->second;
  }
  const SyntheticOptions& options_;
  std::map<std::pair<float, float>, Block> normals_;
  // Magnitudes of E4M3 codes below 2; NVFP4 scales between 2^-1 and 2.
  Block codes_ = byte_block(options_.seed, 0xFF, 0);
  Block e4m3_ = byte_block(options_.seed + 1, 0xBF, 0);
  Block scales_ = byte_block(options_.seed + 2, 0x0F, 0x30);
  std::vector<Fill> fills_;
  std::map<std::string, int> declared_;
};

void Filler::linear(const LinearSource& source, float deviation) {
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape,
                       const Block* block) {
    fills_.push_back({.plan = {name, dtype, shape}, .block = block});
  };
  const auto add_scalar = [&](const std::string& name, float value) {
    fills_.push_back({.plan = {name, DType::f32, {1}}, .scalar = value});
  };
  // Random E2M1 codes under such scales deviate by about 3.0, E4M3 codes as masked by about 0.8.
  if (source.scheme.weights == WeightFormat::nvfp4) {
    add(source.values, DType::u8, {source.rows, source.cols / 2}, &codes_);
    add(source.scales, DType::f8_e4m3, {source.rows, source.cols / kNvfp4Group}, &scales_);
    add_scalar(source.global_scale, 3.0F / deviation);
  } else if (source.scheme.weights == WeightFormat::fp8_tensor) {
    add(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    add_scalar(source.scales, deviation / 0.8F);
  } else if (source.scheme.weights == WeightFormat::fp8_block) {
    const float scale = deviation / 0.8F;
    const auto blocks = [](int64_t size) { return (size + kFp8Block - 1) / kFp8Block; };
    add(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    add(source.scales, DType::bf16, {blocks(source.rows), blocks(source.cols)},
        normals(scale, scale / 10));
  } else {
    const bool zero = ending_of(source.module, options_.zero) != nullptr;
    add(source.values, DType::bf16, {source.rows, source.cols},
        normals(0.0F, zero ? 0.0F : deviation));
    return;
  }
  const std::string* ending = ending_of(source.module, options_.declared);
  if (ending == nullptr) return;
  const bool four = source.scheme.weights == WeightFormat::nvfp4;
  declared_[*ending] = four ? 4 : 8;
  // For inputs of magnitude 1, with room: 4-bit ones are divided, 8-bit ones multiplied.
  // Projections of one input, such as gate and up, have one scale; experts have their own.
  const std::string parent = source.module.substr(0, source.module.rfind('.'));
  const auto own = static_cast<float>(std::hash<std::string>()(parent) % 64);
  if (four)
    add_scalar(source.module + ".input_global_scale", 16.0F + own);
  else if (options_.fp8 == SyntheticFp8::by_tensor)
    add_scalar(source.module + ".input_scale", 1.0F / (32.0F + own));
}

void Filler::layer(const LayerSources& layer, const ModelConfig& config) {
  const float norm = config.norm == NormKind::zero_centred ? 0.0F : 1.0F;
  constexpr float kNormDeviation = 0.1F;
  vector(layer.input_norm, norm, kNormDeviation);
  vector(layer.post_norm, norm, kNormDeviation);
  const AttentionSources& a = layer.attention;
  for (const LinearSource* part : {&a.q, &a.k, &a.v, &a.o}) usual(*part);
  if (a.q.present()) {
    vector(a.q_norm, norm, kNormDeviation);
    vector(a.k_norm, norm, kNormDeviation);
  }
  const DeltaNetSources& d = layer.delta_net;
  for (const LinearSource* part : {&d.qkv, &d.z, &d.b, &d.a, &d.out}) usual(*part);
  if (d.qkv.present()) {
    vector(d.conv, 0.0F, 0.5F);
    vector(d.a_log, 0.0F, 0.5F);
    vector(d.dt_bias, -2.0F, 1.0F);
    vector(d.norm, 1.0F, kNormDeviation);
  }
  usual(layer.moe.router);
  usual(layer.moe.shared_gate);
  for (const MlpSources& expert : layer.moe.experts) mlp(expert);
  mlp(layer.moe.shared);
  mlp(layer.dense_mlp);
}

/// What a compressed-tensors checkpoint says of one format.
Json scheme_group(const std::vector<std::string>& targets, int bits, SyntheticFp8 fp8) {
  Json group = Json::Object{};
  Json::Array names;
  for (const std::string& target : targets) names.emplace_back(target);
  group.set("targets", std::move(names));
  Json weights = Json::Object{};
  weights.set("num_bits", bits);
  weights.set("type", "float");
  const bool blocks = fp8 == SyntheticFp8::by_block;
  weights.set("strategy", bits == 4 ? "tensor_group" : blocks ? "block" : "tensor");
  if (bits == 4) weights.set("group_size", kNvfp4Group);
  if (bits == 8 && blocks) weights.set("block_structure", Json::Array{kFp8Block, kFp8Block});
  weights.set("symmetric", true);
  weights.set("dynamic", false);
  group.set("weights", std::move(weights));
  return group;
}

/// A group whose inputs are declared as well.
Json input_group(const std::vector<std::string>& targets, int bits, SyntheticFp8 fp8) {
  Json group = scheme_group(targets, bits, fp8);
  Json inputs = Json::Object{};
  inputs.set("num_bits", bits);
  inputs.set("type", "float");
  inputs.set("strategy", bits == 4                        ? "tensor_group"
                         : fp8 == SyntheticFp8::by_block  ? "group"
                         : fp8 == SyntheticFp8::by_tensor ? "tensor"
                                                          : "token");
  if (bits == 4) inputs.set("group_size", kNvfp4Group);
  if (bits == 8 && fp8 == SyntheticFp8::by_block) inputs.set("group_size", kFp8Block);
  inputs.set("symmetric", true);
  inputs.set("dynamic", bits == 4 ? Json("local") : Json(fp8 != SyntheticFp8::by_tensor));
  group.set("input_activations", std::move(inputs));
  return group;
}

Json declaration(const std::map<std::string, int>& declared, const SyntheticOptions& options) {
  constexpr const char* kMlp = "re:.*mlp.*(gate|up|down)_proj$";
  constexpr const char* kAttention = "re:.*self_attn.*_proj$";
  const WeightLayout layout = options.layout;
  Json groups = Json::Object{};
  for (const auto& [ending, bits] : declared)  // first: of two groups the first counts
    groups.set(concat("inputs_", ending),
               input_group({ending, concat("re:.*", ending, "$")}, bits, options.fp8));
  const bool four_bits = layout == WeightLayout::nvfp4 || layout == WeightLayout::w4a4;
  if (four_bits) {
    std::vector<std::string> targets = {kMlp, kAttention};
    if (layout == WeightLayout::nvfp4) targets.emplace_back("lm_head");
    groups.set("group_0", scheme_group(targets, 4, options.fp8));
  } else {
    const int bits = layout == WeightLayout::fp8 ? 8 : 4;
    groups.set("group_0", scheme_group({kMlp, "lm_head"}, bits, options.fp8));
    groups.set("group_1",
               scheme_group({kAttention, "re:.*linear_attn.(in_proj_qkv|in_proj_z|out_proj)$"}, 8,
                            options.fp8));
  }
  Json config = Json::Object{};
  config.set("quant_method", "compressed-tensors");
  config.set("format", four_bits ? "nvfp4-pack-quantized" : "mixed-precision");
  config.set("quantization_status", "compressed");
  config.set("config_groups", std::move(groups));
  config.set("ignore", Json::Array{});
  return config;
}

Json without_declaration(const Json& config) {
  Json::Object kept;
  for (const Json::Member& member : config.as_object())
    if (member.key != "quantization_config") kept.push_back(member);
  return kept;
}

Result<void> append(CheckpointWriter& writer, const Fill& fill, uint64_t seed) {
  if (fill.block == nullptr)
    return writer.append(fill.plan.name, std::as_bytes(std::span(&fill.scalar, 1)));
  const int64_t bytes = fill.plan.shape.count() * dtype_info(fill.plan.dtype).bits / 8;
  // From somewhere in the first half, so that two tensors of one shape differ.
  size_t at = scramble(seed + std::hash<std::string>()(fill.plan.name)) % (kBlockBytes / 2) & ~1U;
  for (int64_t left = bytes; left > 0;) {
    const auto count = std::min(kBlockBytes - at, static_cast<size_t>(left));
    TRY(writer.append(fill.plan.name, std::span(*fill.block).subspan(at, count)));
    left -= static_cast<int64_t>(count);
    at = 0;
  }
  return {};
}

}  // namespace

Result<void> write_synthetic_checkpoint(const Json& config, const std::filesystem::path& folder,
                                        const SyntheticOptions& options) {
  Json written = without_declaration(config);
  const ModelConfig model = TRY(ModelConfig::parse(written));
  const FormatOf formats = formats_of(options.layout);
  const SyntheticWeights weights = synthetic_weights(model, [&](std::string_view module) {
    for (const std::string& ending : options.zero)
      if (module.ends_with(ending)) return WeightFormat::plain;
    const WeightFormat format = formats(module);
    const bool blocks = format == WeightFormat::fp8_tensor && options.fp8 == SyntheticFp8::by_block;
    return blocks ? WeightFormat::fp8_block : format;
  });
  Filler filler(options);
  filler.linear(weights.embedding, options.embedding_deviation);
  if (!model.tied_head) filler.usual(weights.head);
  filler.vector(weights.final_norm, model.norm == NormKind::zero_centred ? 0.0F : 1.0F, 0.1F);
  for (const LayerSources& layer : weights.layers) filler.layer(layer, model);
  if (options.layout != WeightLayout::bf16)
    written.set("quantization_config", declaration(filler.declared(), options));

  std::vector<TensorPlan> plans;
  for (const Fill& fill : filler.fills()) plans.push_back(fill.plan);
  CheckpointWriter writer = TRY(CheckpointWriter::create(folder, std::move(plans)));
  std::mutex mutex;
  Result<void> outcome;
  ThreadPool pool(options.threads);
  pool.parallel_for(filler.fills().size(), 8, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Result<void> done = append(writer, filler.fills()[i], options.seed);
      const std::lock_guard lock(mutex);
      if (!done.ok() && outcome.ok()) outcome = done;
    }
  });
  TRY(outcome);
  return writer.finish(written);
}

}  // namespace nibble
