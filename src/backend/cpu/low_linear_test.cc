// Products whose activations have few bits: how far they may be from exact ones, and that they hide
// nothing. That their bits are the same everywhere: linear_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/linear_cases.h"

namespace nibble::cpu {
namespace {

/// The largest |x| of the group of 16 around k.
double group_max(const Inputs& inputs, int64_t row, int64_t k) {
  double largest = 0.0;
  for (int64_t i = k / 16 * 16; i < k / 16 * 16 + 16; ++i)
    largest = std::max(largest,
                       std::fabs(double{inputs.x[static_cast<size_t>(row * inputs.stride + i)]}));
  return largest;
}

/// With integers an input is off by half a step of its group, max / 127 / 2; with BF16 by 2^-8 of
/// itself.
TEST(Linear, Int8ActivationsAreWithinTheirRounding) {
  RandomWeights random(8);
  for (const Case& c : cases()) {
    const LinearWeight weight = random.linear(c.rows, c.cols, c.format, c.plain);
    std::vector<float> w(static_cast<size_t>(c.rows * c.cols));
    dequantize_rows(weight, 0, c.rows, w.data());
    const Inputs inputs = random_inputs(random, 7, c.cols);
    const PackedLinear packed = PackedLinear::pack(weight).value();
    const KernelTable& kernels = *usable_kernels().front();
    const std::vector<float> y = multiply({kernels, 1, Activations::int8}, packed, inputs, 7);
    const bool exact = same_bits(y, multiply({kernels, 1}, packed, inputs, 7));
    EXPECT_EQ(exact, c.format == WeightFormat::plain);
    for (int64_t m = 0; m < 7; ++m)
      for (int64_t n = 0; n < c.rows; ++n) {
        double sum = 0.0;
        double bound = 0.0;
        for (int64_t k = 0; k < c.cols; ++k) {
          const double x = inputs.x[static_cast<size_t>(m * inputs.stride + k)];
          const double wk = w[static_cast<size_t>(n * c.cols + k)];
          const double step =
              c.format == WeightFormat::nvfp4 ? group_max(inputs, m, k) / 254 : std::fabs(x) / 256;
          sum += x * wk;
          bound += std::fabs(wk) * (step + 2e-6 * std::fabs(x));
        }
        ASSERT_NEAR(y[static_cast<size_t>(m * c.rows + n)], sum, bound)
            << "format " << static_cast<int>(c.format) << " [" << c.rows << ", " << c.cols << "]";
      }
  }
}

/// Rows that a product picks from inputs give what copies of them give, in every format, number of
/// rows and layout.
TEST(Linear, PickedRowsHaveTheBitsOfCopies) {
  RandomWeights random(10);
  constexpr int32_t kRows = 30;
  const Inputs inputs = random_inputs(random, kRows, 512);
  for (const WeightFormat format :
       {WeightFormat::nvfp4, WeightFormat::fp8_channel, WeightFormat::fp8_block}) {
    const LinearWeight weight = random.linear(48, 512, format);
    const PackedLinear layouts[] = {PackedLinear::pack(weight).value(),
                                    PackedLinear::over(weight).value()};
    for (const int32_t count : {1, 2, 3, 4, 5, 8, 9, 23}) {
      std::vector<int32_t> picked;
      Inputs copies{.x = {}, .stride = inputs.stride};
      for (int32_t i = 0; i < count; ++i) {
        picked.push_back((i * 11 + 7) % kRows);
        const float* row = inputs.x.data() + picked.back() * inputs.stride;
        copies.x.insert(copies.x.end(), row, row + inputs.stride);
      }
      for (const PackedLinear& packed : layouts)
        for (const KernelTable* kernels : usable_kernels()) {
          const Way way{*kernels, 1, Activations::int8};
          ASSERT_TRUE(same_bits(multiply(way, packed, inputs, count, picked.data()),
                                multiply(way, packed, copies, count)))
              << kernels->isa << " format " << static_cast<int>(format) << ", " << count << " rows";
        }
    }
  }
}

TEST(Linear, Int8ActivationsHideNoNaN) {
  RandomWeights random(9);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity()};
  for (const WeightFormat format : {WeightFormat::nvfp4, WeightFormat::fp8_channel}) {
    const PackedLinear packed = PackedLinear::pack(random.linear(24, 48, format)).value();
    for (const KernelTable* kernels : usable_kernels())
      for (const float value : bad) {
        Inputs inputs = random_inputs(random, 2, 48);
        inputs.x[static_cast<size_t>(inputs.stride + 21)] = value;
        const std::vector<float> y = multiply({*kernels, 1, Activations::int8}, packed, inputs, 2);
        for (size_t n = 0; n < 24; ++n) {
          EXPECT_TRUE(std::isfinite(y[n])) << kernels->isa;
          EXPECT_FALSE(std::isfinite(y[24 + n])) << kernels->isa;
        }
      }
  }
}

#if defined(__x86_64__)  // an emulator of another processor shows the list of its host
/// Linux lists the instructions of the processor.
TEST(Isa, AvxVnniIsUsableWhereTheProcessorHasIt) {
  std::ifstream facts("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(facts), {});
  const bool has = text.find(" avx_vnni ") != std::string::npos;
  EXPECT_EQ(select_kernels("avxvnni").ok(), has);
}
#endif

}  // namespace
}  // namespace nibble::cpu
