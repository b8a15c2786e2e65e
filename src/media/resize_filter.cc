// Output i of n is a weighted sum of m inputs: with scale = m / n and centre = (i + 0.5) * scale,
// input j weighs cubic((j + 0.5 - centre) / s) with s = max(scale, 1) and Keys' cubic at a = -0.5,
// normalised to sum 1. Pillow rounds weights to 22 bits behind the point
// (src/libImaging/Resample.c), torch to as many as let the largest fit into 16 bits
// (aten/src/ATen/native/UpSample*.h).
#include "media/resize_filter.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr int kPillowBits = 22;
constexpr double kSupport = 2;  // the cubic is 0 from here on

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

int torch_bits(double largest) {
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) ++bits;
  return bits;
}

}  // namespace

ResizeFilter make_resize_filter(int from, int to, ResizeArithmetic arithmetic) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0), inverse = 1.0 / stretch;
  const double support = kSupport * stretch;
  ResizeFilter filter;
  filter.outputs.resize(to);
  std::vector<double> exact;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    ResizeFilter::Output& output = filter.outputs[i];
    output.begin = std::max(static_cast<int>(centre - support + 0.5), 0);
    output.count = std::min(static_cast<int>(centre + support + 0.5), from) - output.begin;
    output.first = exact.size();
    double sum = 0;
    for (int j = 0; j < output.count; ++j) {
      exact.push_back(cubic((j + output.begin - centre + 0.5) * inverse));
      sum += exact.back();
    }
    for (size_t j = output.first; j < exact.size(); ++j) exact[j] = sum != 0 ? exact[j] / sum : 0;
  }
  const double largest = *std::max_element(exact.begin(), exact.end());
  filter.bits = arithmetic == ResizeArithmetic::pillow ? kPillowBits : torch_bits(largest);
  filter.weights.reserve(exact.size());
  for (const double weight : exact) {
    const double scaled = weight * (1 << filter.bits);
    filter.weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return filter;
}

}  // namespace nibble
