// The packed product against a double loop over dequantized rows, and its promise: the bits of an
// output depend on nothing but its own row and weights.
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/isa.h"
#include "backend/cpu/linear_cases.h"
#include "tensor/activation_codec.h"

namespace nibble::cpu {
namespace {

TEST(Linear, AgreesWithDoubleLoopInEveryFormat) {
  RandomWeights random(1);
  for (const Case& c : cases()) {
    const LinearWeight weight = random.linear(c.rows, c.cols, c.format, c.plain);
    std::vector<float> w(static_cast<size_t>(c.rows * c.cols));
    dequantize_rows(weight, 0, c.rows, w.data());
    const Inputs inputs = random_inputs(random, 7, c.cols);
    for (const KernelTable* kernels : usable_kernels()) {
      const PackedLinear packed = PackedLinear::pack(weight).value();
      const std::vector<float> y = multiply({*kernels, 1}, packed, inputs, 7);
      for (int64_t m = 0; m < 7; ++m)
        for (int64_t n = 0; n < c.rows; ++n) {
          double sum = 0.0;
          double magnitude = 0.0;
          for (int64_t k = 0; k < c.cols; ++k) {
            const double term = double{w[static_cast<size_t>(n * c.cols + k)]} *
                                inputs.x[static_cast<size_t>(m * inputs.stride + k)];
            sum += term;
            magnitude += std::fabs(term);
          }
          ASSERT_NEAR(y[static_cast<size_t>(m * c.rows + n)], sum, 1e-6 * magnitude)
              << kernels->isa << " format " << static_cast<int>(c.format) << " [" << c.rows << ", "
              << c.cols << "] at " << m << ", " << n;
        }
    }
  }
}

class LinearBits : public testing::TestWithParam<Activations> {};
INSTANTIATE_TEST_SUITE_P(Modes, LinearBits, testing::Values(Activations::f32, Activations::int8),
                         [](const auto& test) {
                           return std::string(activations_name(test.param));
                         });

TEST_P(LinearBits, DoNotDependOnRowsThreadsOrInstructionSet) {
  RandomWeights random(2);
  constexpr int64_t kRows = 107;  // more than one chunk of the blocked product, and an odd rest
  for (const Case& c : cases()) {
    const LinearWeight weight = random.linear(c.rows, c.cols, c.format, c.plain);
    const Inputs inputs = random_inputs(random, kRows, c.cols);
    std::vector<float> expected;
    for (const KernelTable* kernels : usable_kernels()) {
      const PackedLinear packed = PackedLinear::pack(weight).value();
      const std::vector<float> all = multiply({*kernels, 1, GetParam()}, packed, inputs, kRows);
      if (expected.empty()) expected = all;
      ASSERT_TRUE(same_bits(all, expected)) << kernels->isa;
      if (kernels == usable_kernels().front()) {
        ASSERT_TRUE(
            same_bits(multiply({*kernels, 3, GetParam()}, packed, inputs, kRows), expected));
      }
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13}) {
        const std::vector<float> some = multiply({*kernels, 2, GetParam()}, packed, inputs, rows);
        const std::vector<float> part(expected.begin(), expected.begin() + rows * c.rows);
        ASSERT_TRUE(same_bits(some, part)) << kernels->isa << " rows " << rows << " format "
                                           << static_cast<int>(c.format) << " K " << c.cols;
      }
    }
  }
}

TEST(Linear, SeveralCallsAndAddition) {
  RandomWeights random(3);
  const KernelTable& kernels = *usable_kernels().front();
  const PackedLinear wide = PackedLinear::pack(random.linear(300, 64, WeightFormat::plain)).value();
  const PackedLinear narrow = PackedLinear::pack(random.linear(5, 64, WeightFormat::nvfp4)).value();
  const Inputs inputs = random_inputs(random, 3, 64);
  std::vector<float> expected_wide = multiply({kernels, 1}, wide, inputs, 3);
  const std::vector<float> expected_narrow = multiply({kernels, 1}, narrow, inputs, 3);
  std::vector<float> y_wide(900, 1.0F);
  std::vector<float> y_narrow(15);
  ThreadPool pool(3);
  LinearRunner runner(kernels, pool, Activations::f32);
  const LinearCall calls[] = {
      {&wide, inputs.x.data(), inputs.stride, 3, y_wide.data(), 300, true},
      {&narrow, inputs.x.data(), inputs.stride, 3, y_narrow.data(), 5, false}};
  runner.run(calls);
  for (float& y : expected_wide) y = 1.0F + y;
  EXPECT_TRUE(same_bits(y_wide, expected_wide));
  EXPECT_TRUE(same_bits(y_narrow, expected_narrow));
}

TEST(Linear, Bf16ActivationsRoundTheInput) {
  RandomWeights random(4);
  const KernelTable& kernels = *usable_kernels().front();
  const PackedLinear weight =
      PackedLinear::pack(random.linear(33, 40, WeightFormat::plain)).value();
  Inputs inputs = random_inputs(random, 6, 40);
  ThreadPool pool(1);
  LinearRunner runner(kernels, pool, Activations::bf16);
  std::vector<float> y(6 * 33);
  const LinearCall call = {&weight, inputs.x.data(), inputs.stride, 6, y.data(), 33, false};
  runner.run({&call, 1});
  EXPECT_FALSE(same_bits(y, multiply({kernels, 1}, weight, inputs, 6)));
  for (float& x : inputs.x) x = round_to_bf16(x);
  EXPECT_TRUE(same_bits(y, multiply({kernels, 1}, weight, inputs, 6)));
}

