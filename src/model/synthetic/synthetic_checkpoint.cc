// Tensors are filled from blocks of random numbers, each from a place of its own.
#include "model/synthetic/synthetic_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "model/synthetic/synthetic_vision.h"
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
Block float_block(uint64_t seed, float mean) {
  Block block(kBlockBytes);
  auto* values = reinterpret_cast<float*>(block.data());
  for (size_t i = 0; i < kBlockBytes / 4; ++i)
    values[i] = mean * (1.0F + static_cast<float>(scramble(seed + i) % 2048) / 10240.0F - 0.1F);
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
  void tensor(const TensorPlan& plan, float mean, float deviation) {
    fills_.push_back({.plan = plan, .block = normals(mean, deviation)});
  }
  const std::vector<Fill>& fills() const { return fills_; }
  /// Bits of the inputs of what ends so.
  const std::map<std::string, int>& declared() const { return declared_; }

 private:
  const Block* normals(float mean, float deviation) {
    const auto [found, added] = normals_.try_emplace({mean, deviation});
    if (added) found->second = normal_block(options_.seed * 977 + normals_.size(), mean, deviation);
    return &found->second;
  }
  /// F32 around a mean, within a tenth of it.
  const Block* floats(float mean) {
    const auto [found, added] = floats_.try_emplace(mean);
    if (added) found->second = float_block(options_.seed * 991 + floats_.size(), mean);
    return &found->second;
  }
  const SyntheticOptions& options_;
  std::map<std::pair<float, float>, Block> normals_;
  std::map<float, Block> floats_;
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
  } else if (source.scheme.weights == WeightFormat::fp8_channel) {
    const float scale = deviation / 0.8F;
    add(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    add(source.scales, DType::f32, {source.rows, 1}, floats(scale));
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

/// The words of a compressed-tensors checkpoint for one format.
struct Said {
  std::string_view weights, inputs;  // strategies; no inputs: they stay high
};

Json side_args(int bits, std::string_view strategy, Json dynamic) {
  Json args = Json::Object{};
  args.set("num_bits", bits);
  args.set("type", "float");
  args.set("strategy", strategy);
  if (strategy == "tensor_group") args.set("group_size", kNvfp4Group);
  if (strategy == "group") args.set("group_size", kFp8Block);
  if (strategy == "block") args.set("block_structure", Json::Array{kFp8Block, kFp8Block});
  args.set("symmetric", true);
  args.set("dynamic", std::move(dynamic));
  return args;
}

Json scheme_group(const std::vector<std::string>& targets, int bits, const Said& said) {
  Json group = Json::Object{};
  Json::Array names;
  for (const std::string& target : targets) names.emplace_back(target);
  group.set("targets", std::move(names));
  group.set("format", bits == 4 ? "nvfp4-pack-quantized" : "float-quantized");
  group.set("weights", side_args(bits, said.weights, false));
  group.set("input_activations",
            said.inputs.empty()
                ? Json()
                : side_args(bits, said.inputs,
                            bits == 4 ? Json("local") : Json(said.inputs != "tensor")));
  return group;
}

/// Strategies of weights and declared inputs.
Said said_of(int bits, SyntheticFp8 fp8) {
  if (bits == 4) return {"tensor_group", "tensor_group"};
  if (fp8 == SyntheticFp8::by_block) return {"block", "group"};
  return {"tensor", fp8 == SyntheticFp8::by_tensor ? "tensor" : "token"};
}

/// Patterns as quantize writes them (target_patterns.h).
std::string pattern(std::string_view tail) {
  return concat(R"(re:(?:model\.|language_model\.)*)", tail, "$");
}

Json declaration(const std::map<std::string, int>& declared, const SyntheticOptions& options) {
  const std::string experts = pattern(R"(layers\.\d+\.mlp\.experts\.\d+\.(?:gate|up|down)_proj)");
  const std::string mlp = pattern(R"(layers\.\d+\.mlp\.(?:shared_expert\.)?(?:gate|up|down)_proj)");
  const std::string attention = pattern(R"(layers\.\d+\.self_attn\.[qkvo]_proj)");
  const std::string delta =
      pattern(R"(layers\.\d+\.linear_attn\.(?:in_proj_qkv|in_proj_z|out_proj))");
  const std::string head = pattern("lm_head");
  const WeightLayout layout = options.layout;
  const bool four = layout == WeightLayout::nvfp4 || layout == WeightLayout::w4a4;
  const bool folder = options.scope == SyntheticScope::folder;
  const auto plain_inputs = [&](int bits) {
    Said said = said_of(bits, options.fp8);
    if (bits == 4 || !folder) said.inputs = "";
    return said;
  };
  Json groups = Json::Object{};
  for (const auto& [ending, bits] : declared)  // first: of two groups the first counts
    groups.set(concat("inputs_", ending), scheme_group({ending, concat("re:.*", ending, "$")}, bits,
                                                       said_of(bits, options.fp8)));
  if (four) {
    std::vector<std::string> targets = {experts, mlp, attention};
    if (layout == WeightLayout::nvfp4) targets.push_back(head);
    groups.set("group_0", scheme_group(targets, 4, plain_inputs(4)));
  } else if (layout == WeightLayout::fp8 && folder && options.fp8 != SyntheticFp8::by_block) {
    groups.set("group_0", scheme_group({experts}, 8, {"channel", "token"}));
    groups.set("group_1", scheme_group({mlp, head, attention, delta}, 8, plain_inputs(8)));
  } else {
    const int bits = layout == WeightLayout::fp8 ? 8 : 4;
    groups.set("group_0", scheme_group({experts, mlp, head}, bits, plain_inputs(bits)));
    groups.set("group_1", scheme_group({attention, delta}, 8, plain_inputs(8)));
  }
  Json config = Json::Object{};
  config.set("quant_method", "compressed-tensors");
  config.set("format", four ? "nvfp4-pack-quantized" : "mixed-precision");
  config.set("quantization_status", "compressed");
  config.set("config_groups", std::move(groups));
  Json::Array ignored;  // readers that want an entry for each linear
  for (const char* name :
       {R"(re:.*\.mlp\.gate$)", R"(re:.*\.shared_expert_gate$)", R"(re:.*\.in_proj_[ab]$)",
        R"(re:.*embed_tokens$)", R"(re:.*visual\..*)", "re:^mtp.*"})
    ignored.emplace_back(name);
  if (four) ignored.emplace_back(R"(re:.*\.linear_attn\..*)");
  if (layout == WeightLayout::w4a4) ignored.emplace_back(R"(re:.*lm_head$)");
  config.set("ignore", std::move(ignored));
  return config;
}

Json without_declaration(const Json& config) {
  Json::Object kept;
  for (const Json::Member& member : config.as_object())
    if (member.key != "quantization_config") kept.push_back(member);
  return kept;
}

/// No MTP head is written, so none is promised.
void drop_mtp(Json& config) {
  constexpr std::string_view kKey = "mtp_num_hidden_layers";
  if (config.find(kKey) != nullptr) config.set(kKey, 0);
  const Json* text = config.find("text_config");
  if (text == nullptr || text->find(kKey) == nullptr) return;
  Json changed = *text;
  changed.set(kKey, 0);
  config.set("text_config", std::move(changed));
}

Result<void> append(CheckpointWriter& writer, const Fill& fill, uint64_t seed) {
  if (fill.block == nullptr)
    return writer.append(fill.plan.name, std::as_bytes(std::span(&fill.scalar, 1)));
  const int64_t bytes = fill.plan.shape.count() * dtype_info(fill.plan.dtype).bits / 8;
  // The bytes begin at a whole F32 somewhere in the first half, so that two tensors of one shape
  // differ.
  size_t at = scramble(seed + std::hash<std::string>()(fill.plan.name)) % (kBlockBytes / 2) & ~3U;
  for (int64_t left = bytes; left > 0;) {
    const auto count = std::min(kBlockBytes - at, static_cast<size_t>(left));
    TRY(writer.append(fill.plan.name, std::span(*fill.block).subspan(at, count)));
    left -= static_cast<int64_t>(count);
    at = 0;
  }
  return {};
}

}  // namespace

Result<void> write_synthetic_checkpoint(const Json& config, const std::filesystem::path& output,
                                        const SyntheticOptions& options) {
  const bool folder = options.scope == SyntheticScope::folder;
  Json written = without_declaration(config);
  if (folder) drop_mtp(written);
  const ModelConfig model = TRY(ModelConfig::parse(written));
  const FormatOf formats = formats_of(options.layout);
  const SyntheticWeights weights = synthetic_weights(model, [&](std::string_view module) {
    for (const std::string& ending : options.zero)
      if (module.ends_with(ending)) return WeightFormat::plain;
    const WeightFormat format = formats(module);
    if (format != WeightFormat::fp8_tensor) return format;
    if (options.fp8 == SyntheticFp8::by_block) return WeightFormat::fp8_block;
    const bool expert = module.find(".experts.") != std::string_view::npos;
    return folder && expert ? WeightFormat::fp8_channel : format;
  });
  Filler filler(options);
  filler.linear(weights.embedding, options.embedding_deviation);
  if (!model.tied_head) filler.usual(weights.head);
  filler.vector(weights.final_norm, model.norm == NormKind::zero_centred ? 0.0F : 1.0F, 0.1F);
  for (const LayerSources& layer : weights.layers) filler.layer(layer, model);
  if (folder)
    for (const TensorPlan& tensor : TRY(synthetic_vision(written))) {
      const bool norm = tensor.name.find("norm") != std::string::npos;
      filler.tensor(tensor, norm && tensor.name.ends_with("weight") ? 1.0F : 0.0F, 0.05F);
    }
  if (options.layout != WeightLayout::bf16)
    written.set("quantization_config", declaration(filler.declared(), options));

  std::vector<TensorPlan> plans;
  for (const Fill& fill : filler.fills()) plans.push_back(fill.plan);
  CheckpointWriter writer = TRY(CheckpointWriter::create(output, std::move(plans)));
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
  for (const auto& [name, text] : options.files) TRY(writer.add_file(name, text));
  return writer.finish(written);
}

}  // namespace nibble
