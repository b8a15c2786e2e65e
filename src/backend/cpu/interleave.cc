// Transposes 4 x 4 words or 16 x 16 bytes in vector registers of 16 bytes, which every processor
// has; what is no whole tile is copied to one that is filled up with zeros.
#include "backend/cpu/interleave.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace nibble::cpu {
namespace {

constexpr int kTileWords = 16;  // a cache line of each row
constexpr int kTileBytes = 16;

using Words4 = uint32_t __attribute__((vector_size(16)));
using Bytes16 = uint8_t __attribute__((vector_size(16)));

template <typename Vector>
Vector load_vector(const std::byte* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

/// Four words of four rows, `stride` bytes apart, to word w at out + w * 64.
void transpose_4x4(const std::byte* rows, int64_t stride, std::byte* out) {
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
    std::memcpy(out + int64_t{w} * kPanelRows * 4, &columns[w], sizeof columns[w]);
}

/// 16 words of 16 rows.
void transpose_words(const std::byte* rows, int64_t stride, std::byte* out) {
  for (int word = 0; word < kTileWords; word += 4)
    for (int row = 0; row < kPanelRows; row += 4)
      transpose_4x4(rows + row * stride + word * 4, stride,
                    out + (int64_t{word} * kPanelRows + row) * 4);
}

/// 16 bytes of 16 rows: four rounds of joining each vector with the one eight places on.
void transpose_bytes(const std::byte* rows, int64_t stride, std::byte* out) {
  Bytes16 tile[kPanelRows];
  for (int row = 0; row < kPanelRows; ++row) tile[row] = load_vector<Bytes16>(rows + row * stride);
  for (int round = 0; round < 4; ++round) {
    Bytes16 next[kPanelRows];
    for (int i = 0; i < kPanelRows / 2; ++i) {
      next[2 * i] = __builtin_shufflevector(tile[i], tile[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                            5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(tile[i], tile[i + 8], 8, 24, 9, 25, 10, 26, 11, 27,
                                                12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::copy(next, next + kPanelRows, tile);
  }
  std::memcpy(out, tile, sizeof tile);
}

/// `columns` bytes from `begin` on of all rows, in a tile of 16 rows of kBytes filled up with
/// zeros.
template <int kBytes>
struct PaddedTile {
  std::byte bytes[kPanelRows * kBytes] = {};
  PaddedTile(const StoredRows& rows, int64_t begin) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kBytes, rows.bytes - begin));
    for (int row = 0; row < rows.count; ++row)
      std::memcpy(bytes + row * kBytes, rows.first + row * rows.bytes + begin, count);
  }
};

}  // namespace

void interleave_words(const StoredRows& rows, std::byte* out) {
  constexpr int kWide = kTileWords * 4;
  int64_t begin = 0;
  for (; rows.count == kPanelRows && begin + kWide <= rows.bytes; begin += kWide)
    transpose_words(rows.first + begin, rows.bytes, out + begin * kPanelRows);
  for (; begin < rows.bytes; begin += kWide) {
    const PaddedTile<kWide> tile(rows, begin);
    std::byte transposed[kPanelRows * kWide];
    transpose_words(tile.bytes, kWide, transposed);
    const int64_t words = std::min<int64_t>(kTileWords, (rows.bytes - begin + 3) / 4);
    std::memcpy(out + begin * kPanelRows, transposed, static_cast<size_t>(words * kPanelRows * 4));
  }
}

void interleave_bytes(const StoredRows& rows, std::byte* out) {
  int64_t begin = 0;
  for (; rows.count == kPanelRows && begin + kTileBytes <= rows.bytes; begin += kTileBytes)
    transpose_bytes(rows.first + begin, rows.bytes, out + begin * kPanelRows);
  for (; begin < rows.bytes; begin += kTileBytes) {
    const PaddedTile<kTileBytes> tile(rows, begin);
    std::byte transposed[kPanelRows * kTileBytes];
    transpose_bytes(tile.bytes, kTileBytes, transposed);
    const int64_t columns = std::min<int64_t>(kTileBytes, rows.bytes - begin);
    std::memcpy(out + begin * kPanelRows, transposed, static_cast<size_t>(columns * kPanelRows));
  }
}

}  // namespace nibble::cpu