TEST(Linear, DeclaredInputsGetTheScalesThatAreAskedFor) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kCols = 64;
  RandomWeights random(6);
  const KernelTable& kernels = *usable_kernels().front();
  LinearWeight source = random.linear(33, kCols, WeightFormat::nvfp4);
  source.scheme.activations = ActivationFormat::nvfp4;
  source.input_scale = {.value = 900.0F, .direction = GlobalScale::Direction::divide};
  const PackedLinear weight = PackedLinear::pack(source).value();
  Inputs inputs = random_inputs(random, kRows, kCols);
  ThreadPool pool(1);
  const auto run = [&](InputScales scales) {
    LinearRunner runner(kernels, pool, Activations::declared, scales);
    std::vector<float> y(kRows * 33);
    const LinearCall call = {&weight, inputs.x.data(), inputs.stride, kRows, y.data(), 33, false};
    runner.run({&call, 1});
    return y;
  };
  const std::vector<float> better = run(InputScales::four_over_six);
  EXPECT_FALSE(same_bits(better, run(InputScales::amax)));
  for (int64_t r = 0; r < kRows; ++r) {
    float* row = inputs.x.data() + r * inputs.stride;
    round_nvfp4_activations(
        row, {.global = source.input_scale, .scales = InputScales::four_over_six}, kCols, row);
  }
  EXPECT_TRUE(same_bits(better, multiply({kernels, 1}, weight, inputs, kRows)));
}

TEST(PackedLinear, UnpacksItsRows) {
  RandomWeights random(5);
  for (const Case& c : cases()) {
    const LinearWeight weight = random.linear(c.rows, c.cols, c.format, c.plain);
    std::vector<float> expected(static_cast<size_t>(c.cols));
    for (const KernelTable* kernels : usable_kernels()) {
      const PackedLinear packed = PackedLinear::pack(weight).value();
      std::vector<float> row(static_cast<size_t>(packed.k_padded()));
      for (const int64_t n : {int64_t{0}, c.rows / 2, c.rows - 1}) {
        dequantize_rows(weight, n, n + 1, expected.data());
        kernels->unpack_row(packed.view(), n, row.data());
        for (int64_t k = 0; k < packed.k_padded(); ++k) {
          const float want = k < c.cols ? expected[static_cast<size_t>(k)] : 0.0F;
          ASSERT_NEAR(row[static_cast<size_t>(k)], want, 1e-6F * std::fabs(want)) << kernels->isa;
        }
      }
    }
  }
}

TEST(PackedLinear, RefusesWhatIsNotFinite) {
  RandomWeights random(6);
  LinearWeight plain = random.linear(4, 32, WeightFormat::plain);
  plain.values.as<uint16_t>()[17] = 0x7FC0;
  const auto refused = PackedLinear::pack(plain);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "test: expected finite weights and positive scales, found NaN, infinity or a negative "
            "scale; run nibble verify on the checkpoint");
  LinearWeight packed = random.linear(4, 32, WeightFormat::nvfp4);
  packed.scales.as<uint8_t>()[3] = 0x7F;
  EXPECT_FALSE(PackedLinear::pack(packed).ok());
  packed.scales.as<uint8_t>()[3] = 0x81;
  EXPECT_FALSE(PackedLinear::pack(packed).ok());
  LinearWeight fp8 = random.linear(4, 32, WeightFormat::fp8_channel);
  EXPECT_TRUE(PackedLinear::pack(fp8).ok());
  fp8.values.as<uint8_t>()[5] = 0xFF;
  EXPECT_FALSE(PackedLinear::pack(fp8).ok());
  fp8.values.as<uint8_t>()[5] = 0;
  fp8.scales.as<float>()[2] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(PackedLinear::pack(fp8).ok());
}

TEST(Isa, NamesAreChecked) {
  EXPECT_EQ(select_kernels("").value(), usable_kernels().front());
  EXPECT_EQ(select_kernels("scalar").value(), &scalar_kernels());
  EXPECT_EQ(select_kernels("mmx").error().code, ErrorCode::unsupported);
}

TEST(Isa, AnotherMachinesNameIsRefusedInOneLine) {
  std::string usable;
  for (const KernelTable* table : usable_kernels())
    usable += concat(usable.empty() ? "" : ", ", table->isa);
  for (const std::string name : {"avx512", "avx2", "neon", "i8mm"}) {
    const auto selected = select_kernels(name);
    if (selected.ok()) {
      EXPECT_EQ(selected.value()->isa, name);
      EXPECT_NE(usable.find(name), std::string::npos);
    } else {
      EXPECT_EQ(selected.error().message,
                concat("instruction set: expected ", usable, ", found ", name));
    }
  }
#if defined(__x86_64__)
  EXPECT_FALSE(select_kernels("neon").ok());
  EXPECT_FALSE(select_kernels("i8mm").ok());
#elif defined(__aarch64__)
  EXPECT_FALSE(select_kernels("avx2").ok());
  EXPECT_EQ(select_kernels("neon").ok(), (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0);
  EXPECT_EQ(select_kernels("i8mm").ok(), (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0);
#endif
}

}  // namespace
}  // namespace nibble::cpu
