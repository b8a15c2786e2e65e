// Lines to and from the formats, a row of functions for each.
#include "model/kv_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "model/batch.h"
#include "model/kv_four_bits.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

struct KvCodec {
  void (*store)(std::span<const float> line, const KvLinePlace& to);
  void (*load)(const KvLinePlace& from, std::span<float> line);
  bool (*finite)(std::span<const std::byte> bytes);  // of numbers, or of scales where there are any
};

template <typename Code>
std::span<const Code> codes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const Code*>(bytes.data()), bytes.size() / sizeof(Code)};
}

/// A format without scales: each number is a Code by itself.
template <typename Code, Code (*kEncode)(float), float (*kDecode)(Code), bool (*kFinite)(Code)>
struct PlainCodec {
  static void store(std::span<const float> line, const KvLinePlace& to) {
    auto* out = reinterpret_cast<Code*>(to.codes);
    for (size_t i = 0; i < line.size(); ++i)
      out[static_cast<int64_t>(i) * to.code_stride] = kEncode(line[i]);
  }
  static void load(const KvLinePlace& from, std::span<float> line) {
    const auto* in = reinterpret_cast<const Code*>(from.codes);
    for (size_t i = 0; i < line.size(); ++i)
      line[i] = kDecode(in[static_cast<int64_t>(i) * from.code_stride]);
  }
  static bool finite(std::span<const std::byte> bytes) {
    return std::ranges::all_of(codes_of<Code>(bytes), kFinite);
  }
  static constexpr KvCodec row() { return {store, load, finite}; }
};

float same(float x) { return x; }
bool finite_f32(float x) { return std::isfinite(x); }
bool finite_bf16(uint16_t code) { return (code & 0x7F80U) != 0x7F80U; }
bool finite_f16(uint16_t code) { return (code & 0x7C00U) != 0x7C00U; }
bool finite_e4m3(uint8_t code) { return (code & 0x7FU) != 0x7FU; }

template <typename Code, bool (*kFinite)(Code)>
bool all_sound(std::span<const std::byte> bytes) {
  return std::ranges::all_of(codes_of<Code>(bytes), kFinite);
}

constexpr KvCodec codec_of(KvFormat format, KvSide side) {
  switch (format) {
    case KvFormat::f32:
      return PlainCodec<float, same, same, finite_f32>::row();
    case KvFormat::bf16:
      return PlainCodec<uint16_t, float_to_bf16, bf16_to_float, finite_bf16>::row();
    case KvFormat::fp8:
      return PlainCodec<uint8_t, float_to_e4m3, e4m3_to_float, finite_e4m3>::row();
    case KvFormat::turboquant_4bit_nc:
      if (side == KvSide::keys)
        return {kv_turboquant_keys::store, kv_turboquant_keys::load,
                all_sound<uint16_t, finite_f16>};
      return {kv_uniform_values::store, kv_uniform_values::load, all_sound<uint16_t, finite_f16>};
    case KvFormat::nvfp4:
      return {kv_nvfp4::store, kv_nvfp4::load, all_sound<uint8_t, finite_e4m3>};
  }
  return {};
}

bool fits(const KvTraits& format, int64_t head_dim) {
  return head_dim % format.dim_multiple == 0 &&
         (!format.rotates || std::has_single_bit(static_cast<uint64_t>(head_dim)));
}

}  // namespace

int64_t kv_format_page_bytes(const ModelConfig& config, KvFormat format) {
  const AttentionConfig& a = config.attention;
  return int64_t{config.kv_layers()} * a.kv_heads * kPageTokens *
         kv_token_bytes(format, a.head_dim);
}

Result<void> check_kv_head_dim(KvFormat format, const ModelConfig& config) {
  const int64_t head_dim = config.attention.head_dim;
  const KvTraits traits = kv_traits(format);
  if (config.kv_layers() == 0 || fits(traits, head_dim)) return {};
  std::string others;
  for (const KvCache kind : kKvCaches)
    if (fits(kv_traits(kv_format_of(kind, KvFormat::f32)), head_dim))
      others += concat(others.empty() ? "" : ", ", kv_cache_name(kind));
  return make_error(
      ErrorCode::unsupported,
      {.what = concat("--kv-cache-dtype ", traits.option),
       .expected = concat("a head size that is a ", traits.rotates ? "power of two and a " : "",
                          "multiple of ", traits.dim_multiple),
       .found = concat(head_dim),
       .advice = concat("this model's keys and values can be kept as ", others)});
}

void kv_store(KvFormat format, KvSide side, std::span<const float> line, const KvLinePlace& to) {
  CHECK(fits(kv_traits(format), static_cast<int64_t>(line.size())), "a line of ", line.size(),
        " numbers in ", kv_traits(format).name);
  codec_of(format, side).store(line, to);
}

void kv_keep(KvFormat format, KvSide side, std::span<const float> line, float* to) {
  const auto head_dim = static_cast<int64_t>(line.size());
  std::vector<std::byte> stored(static_cast<size_t>(kv_line_bytes(format, side, head_dim)));
  const KvLinePlace place = {.codes = stored.data(),
                             .scales = stored.data() + kv_code_bytes(format, head_dim)};
  kv_store(format, side, line, place);
  codec_of(format, side).load(place, {to, line.size()});
}

void kv_turn_query(KvFormat format, std::span<float> query) {
  if (!kv_traits(format).rotates) return;
  hadamard(query);
  const float factor = 1.0F / std::sqrt(static_cast<float>(query.size()));
  for (float& x : query) x *= factor;
}

bool kv_finite(KvFormat format, KvSide side, std::span<const std::byte> lines, int64_t head_dim) {
  const int64_t numbers = kPageTokens * kv_code_bytes(format, head_dim);
  const bool scaled = kv_scale_bytes(format, side, head_dim) > 0;
  return codec_of(format, side).finite(lines.subspan(scaled ? static_cast<size_t>(numbers) : 0));
}

}  // namespace nibble
