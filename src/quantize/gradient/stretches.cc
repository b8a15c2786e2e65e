// Samples are taken in order, none is cut.
#include "quantize/gradient/stretches.h"

#include <random>

namespace nibble::gradient {

std::vector<Stretch> stretches_of(std::span<const int64_t> lengths, int64_t first_token,
                                  const StretchLimits& limits) {
  std::vector<Stretch> out;
  for (const int64_t length : lengths) {
    if (out.empty() || out.back().rows() + length > limits.rows ||
        std::ssize(out.back().samples) == limits.samples)
      out.push_back({first_token});
    Stretch& last = out.back();
    last.samples.push_back({.begin = last.samples.empty() ? 0 : last.rows(), .count = length});
    first_token += length;
  }
  return out;
}

std::vector<Stretch> stretches_of(const Stretch& stretch, const StretchLimits& limits) {
  std::vector<int64_t> lengths;
  for (const SampleRows& sample : stretch.samples) lengths.push_back(sample.count);
  return stretches_of(lengths, stretch.first_token, limits);
}

double label_random(uint64_t seed, int draw, int64_t token) {
  std::seed_seq seeds{seed, static_cast<uint64_t>(draw), static_cast<uint64_t>(token)};
  return static_cast<double>(std::mt19937_64(seeds)() >> 11) * 0x1p-53;
}

}  // namespace nibble::gradient
