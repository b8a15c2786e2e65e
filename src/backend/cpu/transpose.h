// Transposes of 16 rows in vector registers of 16 bytes, which every processor has. In an unnamed
// namespace, since kernels compile them with flags of their own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble::cpu {
namespace {

constexpr int kTransposedRows = 16;
constexpr int kLineBytes = 64;  // a cache line of each row: 16 words

using Words4 = uint32_t __attribute__((vector_size(16)));
using Bytes16 = uint8_t __attribute__((vector_size(16)));

template <typename Vector>
inline Vector load_vector(const std::byte* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

/// Four words of four rows, `stride` bytes apart, to word w at out + w * 64.
inline void transpose_4x4(const std::byte* rows, int64_t stride, std::byte* out) {
  const auto a = load_vector<Words4>(rows);
  const auto b = load_vector<Words4>(rows + stride);
  const auto c = load_vector<Words4>(rows + 2 * stride);
  const auto d = load_vector<Words4>(rows + 3 * stride);
  const Words4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Words4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Words4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Words4 columns[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                             __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                             __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                             __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int w = 0; w < 4; ++w)
    __builtin_memcpy(out + int64_t{w} * kLineBytes, &columns[w], sizeof columns[w]);
}

/// kLineBytes of 16 rows: word w of row i goes to out + w * 64 + i * 4.
inline void transpose_words(const std::byte* rows, int64_t stride, std::byte* out) {
  for (int at = 0; at < kLineBytes; at += 16)
    for (int row = 0; row < kTransposedRows; row += 4)
      transpose_4x4(rows + row * stride + at, stride, out + int64_t{at} * 16 + row * 4);
}

/// 16 bytes of 16 rows: four rounds of joining each vector with the one eight places on. Byte b of
/// row i goes to out + b * 16 + i.
inline void transpose_bytes(const std::byte* rows, int64_t stride, std::byte* out) {
  Bytes16 tile[kTransposedRows];
  for (int row = 0; row < kTransposedRows; ++row)
    tile[row] = load_vector<Bytes16>(rows + row * stride);
  for (int round = 0; round < 4; ++round) {
    Bytes16 next[kTransposedRows];
    for (int i = 0; i < kTransposedRows / 2; ++i) {
      next[2 * i] = __builtin_shufflevector(tile[i], tile[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                            5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(tile[i], tile[i + 8], 8, 24, 9, 25, 10, 26, 11, 27,
                                                12, 28, 13, 29, 14, 30, 15, 31);
    }
    __builtin_memcpy(tile, next, sizeof tile);
  }
  __builtin_memcpy(out, tile, sizeof tile);
}

}  // namespace
}  // namespace nibble::cpu
