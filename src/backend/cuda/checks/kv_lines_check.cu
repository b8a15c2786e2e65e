// Lines of keys and values as the kernels store them, byte by byte against model/kv_codec.h, and as
// they read them, bit by bit; the operands of prompts within BF16.
#include <limits>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/attention/kv_store.cuh"
#include "model/kv_codec.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr int kLines = 512;
constexpr uint32_t kSeed = 5;

/// A warp stores a line at a time, then reads its numbers in both ways.
template <KvFormat kFormat, KvSide kSide>
__global__ void lines_kernel(const float* lines, int head_dim, uint8_t* out, float* read,
                             float* wide) {
  const int line = static_cast<int>(blockIdx.x);
  const int codes = static_cast<int>(kv_code_bytes(kFormat, head_dim));
  const int bytes = codes + static_cast<int>(kv_scale_bytes(kFormat, kSide, head_dim));
  uint8_t* to = out + static_cast<int64_t>(line) * ((bytes + 15) / 16 * 16);
  uint8_t* scales = to + codes;
  const HeadPart head = load_head(lines + static_cast<int64_t>(line) * head_dim, head_dim);
  store_line<kFormat, kSide>(to, scales, head, head_dim, head_dim);
  __syncwarp();
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += 32)
    read[line * head_dim + d] = KvElements<kFormat>::template load<kSide>(to, scales, d);
  if constexpr (kFormat != KvFormat::f32 && kFormat != KvFormat::bf16) {
    constexpr bool kFour = kv_traits(kFormat).keys.element_bits == 4;
    for (int d = 4 * static_cast<int>(threadIdx.x); d < head_dim; d += 128) {
      uint32_t of = 0;
      for (int i = 0; i < (kFour ? 2 : 4); ++i)
        of |= uint32_t{to[(kFour ? d / 2 : d) + i]} << 8 * i;
      uint32_t beside = 0;
      if constexpr (kFormat == KvFormat::nvfp4) {
        beside = scales[d / 32 * 2];
        if (d / 32 * 2 + 1 < head_dim / 16) beside |= uint32_t{scales[d / 32 * 2 + 1]} << 8;
      } else if constexpr (kFour) {
        for (int i = 0; i < (kSide == KvSide::keys ? 2 : 4); ++i)
          beside |= uint32_t{scales[i]} << 8 * i;
      }
      uint32_t first, second;
      KvElements<kFormat>::template widen<kSide>(of, beside, d % 32 / 4, first, second);
      float* at = wide + line * head_dim + d;
      at[0] = low_bf16(first), at[1] = high_bf16(first);
      at[2] = low_bf16(second), at[3] = high_bf16(second);
    }
  }
}

/// Normal lines of many sizes, shifted ones, one number that is far larger, zeros, numbers on the
/// boundaries of codes, and at the end lines with numbers that are not finite or huge.
std::vector<float> make_lines(int head_dim) {
  std::vector<float> lines(static_cast<size_t>(kLines) * head_dim);
  for (int line = 0; line < kLines; ++line)
    for (int d = 0; d < head_dim; ++d) {
      float& x = lines[static_cast<size_t>(line) * head_dim + d];
      x = hash_normal(kSeed, static_cast<uint64_t>(line) * head_dim + d) *
          std::ldexp(1.0F, line % 40 - 20);
      if (line % 7 == 1) x += 3.0F;
      if (line % 7 == 2 && d == line % head_dim) x *= 500.0F;
      if (line % 7 == 3) x = 0.25F * static_cast<float>((line + d) % 29 - 14);
      if (line % 97 == 4) x = 0.0F;
      if (line == 500 && d == 3) x = std::numeric_limits<float>::quiet_NaN();
      if (line == 501 && d == head_dim - 1) x = std::numeric_limits<float>::infinity();
      if (line == 502) x *= 1e30F;
    }
  return lines;
}

bool same_number(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <KvFormat kFormat, KvSide kSide>
void check_lines(Tally& tally, int head_dim) {
  const auto lines = make_lines(head_dim);
  const int64_t codes = kv_code_bytes(kFormat, head_dim);
  const int64_t bytes = kv_line_bytes(kFormat, kSide, head_dim);
  const int64_t stride = (bytes + 15) / 16 * 16;
  auto* in = to_device(lines);
  auto* out = device_array<uint8_t>(kLines * stride);
  auto* read = device_array<float>(static_cast<int64_t>(lines.size()));
  auto* wide = device_array<float>(static_cast<int64_t>(lines.size()));
  lines_kernel<kFormat, kSide><<<kLines, 32>>>(in, head_dim, out, read, wide);
  must(cudaDeviceSynchronize(), "lines");
  const auto found = to_host(out, kLines * stride);
  const auto numbers = to_host(read, static_cast<int64_t>(lines.size()));
  const auto widened = to_host(wide, static_cast<int64_t>(lines.size()));
  int64_t different = 0, misread = 0, far = 0;
  for (int line = 0; line < kLines; ++line) {
    const std::span<const float> from(&lines[static_cast<size_t>(line) * head_dim],
                                      static_cast<size_t>(head_dim));
    if (kFormat == KvFormat::fp8 && line == 500) continue;  // the sign of NaN is free
    std::vector<std::byte> wanted(static_cast<size_t>(bytes));
    kv_store(kFormat, kSide, from, {.codes = wanted.data(), .scales = wanted.data() + codes});
    std::vector<float> kept(from.size());
    kv_keep(kFormat, kSide, from, kept.data());
    // Bytes of a line whose scale is NaN, as the norm of line 502 gives it, mean nothing.
    const bool sound = std::ranges::all_of(kept, [](float x) { return std::isfinite(x); });
    for (int64_t i = 0; sound && i < bytes; ++i)
      different += found[static_cast<size_t>(line * stride + i)] !=
                   static_cast<uint8_t>(wanted[static_cast<size_t>(i)]);
    for (int d = 0; d < head_dim; ++d) {
      const size_t at = static_cast<size_t>(line) * head_dim + d;
      misread += !same_number(numbers[at], kept[d]);
      if (kFormat != KvFormat::f32 && kFormat != KvFormat::bf16 && sound)
        far += !(std::fabs(widened[at] - kept[d]) <= 0x1p-8F * std::fabs(kept[d]));
    }
  }
  const std::string name = std::string(kv_traits(kFormat).name) +
                           (kSide == KvSide::keys ? ", keys of " : ", values of ") +
                           std::to_string(head_dim);
  tally.check(different == 0, (name + ": bytes that differ").c_str(), double(different));
  tally.check(misread == 0, (name + ": numbers misread").c_str(), double(misread));
  tally.check(far == 0, (name + ": operands of prompts beyond BF16").c_str(), double(far));
  for (void* p : {static_cast<void*>(in), static_cast<void*>(out), static_cast<void*>(read),
                  static_cast<void*>(wide)})
    cudaFree(p);
}

template <KvFormat kFormat>
void check_format(Tally& tally, std::initializer_list<int> head_dims) {
  for (const int head_dim : head_dims) {
    check_lines<kFormat, KvSide::keys>(tally, head_dim);
    check_lines<kFormat, KvSide::values>(tally, head_dim);
  }
}

}  // namespace

void check_kv_lines(Tally& tally) {
  check_format<KvFormat::bf16>(tally, {64, 256});
  check_format<KvFormat::fp8>(tally, {64, 256});
  check_format<KvFormat::turboquant_4bit_nc>(tally, {16, 32, 64, 128, 256});
  check_format<KvFormat::nvfp4>(tally, {16, 48, 64, 80, 128, 256});
}

}  // namespace nibble::checks
