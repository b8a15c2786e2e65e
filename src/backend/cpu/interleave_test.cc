// Interleaving against the plain loop over rows and columns, for whole and for partial tiles.
#include "backend/cpu/interleave.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nibble::cpu {
namespace {

constexpr std::byte kUntouched{0xEE};

struct Sizes {
  int64_t bytes;
  int count;
};

std::vector<Sizes> sizes() {
  std::vector<Sizes> all;
  for (const int64_t bytes : {1, 3, 4, 15, 16, 17, 63, 64, 65, 130, 256, 1027})
    for (const int count : {1, 5, 15, 16}) all.push_back({bytes, count});
  return all;
}

std::vector<std::byte> random_bytes(int64_t count) {
  std::mt19937 engine(static_cast<uint32_t>(count));
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(engine() & 0xFF);
  return bytes;
}

/// Byte `k` of lane `lane`, or zero where the file has none.
std::byte expected_byte(const std::vector<std::byte>& rows, const Sizes& s, int lane, int64_t k) {
  const bool there = lane < s.count && k < s.bytes;
  return there ? rows[static_cast<size_t>(lane * s.bytes + k)] : std::byte{0};
}

TEST(Interleave, Words) {
  for (const Sizes& s : sizes()) {
    const std::vector<std::byte> rows = random_bytes(s.bytes * s.count);
    const int64_t words = (s.bytes + 3) / 4;
    std::vector<std::byte> out(static_cast<size_t>(words * 64 + 64), kUntouched);
    interleave_words({.first = rows.data(), .bytes = s.bytes, .count = s.count}, out.data());
    for (int64_t k = 0; k < words * 4; ++k)
      for (int lane = 0; lane < 16; ++lane)
        ASSERT_EQ(out[static_cast<size_t>(k / 4 * 64 + lane * 4 + k % 4)],
                  expected_byte(rows, s, lane, k))
            << s.bytes << " bytes, " << s.count << " rows, byte " << k << " of lane " << lane;
    EXPECT_EQ(out[static_cast<size_t>(words * 64)], kUntouched) << s.bytes;
  }
}

TEST(Interleave, Bytes) {
  for (const Sizes& s : sizes()) {
    const std::vector<std::byte> rows = random_bytes(s.bytes * s.count);
    std::vector<std::byte> out(static_cast<size_t>(s.bytes * 16 + 16), kUntouched);
    interleave_bytes({.first = rows.data(), .bytes = s.bytes, .count = s.count}, out.data());
    for (int64_t k = 0; k < s.bytes; ++k)
      for (int lane = 0; lane < 16; ++lane)
        ASSERT_EQ(out[static_cast<size_t>(k * 16 + lane)], expected_byte(rows, s, lane, k))
            << s.bytes << " bytes, " << s.count << " rows, byte " << k << " of lane " << lane;
    EXPECT_EQ(out[static_cast<size_t>(s.bytes * 16)], kUntouched) << s.bytes;
  }
}

}  // namespace
}  // namespace nibble::cpu
