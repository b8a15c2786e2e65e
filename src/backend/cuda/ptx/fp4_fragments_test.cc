// The places of operands against the formulas of the PTX manual, for every lane, register, code and
// scale byte, and the instruction in software against products in double. No card takes part.
#include "backend/cuda/ptx/fp4_fragments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <tuple>

namespace nibble::cuda {
namespace {

/// The place of element a_i, b_i or c_i of a lane in its matrix, as the manual writes it.
struct At {
  int row;
  int col;
};
At manual_a(int lane, int i) {
  const int group_id = lane >> 2;
  const int thread_in_group = lane % 4;
  const bool upper = (0 <= i && i < 8) || (16 <= i && i < 24);
  return {upper ? group_id : group_id + 8,
          i < 16 ? thread_in_group * 8 + (i & 0x7) : thread_in_group * 8 + (i & 0x7) + 32};
}
At manual_b(int lane, int i) {
  const int group_id = lane >> 2;
  const int thread_in_group = lane % 4;
  return {i < 8 ? thread_in_group * 8 + (i & 0x7) : thread_in_group * 8 + (i & 0x7) + 32, group_id};
}
At manual_c(int lane, int i) {
  const int group_id = lane >> 2;
  const int thread_in_group = lane % 4;
  return {i < 2 ? group_id : group_id + 8, thread_in_group * 2 + (i & 0x1)};
}
/// The row of a whose scales a lane gives, or -1: with thread-id-a 0 the lower, with 1 the upper
/// two lanes of each four give the rows of their group and those 8 further on.
int manual_left_scale_row(int lane, int thread_id_a) {
  const int within = lane % 4 - 2 * thread_id_a;
  return within == 0 || within == 1 ? (lane >> 2) + 8 * within : -1;
}
/// The column of b, likewise: one lane of each four.
int manual_right_scale_column(int lane, int thread_id_b) {
  return lane % 4 == thread_id_b ? lane >> 2 : -1;
}

TEST(Fp4Fragments, EveryElementLiesWhereTheManualSays) {
  std::set<std::tuple<int, int, int>> left;
  std::set<std::tuple<int, int, int>> right;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 32; ++i) {  // a_i is nibble i % 8 of register i / 8
      const At at = manual_a(lane, i);
      const Fp4Place place = fp4_left_place(at.row, at.col);
      EXPECT_EQ(std::tuple(place.lane, place.word, place.nibble), std::tuple(lane, i / 8, i % 8));
      left.insert({place.lane, place.word, place.nibble});
    }
    for (int i = 0; i < 16; ++i) {
      const At at = manual_b(lane, i);
      const Fp4Place place = fp4_right_place(at.row, at.col);
      EXPECT_EQ(std::tuple(place.lane, place.word, place.nibble), std::tuple(lane, i / 8, i % 8));
      right.insert({place.lane, place.word, place.nibble});
    }
    for (int i = 0; i < 4; ++i) {
      const At at = manual_c(lane, i);
      const Fp4SumPlace place = fp4_sum_place(at.row, at.col);
      EXPECT_EQ(std::tuple(place.lane, place.number), std::tuple(lane, i));
    }
  }
  EXPECT_EQ(left.size(), size_t{kFp4Rows * kFp4Depth});
  EXPECT_EQ(right.size(), size_t{kFp4Columns * kFp4Depth});
}

/// Some places of the manual's figures, as they are drawn there.
TEST(Fp4Fragments, FiguresOfTheManual) {
  const auto left = [](int row, int k) {
    const Fp4Place place = fp4_left_place(row, k);
    return std::tuple(place.lane, 8 * place.word + place.nibble);
  };
  EXPECT_EQ(left(0, 0), std::tuple(0, 0));
  EXPECT_EQ(left(0, 31), std::tuple(3, 7));
  EXPECT_EQ(left(1, 8), std::tuple(5, 0));
  EXPECT_EQ(left(8, 0), std::tuple(0, 8));
  EXPECT_EQ(left(0, 32), std::tuple(0, 16));
  EXPECT_EQ(left(15, 63), std::tuple(31, 31));
  const Fp4Place right = fp4_right_place(63, 7);
  EXPECT_EQ(std::tuple(right.lane, right.word, right.nibble), std::tuple(31, 1, 7));
}

