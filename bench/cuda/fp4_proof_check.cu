// The instruction for 4-bit codes on fragments: all pairs of codes, all scale bytes and random
// numbers, with every pair of lanes that can give scales.
#include <bit>
#include <random>

#include "backend/cuda/ops/fp4/fp4_proof.h"
#include "backend/cuda/ptx/fp4_fragments.h"
#include "fp4_check.h"

namespace nibble::bench {
namespace {

using namespace nibble::cuda;

constexpr int kNumbers = kFp4LeftThreads * kFp4RightThreads;

void on_host(int number, Fp4Warp& warp) {
  const Fp4Threads threads{number / kFp4RightThreads, number % kFp4RightThreads};
  const Fp4Operands operands{.left = [&](int lane, int word) { return warp.left[word][lane]; },
                             .right = [&](int lane, int word) { return warp.right[word][lane]; },
                             .left_scale = [&](int lane) { return warp.left_scale[lane]; },
                             .right_scale = [&](int lane) { return warp.right_scale[lane]; },
                             .arithmetic = Fp4Arithmetic{}};
  for (int lane = 0; lane < 32; ++lane) {
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = warp.sums[i][lane];
    fp4_multiply(lane, threads, operands, d);
    for (int i = 0; i < 4; ++i) warp.sums[i][lane] = d[i];
  }
}

/// `scale`: gives the scale bytes. Codes are random; sums begin at small integers.
template <typename Scale>
std::vector<Fp4Warp> warps_of(int count, uint32_t seed, const Scale& scale) {
  std::mt19937 random(seed);
  std::vector<Fp4Warp> warps(static_cast<size_t>(count));
  for (int w = 0; w < count; ++w) {
    Fp4Warp& warp = warps[static_cast<size_t>(w)];
    for (auto& words : warp.left)
      for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    for (auto& words : warp.right)
      for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    for (int lane = 0; lane < 32; ++lane) {
      warp.left_scale[lane] = warp.right_scale[lane] = 0;
      for (int byte = 0; byte < 4; ++byte) {
        warp.left_scale[lane] |= scale(w, lane, byte, 0, random) << (8 * byte);
        warp.right_scale[lane] |= scale(w, lane, byte, 1, random) << (8 * byte);
      }
    }
    for (auto& sums : warp.sums)
      for (float& sum : sums) sum = static_cast<float>(static_cast<int>(random() % 64) - 32);
  }
  return warps;
}

/// exact: bits must be the host's. rounded: within 2^-10 of the largest sum, since the manual does
/// not say how the machine rounds; in software bits all the same.
enum class Sums : uint8_t { exact, rounded };

void compare(Tally& tally, const char* name, std::vector<Fp4Warp> warps, Sums sums,
             const Launcher& launcher) {
  Fp4Warp* device = to_device(warps);
  multiply_fragments(device, static_cast<int32_t>(warps.size()), launcher);
  must(cudaDeviceSynchronize(), name);
  const auto found = to_host(device, static_cast<int64_t>(warps.size()));
  cudaFree(device);
  const bool bits = sums == Sums::exact || launcher.card.fp4 == cuda::Architecture::Fp4::software;
  int64_t different = 0;
  double worst = 0.0;
  double largest = 1e-30;
  for (size_t w = 0; w < warps.size(); ++w) {
    on_host(static_cast<int>(w) % kNumbers, warps[w]);
    for (int i = 0; i < 4; ++i)
      for (int lane = 0; lane < 32; ++lane) {
        const float want = warps[w].sums[i][lane];
        const float got = found[w].sums[i][lane];
        different += std::isnan(want)
                         ? !std::isnan(got)
                         : std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(got);
        if (std::isnan(want)) continue;
        const double error = std::fabs(double{got} - want);
        worst = error <= worst ? worst : error;  // NaN stays
        largest = std::max(largest, std::fabs(double{want}));
      }
  }
  const double value = bits ? static_cast<double>(different) : worst / largest;
  tally.check(bits ? different == 0 : value < 0x1p-10, name, value);
}

}  // namespace

void check_instruction(Tally& tally, const Launcher& launcher) {
  using Random = std::mt19937;
  const auto one = [](int, int, int, int, Random&) { return 0x38U; };
  auto pairs = warps_of(16 * 16 * kNumbers, 1, one);
  for (size_t w = 0; w < pairs.size(); ++w) {  // all numbers of a side are one code
    const auto pair = static_cast<uint32_t>(w / kNumbers);
    for (auto& words : pairs[w].left)
      std::fill(std::begin(words), std::end(words), pair / 16 * 0x11111111U);
    for (auto& words : pairs[w].right)
      std::fill(std::begin(words), std::end(words), pair % 16 * 0x11111111U);
  }
  compare(tally, "instruction: all pairs of codes", pairs, Sums::exact, launcher);
  compare(tally, "instruction: random codes, integers", warps_of(64 * kNumbers, 2, one),
          Sums::exact, launcher);
  const auto each = [](int w, int, int byte, int side, Random&) {  // of one group alone
    const auto at = static_cast<uint32_t>(w / kNumbers);
    if (byte != static_cast<int>(at / 256 % 4)) return 0U;
    return side == static_cast<int>(at / 1024) ? at % 256 : 0x38U;
  };
  auto scales = warps_of(2048 * kNumbers, 3, each);
  for (Fp4Warp& warp : scales)
    for (auto& sums : warp.sums) std::fill(std::begin(sums), std::end(sums), 0.0F);
  compare(tally, "instruction: all scale bytes", scales, Sums::exact, launcher);
  const auto powers = [](int, int, int, int, Random& random) {
    return 0x28U + static_cast<uint32_t>(random()) % 5 * 8;
  };
  compare(tally, "instruction: scales that are powers of two", warps_of(64 * kNumbers, 4, powers),
          Sums::exact, launcher);
  const auto any = [](int, int, int, int, Random& random) {
    return static_cast<uint32_t>(random()) % 0x7F;
  };
  compare(tally, "instruction: random scales", warps_of(256 * kNumbers, 5, any), Sums::rounded,
          launcher);
}

}  // namespace nibble::bench
