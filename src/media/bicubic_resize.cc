// Two passes, across rows and down columns, rounded to bytes after each. Sums of bytes times
// weights are exact in 32 bits, so their order is free: both passes add whole vectors of bytes.
#include "media/bicubic_resize.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "media/resize_filter.h"

// Inlined into functions of another instruction set.
#define NIBBLE_INLINE inline __attribute__((always_inline))

namespace nibble {
namespace {

constexpr int kBlock = 16;  // rows that the pass across them takes at once

/// out[i] = the sum over t of weight[t] * in[t * stride + i], for kLanes bytes side by side.
template <int kLanes>
NIBBLE_INLINE void filter_lanes(const uint8_t* in, size_t stride, const ResizeFilter& filter,
                                const ResizeFilter::Output& output, uint8_t* out) {
  const int32_t* weights = filter.weights_of(output);
  const int taps = output.count, bits = filter.bits;  // copies: `out` may alias anything
  int32_t sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = 1 << (bits - 1);
  for (int t = 0; t < taps; ++t, in += stride) {
    const int32_t weight = weights[t];
    for (int i = 0; i < kLanes; ++i) sums[i] += weight * in[i];
  }
  for (int i = 0; i < kLanes; ++i)
    out[i] = static_cast<uint8_t>(std::clamp(sums[i] >> bits, 0, 255));
}

NIBBLE_INLINE void filter_down(const RgbImage& in, const ResizeFilter& filter, RgbImage& out) {
  constexpr int kLanes = 32;
  const size_t bytes = size_t{3} * in.width;
  for (int y = 0; y < out.height; ++y) {
    const ResizeFilter::Output& output = filter.outputs[y];
    const uint8_t* from = in.pixels.data() + output.begin * bytes;
    uint8_t* to = out.pixels.data() + y * bytes;
    size_t at = 0;
    for (; at + kLanes <= bytes; at += kLanes)
      filter_lanes<kLanes>(from + at, bytes, filter, output, to + at);
    for (; at < bytes; ++at) filter_lanes<1>(from + at, bytes, filter, output, to + at);
  }
}

using Vector = uint8_t __attribute__((vector_size(kBlock)));

/// a0 b0 a1 b1 ... of the first halves, and of the second halves.
NIBBLE_INLINE Vector zip_first(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
NIBBLE_INLINE Vector zip_second(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

/// Transposes kBlock x kBlock bytes: four rounds of zipping vector i with vector i + 8.
NIBBLE_INLINE void transpose(const uint8_t* in, size_t in_stride, uint8_t* out, size_t out_stride) {
  Vector rows[kBlock], zipped[kBlock];
  for (int r = 0; r < kBlock; ++r) std::memcpy(&rows[r], in + r * in_stride, kBlock);
  for (int round = 0; round < 4; ++round) {
    for (int r = 0; r < kBlock / 2; ++r) {
      zipped[2 * r] = zip_first(rows[r], rows[r + kBlock / 2]);
      zipped[2 * r + 1] = zip_second(rows[r], rows[r + kBlock / 2]);
    }
    for (int r = 0; r < kBlock; ++r) rows[r] = zipped[r];
  }
  for (int r = 0; r < kBlock; ++r) std::memcpy(out + r * out_stride, &rows[r], kBlock);
}

/// `count` rows of `bytes` bytes to a block, in which the same byte of all rows stand side by side.
NIBBLE_INLINE void interleave(const uint8_t* rows, size_t bytes, int count, uint8_t* block) {
  size_t i = 0;
  for (; count == kBlock && i + kBlock <= bytes; i += kBlock)
    transpose(rows + i, bytes, block + i * kBlock, kBlock);
  for (; i < bytes; ++i)
    for (int r = 0; r < count; ++r) block[i * kBlock + r] = rows[r * bytes + i];
}

NIBBLE_INLINE void separate(const uint8_t* block, size_t bytes, int count, uint8_t* rows) {
  size_t i = 0;
  for (; count == kBlock && i + kBlock <= bytes; i += kBlock)
    transpose(block + i * kBlock, kBlock, rows + i, bytes);
  for (; i < bytes; ++i)
    for (int r = 0; r < count; ++r) rows[r * bytes + i] = block[i * kBlock + r];
}

struct RowBlock {
  std::vector<uint8_t> from;  // [width of the input * 3, kBlock]
  std::vector<uint8_t> to;    // [width of the output * 3, kBlock]
};

NIBBLE_INLINE void filter_across(const RgbImage& in, const ResizeFilter& filter, RgbImage& out,
                                 RowBlock& block) {
  constexpr size_t kPixel = 3 * kBlock;
  const size_t in_bytes = size_t{3} * in.width, out_bytes = size_t{3} * out.width;
  for (int y = 0; y < in.height; y += kBlock) {
    const int count = std::min(kBlock, in.height - y);
    interleave(in.pixels.data() + y * in_bytes, in_bytes, count, block.from.data());
    for (int x = 0; x < out.width; ++x) {
      const ResizeFilter::Output& output = filter.outputs[x];
      filter_lanes<kPixel>(block.from.data() + output.begin * kPixel, kPixel, filter, output,
                           block.to.data() + x * kPixel);
    }
    separate(block.to.data(), out_bytes, count, out.pixels.data() + y * out_bytes);
  }
}

using DownPass = void (*)(const RgbImage&, const ResizeFilter&, RgbImage&);
using AcrossPass = void (*)(const RgbImage&, const ResizeFilter&, RgbImage&, RowBlock&);
struct Passes {
  DownPass down;
  AcrossPass across;
};

void down_plain(const RgbImage& in, const ResizeFilter& filter, RgbImage& out) {
  filter_down(in, filter, out);
}
void across_plain(const RgbImage& in, const ResizeFilter& filter, RgbImage& out, RowBlock& block) {
  filter_across(in, filter, out, block);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void down_avx2(const RgbImage& in, const ResizeFilter& filter,
                                               RgbImage& out) {
  filter_down(in, filter, out);
}
__attribute__((target("avx2"))) void across_avx2(const RgbImage& in, const ResizeFilter& filter,
                                                 RgbImage& out, RowBlock& block) {
  filter_across(in, filter, out, block);
}
Passes passes() {
  if (__builtin_cpu_supports("avx2")) return {down_avx2, across_avx2};
  return {down_plain, across_plain};
}
#else
Passes passes() { return {down_plain, across_plain}; }
#endif

RgbImage across(const RgbImage& image, int width, ResizeArithmetic arithmetic) {
  if (width == image.width) return image;
  RgbImage out = make_image({.width = width, .height = image.height});
  RowBlock block;
  block.from.resize(size_t{3} * kBlock * image.width);
  block.to.resize(size_t{3} * kBlock * width);
  passes().across(image, make_resize_filter(image.width, width, arithmetic), out, block);
  return out;
}

RgbImage down(const RgbImage& image, int height, ResizeArithmetic arithmetic) {
  if (height == image.height) return image;
  RgbImage out = make_image({.width = image.width, .height = height});
  passes().down(image, make_resize_filter(image.height, height, arithmetic), out);
  return out;
}

/// The order of the passes, in which rounding between them is seen, as Pillow 13 chooses it (found
/// by tools/oracle/media_test.py; up to version 12 the pass across rows always comes first).
bool down_first(const ImageSize& from, const ImageSize& to) {
  const int fewer_rows = from.height - to.height, fewer_columns = from.width - to.width;
  return fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

}  // namespace

RgbImage resize_bicubic(const RgbImage& image, const ImageSize& to, ResizeArithmetic arithmetic) {
  CHECK(to.width > 0 && to.height > 0, to.width, " x ", to.height);
  CHECK(image.pixels.size() == size_t{3} * image.width * image.height, image.pixels.size());
  const bool rows_first =
      arithmetic == ResizeArithmetic::pillow && down_first({image.width, image.height}, to);
  if (rows_first) return across(down(image, to.height, arithmetic), to.width, arithmetic);
  return down(across(image, to.width, arithmetic), to.height, arithmetic);
}

}  // namespace nibble
