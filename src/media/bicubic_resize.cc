// Two passes, across rows and down columns, rounded to bytes after each: for output i of n out of m
// inputs, scale = m / n, centre = (i + 0.5) * scale; input j weighs cubic((j + 0.5 - centre) / s)
// with s = max(scale, 1) and Keys' cubic at a = -0.5, normalised to sum 1 and rounded to 22 bits
// behind the point (Pillow, src/libImaging/Resample.c). Sums are exact in 32 bits in any order.
#include "media/bicubic_resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace nibble {
namespace {

constexpr int kBits = 22;
constexpr double kSupport = 2;  // the cubic is 0 from here on
constexpr int kBlock = 16;      // rows that the first pass takes at once

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// The inputs and weights of each output of one direction.
struct Filter {
  struct Window {
    int begin = 0;  // first input
    int count = 0;
  };
  std::vector<Window> windows;   // [outputs]
  std::vector<int32_t> weights;  // [outputs, taps]
  int taps = 0;

  const int32_t* weights_of(int output) const {
    return weights.data() + static_cast<size_t>(output) * taps;
  }
};

Filter make_filter(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = kSupport * stretch;
  Filter filter;
  filter.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  filter.windows.resize(to);
  filter.weights.resize(static_cast<size_t>(to) * filter.taps);
  std::vector<double> exact(filter.taps);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const double inverse = 1.0 / stretch;
    const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int count = std::min(static_cast<int>(centre + support + 0.5), from) - begin;
    double sum = 0;
    for (int j = 0; j < count; ++j) {
      exact[j] = cubic((j + begin - centre + 0.5) * inverse);
      sum += exact[j];
    }
    filter.windows[i] = {begin, count};
    int32_t* weights = filter.weights.data() + static_cast<size_t>(i) * filter.taps;
    for (int j = 0; j < count; ++j) {
      const double weight = (sum != 0 ? exact[j] / sum : exact[j]) * (1 << kBits);
      weights[j] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
  return filter;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

/// out[i] = the sum over t < taps of weights[t] * in[t * stride + i], for `lanes` bytes side by
/// side.
template <int kLanes>
inline __attribute__((always_inline)) void filter_lanes(const uint8_t* in, size_t stride,
                                                        const int32_t* weights, int taps,
                                                        uint8_t* out) {
  int32_t sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = 1 << (kBits - 1);
  for (int t = 0; t < taps; ++t) {
    const uint8_t* row = in + t * stride;
    const int32_t weight = weights[t];
    for (int i = 0; i < kLanes; ++i) sums[i] += weight * row[i];
  }
  for (int i = 0; i < kLanes; ++i) out[i] = to_byte(sums[i]);
}

/// Down the columns: bytes [0, bytes) of one output row.
inline __attribute__((always_inline)) void filter_row(const uint8_t* in, size_t bytes,
                                                      const int32_t* weights, int taps,
                                                      uint8_t* out) {
  constexpr int kLanes = 32;
  size_t at = 0;
  for (; at + kLanes <= bytes; at += kLanes)
    filter_lanes<kLanes>(in + at, bytes, weights, taps, out + at);
  for (; at < bytes; ++at) filter_lanes<1>(in + at, bytes, weights, taps, out + at);
}

inline __attribute__((always_inline)) void filter_rows(const RgbImage& in, const Filter& filter,
                                                       RgbImage& out) {
  const size_t bytes = static_cast<size_t>(in.width) * 3;
  for (int y = 0; y < out.height; ++y) {
    const Filter::Window window = filter.windows[y];
    filter_row(in.pixels.data() + window.begin * bytes, bytes, filter.weights_of(y), window.count,
               out.pixels.data() + y * bytes);
  }
}

/// Across rows, kBlock of them at once: side by side in memory stand the same byte of each row, so
/// that the sums over neighbours are sums of whole vectors.
struct RowBlock {
  std::vector<uint8_t> from;  // [width of the input * 3, kBlock]
  std::vector<uint8_t> to;    // [width of the output * 3, kBlock]
};

inline __attribute__((always_inline)) void turn_in(const uint8_t* rows, size_t bytes, int count,
                                                   uint8_t* block) {
  for (int r = 0; r < count; ++r)
    for (size_t i = 0; i < bytes; ++i) block[i * kBlock + r] = rows[r * bytes + i];
}

inline __attribute__((always_inline)) void turn_out(const uint8_t* block, size_t bytes, int count,
                                                    uint8_t* rows) {
  for (int r = 0; r < count; ++r)
    for (size_t i = 0; i < bytes; ++i) rows[r * bytes + i] = block[i * kBlock + r];
}

inline __attribute__((always_inline)) void filter_columns(const RgbImage& in, const Filter& filter,
                                                          RgbImage& out, RowBlock& block) {
  const size_t in_bytes = static_cast<size_t>(in.width) * 3;
  const size_t out_bytes = static_cast<size_t>(out.width) * 3;
  constexpr size_t kPixel = 3 * kBlock;
  for (int y = 0; y < in.height; y += kBlock) {
    const int count = std::min(kBlock, in.height - y);
    turn_in(in.pixels.data() + y * in_bytes, in_bytes, count, block.from.data());
    for (int x = 0; x < out.width; ++x) {
      const Filter::Window window = filter.windows[x];
      filter_lanes<kPixel>(block.from.data() + window.begin * kPixel, kPixel, filter.weights_of(x),
                           window.count, block.to.data() + x * kPixel);
    }
    turn_out(block.to.data(), out_bytes, count, out.pixels.data() + y * out_bytes);
  }
}

void filter_rows_plain(const RgbImage& in, const Filter& filter, RgbImage& out) {
  filter_rows(in, filter, out);
}
void filter_columns_plain(const RgbImage& in, const Filter& filter, RgbImage& out,
                          RowBlock& block) {
  filter_columns(in, filter, out, block);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void filter_rows_avx2(const RgbImage& in, const Filter& filter,
                                                      RgbImage& out) {
  filter_rows(in, filter, out);
}
__attribute__((target("avx2"))) void filter_columns_avx2(const RgbImage& in, const Filter& filter,
                                                         RgbImage& out, RowBlock& block) {
  filter_columns(in, filter, out, block);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else
constexpr auto filter_rows_avx2 = filter_rows_plain;
constexpr auto filter_columns_avx2 = filter_columns_plain;
bool has_avx2() { return false; }
#endif

RgbImage blank(int width, int height) {
  RgbImage image{.width = width, .height = height};
  image.pixels.resize(static_cast<size_t>(width) * height * 3);
  return image;
}

RgbImage across(const RgbImage& image, int width) {
  RgbImage out = blank(width, image.height);
  RowBlock block;
  block.from.resize(static_cast<size_t>(image.width) * 3 * kBlock);
  block.to.resize(static_cast<size_t>(width) * 3 * kBlock);
  const Filter filter = make_filter(image.width, width);
  (has_avx2() ? filter_columns_avx2 : filter_columns_plain)(image, filter, out, block);
  return out;
}

RgbImage down(const RgbImage& image, int height) {
  RgbImage out = blank(image.width, height);
  const Filter filter = make_filter(image.height, height);
  (has_avx2() ? filter_rows_avx2 : filter_rows_plain)(image, filter, out);
  return out;
}

/// The order of the passes, in which rounding between them is seen, as Pillow 13 chooses it (found
/// by tools/oracle/media_test.py; up to version 12 rows come first always).
bool down_first(const ImageSize& from, const ImageSize& to) {
  const int fewer_rows = from.height - to.height, fewer_columns = from.width - to.width;
  return fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

}  // namespace

RgbImage resize_bicubic(const RgbImage& image, const ImageSize& to) {
  CHECK(to.width > 0 && to.height > 0, to.width, " x ", to.height);
  CHECK(image.pixels.size() == static_cast<size_t>(image.width) * image.height * 3,
        image.pixels.size());
  if (to.width == image.width && to.height == image.height) return image;
  if (to.width == image.width) return down(image, to.height);
  if (to.height == image.height) return across(image, to.width);
  if (down_first({image.width, image.height}, to)) return across(down(image, to.height), to.width);
  return down(across(image, to.width), to.height);
}

}  // namespace nibble