TEST(Fp4Fragments, EveryScaleByteIsGivenByTheLanesThatAreNamed) {
  for (int lane = 0; lane < 32; ++lane)
    for (int group = 0; group < 4; ++group) {
      for (int thread_id = 0; thread_id < kFp4LeftThreads; ++thread_id) {
        const int row = manual_left_scale_row(lane, thread_id);
        if (row < 0) continue;
        const Fp4ScalePlace place = fp4_left_scale_place(row, group, thread_id);
        EXPECT_EQ(std::tuple(place.lane, place.byte), std::tuple(lane, group));
      }
      for (int thread_id = 0; thread_id < kFp4RightThreads; ++thread_id) {
        const int column = manual_right_scale_column(lane, thread_id);
        if (column < 0) continue;
        const Fp4ScalePlace place = fp4_right_scale_place(group, column, thread_id);
        EXPECT_EQ(std::tuple(place.lane, place.byte), std::tuple(lane, group));
      }
    }
}

constexpr double kE2m1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};
double e4m3(uint32_t byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15U);
  const double fraction = byte & 7U;
  if ((byte & 0x7FU) == 0x7FU) return std::nan("");
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8.0 + fraction, exponent - 10);
}

TEST(Fp4Fragments, EveryScaleAndEveryPairOfCodes) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const float value = fp4_scale_value(byte);
    if ((byte & 0x7FU) == 0x7FU)
      EXPECT_TRUE(std::isnan(value));
    else
      EXPECT_EQ(value, e4m3(byte)) << byte;
  }
  for (uint32_t a = 0; a < 16; ++a)
    for (uint32_t b = 0; b < 16; ++b)
      for (int place = 0; place < 8; ++place) {
        const Fp4Bytes left = fp4_bytes(a << (4 * place));
        const Fp4Bytes right = fp4_bytes(b << (4 * place));
        EXPECT_EQ(fp4_dot(left.of[place / 4], right.of[place / 4], 0), 4.0 * kE2m1[a] * kE2m1[b]);
        EXPECT_EQ(fp4_dot(left.of[1 - place / 4], right.of[1 - place / 4], 5), 5);
      }
}

/// The operands of one instruction as matrices.
struct Matrices {
  uint32_t a[16][64];          // codes
  uint32_t b[64][8];           // codes
  uint32_t left_scale[16][4];  // bytes
  uint32_t right_scale[4][8];  // bytes
  float d[16][8];
};
/// The same as the registers of a warp. Scale registers of lanes that are not named hold NaN.
struct Registers {
  uint32_t a[32][4] = {};
  uint32_t b[32][2] = {};
  uint32_t left_scale[32];
  uint32_t right_scale[32];
  float d[32][4];
};

Registers registers_of(const Matrices& from, int left_thread, int right_thread) {
  Registers to;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 32; ++i) {
      const At at = manual_a(lane, i);
      to.a[lane][i / 8] |= from.a[at.row][at.col] << (4 * (i % 8));
    }
    for (int i = 0; i < 16; ++i) {
      const At at = manual_b(lane, i);
      to.b[lane][i / 8] |= from.b[at.row][at.col] << (4 * (i % 8));
    }
    for (int i = 0; i < 4; ++i)
      to.d[lane][i] = from.d[manual_c(lane, i).row][manual_c(lane, i).col];
    to.left_scale[lane] = to.right_scale[lane] = 0x7F7F7F7FU;
    const int row = manual_left_scale_row(lane, left_thread);
    const int column = manual_right_scale_column(lane, right_thread);
    if (row >= 0) to.left_scale[lane] = 0;
    if (column >= 0) to.right_scale[lane] = 0;
    for (int group = 0; group < 4; ++group) {
      if (row >= 0) to.left_scale[lane] |= from.left_scale[row][group] << (8 * group);
      if (column >= 0) to.right_scale[lane] |= from.right_scale[group][column] << (8 * group);
    }
  }
  return to;
}

void multiply(Registers& warp, Fp4Threads threads) {
  const Fp4Operands operands{.left = [&](int lane, int word) { return warp.a[lane][word]; },
                             .right = [&](int lane, int word) { return warp.b[lane][word]; },
                             .left_scale = [&](int lane) { return warp.left_scale[lane]; },
                             .right_scale = [&](int lane) { return warp.right_scale[lane]; },
                             .arithmetic = Fp4Arithmetic{}};
  for (int lane = 0; lane < 32; ++lane) fp4_multiply(lane, threads, operands, warp.d[lane]);
}

