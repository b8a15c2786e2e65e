// Blocks of random numbers, and which tensor begins where in which block.
#include "model/synthetic/synthetic_numbers.h"

#include <algorithm>
#include <cmath>

#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr size_t kBlockBytes = size_t{8} << 20;
using Block = std::vector<std::byte>;

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

}  // namespace

// Magnitudes of E4M3 codes are below 2, NVFP4 scales between 2^-1 and 2.
SyntheticNumbers::SyntheticNumbers(const SyntheticOptions& options)
    : options_(options),
      codes_(byte_block(options.seed, 0xFF, 0)),
      e4m3_(byte_block(options.seed + 1, 0xBF, 0)),
      scales_(byte_block(options.seed + 2, 0x0F, 0x30)) {}

const Block* SyntheticNumbers::normals(float mean, float deviation) {
  const auto [found, added] = normals_.try_emplace({mean, deviation});
  if (added) found->second = normal_block(options_.seed * 977 + normals_.size(), mean, deviation);
  return &found->second;
}

const Block* SyntheticNumbers::floats(float mean) {
  const auto [found, added] = floats_.try_emplace(mean);
  if (added) found->second = float_block(options_.seed * 991 + floats_.size(), mean);
  return &found->second;
}

/// A whole F32 somewhere in the first half, so that two tensors of one shape differ.
size_t SyntheticNumbers::first_byte(const SyntheticTensor& tensor) const {
  const uint64_t mixed = scramble(options_.seed + std::hash<std::string>()(tensor.plan.name));
  return mixed % (kBlockBytes / 2) & ~3U;
}

void SyntheticNumbers::mlp(const MlpSources& sources) {
  for (const LinearSource* part : {&sources.gate, &sources.up, &sources.down}) usual(*part);
}

void SyntheticNumbers::usual(const LinearSource& source) {
  if (source.present()) linear(source, 1.0F / std::sqrt(static_cast<float>(source.cols)));
}

void SyntheticNumbers::linear(const LinearSource& source, float deviation) {
  const auto put = [&](const std::string& name, DType dtype, const Shape& shape,
                       const Block* block) {
    tensors_.push_back({.plan = {name, dtype, shape}, .block = block});
  };
  // Random E2M1 codes under such scales deviate by about 3.0, E4M3 codes as masked by about 0.8.
  if (source.scheme.weights == WeightFormat::nvfp4) {
    put(source.values, DType::u8, {source.rows, source.cols / 2}, &codes_);
    put(source.scales, DType::f8_e4m3, {source.rows, source.cols / kNvfp4Group}, &scales_);
    scalar(source.global_scale, 3.0F / deviation);
  } else if (source.scheme.weights == WeightFormat::fp8_tensor) {
    put(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    scalar(source.scales, deviation / 0.8F);
  } else if (source.scheme.weights == WeightFormat::fp8_channel) {
    const float scale = deviation / 0.8F;
    put(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    put(source.scales, DType::f32, {source.rows, 1}, floats(scale));
  } else if (source.scheme.weights == WeightFormat::fp8_block) {
    const float scale = deviation / 0.8F;
    const auto blocks = [](int64_t size) { return (size + kFp8Block - 1) / kFp8Block; };
    put(source.values, DType::f8_e4m3, {source.rows, source.cols}, &e4m3_);
    put(source.scales, DType::bf16, {blocks(source.rows), blocks(source.cols)},
        normals(scale, scale / 10));
  } else {
    const bool zero = ending_of(source.module, options_.zero) != nullptr;
    put(source.values, DType::bf16, {source.rows, source.cols},
        normals(0.0F, zero ? 0.0F : deviation));
    return;
  }
  declare_inputs(source);
}

void SyntheticNumbers::declare_inputs(const LinearSource& source) {
  const std::string* ending = ending_of(source.module, options_.declared);
  if (ending == nullptr) return;
  const bool four = source.scheme.weights == WeightFormat::nvfp4;
  declared_[*ending] = four ? 4 : 8;
  // For inputs of magnitude 1, with room: 4-bit ones are divided, 8-bit ones multiplied.
  // Projections of one input, such as gate and up, have one scale; experts have their own.
  const std::string parent = source.module.substr(0, source.module.rfind('.'));
  const auto own = static_cast<float>(std::hash<std::string>()(parent) % 64);
  if (four)
    scalar(source.module + ".input_global_scale", 16.0F + own);
  else if (options_.fp8 == SyntheticFp8::by_tensor)
    scalar(source.module + ".input_scale", 1.0F / (32.0F + own));
}

void SyntheticNumbers::layer(const LayerSources& layer, const ModelConfig& config) {
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

/// Norm weights around 1, linears as usual, all other numbers small.
void SyntheticNumbers::vision(const VisionSources& tower, const VisionConfig& config) {
  constexpr float kSmall = 0.05F;
  const auto linear = [&](const LinearSource& source) {
    if (source.values != tower.patches.weight.values) return usual(source);
    vector({source.values, patch_shape(config)}, 0.0F,
           1.0F / std::sqrt(static_cast<float>(source.cols)));
  };
  visit_vision(tower, linear, [&](const VectorSource& source) {
    const bool norm = source.name.find("norm") != std::string::npos;
    vector(source, norm && source.name.ends_with("weight") ? 1.0F : 0.0F, kSmall);
  });
}

void SyntheticNumbers::add(const SyntheticWeights& weights, const ModelConfig& config) {
  linear(weights.embedding, options_.embedding_deviation);
  if (!config.tied_head) usual(weights.head);
  vector(weights.final_norm, config.norm == NormKind::zero_centred ? 0.0F : 1.0F, 0.1F);
  for (const LayerSources& one : weights.layers) layer(one, config);
  if (weights.vision) vision(*weights.vision, *config.vision);
  if (!weights.mtp) return;
  const float norm = config.norm == NormKind::zero_centred ? 0.0F : 1.0F;
  for (const VectorSource* part :
       {&weights.mtp->embedding_norm, &weights.mtp->hidden_norm, &weights.mtp->norm})
    vector(*part, norm, 0.1F);
  usual(weights.mtp->joined);
  layer(weights.mtp->layer, config);
  usual(weights.mtp->head);
}

SyntheticTensors::SyntheticTensors(const SyntheticWeights& weights, const ModelConfig& config,
                                   uint64_t seed)
    : options_{.seed = seed}, numbers_(options_) {
  numbers_.add(weights, config);
  for (const SyntheticTensor& tensor : numbers_.tensors()) {
    const TensorPlan& plan = tensor.plan;
    entries_.push_back({.name = plan.name,
                        .dtype = plan.dtype,
                        .shape = plan.shape,
                        .bytes = dtype_bytes(plan.dtype, plan.shape.count())});
    tensors_.emplace(plan.name, &tensor);
  }
  std::ranges::sort(entries_, {}, &TensorEntry::name);
}

const TensorEntry* SyntheticTensors::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &TensorEntry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Result<void> SyntheticTensors::read_bytes(const TensorEntry& entry, int64_t begin,
                                          std::span<std::byte> out) const {
  std::byte* to = out.data();
  return numbers_.pieces(*tensors_.at(entry.name), begin, static_cast<int64_t>(out.size()),
                         [&](std::span<const std::byte> piece) -> Result<void> {
                           to = std::ranges::copy(piece, to).out;
                           return {};
                         });
}

int64_t SyntheticTensors::bytes() const {
  int64_t total = 0;
  for (const TensorEntry& entry : entries_) total += entry.bytes;
  return total;
}

}  // namespace nibble