/// The scales of `span` binary orders of magnitude around 1: 0 makes all sums exact.
Matrices random_matrices(uint32_t seed, uint32_t span) {
  std::mt19937 random(seed);
  Matrices m;
  const auto code = [&] { return static_cast<uint32_t>(random()) & 15U; };
  const auto scale = [&] {
    return span == 0 ? 0x38U : 0x20U + static_cast<uint32_t>(random()) % span;
  };
  for (auto& row : m.a)
    for (uint32_t& x : row) x = code();
  for (auto& row : m.b)
    for (uint32_t& x : row) x = code();
  for (auto& row : m.left_scale)
    for (uint32_t& x : row) x = scale();
  for (auto& row : m.right_scale)
    for (uint32_t& x : row) x = scale();
  for (auto& row : m.d)
    for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 64)) - 32.0F;
  return m;
}

/// Returns the largest |difference| to the product in double, relative to the sum of magnitudes.
double largest_error(const Matrices& m, const Registers& out) {
  double worst = 0.0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const At at = manual_c(lane, i);
      double sum = m.d[at.row][at.col];
      double size = std::fabs(sum);
      for (int k = 0; k < 64; ++k) {
        const double product = kE2m1[m.a[at.row][k]] * e4m3(m.left_scale[at.row][k / 16]) *
                               kE2m1[m.b[k][at.col]] * e4m3(m.right_scale[k / 16][at.col]);
        sum += product;
        size += std::fabs(product);
      }
      const double error = std::fabs(out.d[lane][i] - sum) / size;
      worst = error >= worst ? error : std::isnan(error) ? INFINITY : worst;
    }
  return worst;
}

TEST(Fp4Fragments, SoftwareMultipliesAsTheManualSays) {
  for (int left = 0; left < kFp4LeftThreads; ++left)
    for (int right = 0; right < kFp4RightThreads; ++right)
      for (uint32_t seed = 0; seed < 20; ++seed) {
        const uint32_t span = seed < 10 ? 0U : 0x40U;
        const Matrices m = random_matrices(seed, span);
        Registers warp = registers_of(m, left, right);
        multiply(warp, {left, right});
        EXPECT_LE(largest_error(m, warp), span == 0 ? 0.0 : 0x1p-22) << "seed " << seed;
      }
}

/// Each mistake in a layout changes a product of random numbers.
TEST(Fp4Fragments, MistakesInALayoutAreSeen) {
  const Matrices m = random_matrices(3, 0x40U);
  const auto error_of = [&](const auto& spoil) {
    Registers warp = registers_of(m, 0, 0);
    spoil(warp);
    multiply(warp, {0, 0});
    return largest_error(m, warp);
  };
  EXPECT_LT(error_of([](Registers&) {}), 0x1p-22);
  EXPECT_GT(error_of([](Registers& w) {
              for (auto& lane : w.a)
                lane[1] = (lane[1] & 0xF0F0F0F0U) >> 4 | (lane[1] & 0x0F0F0F0FU) << 4;
            }),
            1e-3);
  EXPECT_GT(error_of([](Registers& w) {
              for (auto& lane : w.b) std::swap(lane[0], lane[1]);
            }),
            1e-3);
  EXPECT_GT(error_of([](Registers& w) {
              for (auto& lane : w.a) std::swap(lane[1], lane[2]);
            }),
            1e-3);
  EXPECT_GT(error_of([](Registers& w) {
              for (uint32_t& scale : w.left_scale) scale = std::rotl(scale, 8);
            }),
            1e-3);
  EXPECT_GT(error_of([](Registers& w) { std::swap(w.left_scale[0], w.left_scale[1]); }), 1e-3);
  EXPECT_GT(error_of([](Registers& w) { std::swap(w.right_scale[0], w.right_scale[4]); }), 1e-3);
}

TEST(Fp4Fragments, AScaleOfNanSpoilsItsRowOrColumnAlone) {
  Matrices m = random_matrices(4, 0);
  m.left_scale[9][2] = 0x7F;
  m.right_scale[1][5] = 0x7F;
  Registers warp = registers_of(m, 1, 2);
  multiply(warp, {1, 2});
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const At at = manual_c(lane, i);
      EXPECT_EQ(std::isnan(warp.d[lane][i]), at.row == 9 || at.col == 5)
          << at.row << ", " << at.col;
    }
}

}  // namespace
}  // namespace nibble::cuda
