// Rounding with data against numpy in doubles (tools/oracle/rounding_golden.py): what is lost,
// e^T H e of each row, and nearly every weight.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/safetensors_header.h"
#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"
#include "tensor/fp8.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

class RoundingGolden : public ::testing::Test {
 protected:
  RoundingGolden() {
    const File file =
        File::open_read(NIBBLE_SOURCE_DIR "/tests/golden/rounding/rounding.safetensors").value();
    for (const TensorEntry& entry : read_safetensors_header(file).value().tensors) {
      Tensor tensor(entry.dtype, entry.shape);
      file.read_at(tensor.span(), entry.offset).value();
      tensors_.emplace(entry.name, std::move(tensor));
    }
    cols_ = tensors_.at("weights").shape()[1];
    weights_ = floats("weights");
    statistics_ = test::gather(floats("inputs"), cols_, SecondMoment::full);
  }

  std::vector<float> floats(const std::string& name) const {
    const Tensor& tensor = tensors_.at(name);
    const auto* begin = tensor.view().as<float>();
    return {begin, begin + tensor.shape().count()};
  }
  std::vector<double> doubles(const std::string& name) const {
    const Tensor& tensor = tensors_.at(name);
    const auto* begin = tensor.view().as<double>();
    return {begin, begin + tensor.shape().count()};
  }

  /// e^T H e of each row, with H damped and over its mean.
  std::vector<double> losses(const std::vector<float>& rounded) const {
    const double unit = mean_square(statistics_) * static_cast<double>(statistics_.tokens);
    const auto n = static_cast<size_t>(cols_);
    std::vector<double> out;
    for (size_t row = 0; row < weights_.size(); row += n) {
      std::vector<double> e(n);
      for (size_t i = 0; i < n; ++i)
        e[i] = static_cast<double>(weights_[row + i]) - static_cast<double>(rounded[row + i]);
      double total = 0;
      for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < n; ++j)
          total += e[i] * e[j] *
                   (statistics_.product(static_cast<int64_t>(i), static_cast<int64_t>(j)) / unit +
                    (i == j ? kDamping : 0.0));
      out.push_back(total);
    }
    return out;
  }

  /// Codes with one scale per row, as values.
  std::vector<float> values(const std::vector<uint8_t>& codes,
                            const std::vector<float>& scales) const {
    std::vector<float> out(codes.size());
    const auto n = static_cast<size_t>(cols_);
    for (size_t row = 0; row < scales.size(); ++row)
      decode_fp8_row(&codes[row * n], scales[row], cols_, &out[row * n]);
    return out;
  }

  /// GPTQ to NVFP4 and so many sweeps of descent, as values.
  std::vector<float> gptq_nvfp4(int sweeps) const {
    const int exponent = test::exponent_of(weights_);
    const Rounding rounding = {.rows = make_gptq_rounder(statistics_, best_round_path(), sweeps)};
    return test::decoded(round_matrix(rounding, test::matrix_view(weights_, cols_), exponent),
                         exponent);
  }

  std::map<std::string, Tensor> tensors_;
  int64_t cols_ = 0;
  std::vector<float> weights_;
  InputStatistics statistics_;
};

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

TEST_F(RoundingGolden, Fp8LosesWhatTheTextbookLoses) {
  std::vector<uint8_t> codes(weights_.size());
  std::vector<float> scales(weights_.size() / static_cast<size_t>(cols_));
  round_fp8_channels(test::matrix_view(weights_, cols_), codes, scales);
  EXPECT_EQ(scales, floats("fp8/scales"));
  const auto plain = losses(values(codes, scales)), plain_truth = doubles("fp8/plain_loss");
  for (size_t row = 0; row < plain.size(); ++row)
    EXPECT_NEAR(plain[row], plain_truth[row], 1e-4 * plain_truth[row]) << row;

  const Fp8Rounding rounding = prepare_fp8_rounding({.algorithm = RoundAlgorithm::gptq,
                                                     .cols = cols_,
                                                     .statistics = &statistics_,
                                                     .path = best_round_path()});
  ASSERT_EQ(rounding.fallback, "");
  rounding.gptq->round(test::matrix_view(weights_, cols_), {.values = scales, .per_row = 1}, codes);
  const auto found = values(codes, scales), truth = floats("fp8/values");
  size_t equal = 0;
  for (size_t i = 0; i < truth.size(); ++i) equal += found[i] == truth[i] ? 1U : 0U;
  EXPECT_GT(equal, truth.size() * 98 / 100);
  const double loss = sum(losses(found)), least = sum(doubles("fp8/gptq_loss"));
  EXPECT_NEAR(loss, least, 0.01 * least);
  EXPECT_LT(loss, 0.5 * sum(plain));
}

TEST_F(RoundingGolden, Nvfp4LosesWhatTheTextbookLoses) {
  EXPECT_EQ(std::ldexp(1.0, test::exponent_of(weights_)), doubles("nvfp4/unit")[0]);
  const double truth = sum(doubles("nvfp4/gptq_loss"));
  EXPECT_NEAR(sum(losses(gptq_nvfp4(0))), truth, 0.02 * truth);
}

TEST_F(RoundingGolden, Nvfp4DescendsToWhereTheDefinitionDoes) {
  const auto found = gptq_nvfp4(kDescentSweeps), truth = floats("nvfp4/descent_values");
  size_t equal = 0;
  for (size_t i = 0; i < truth.size(); ++i) equal += found[i] == truth[i] ? 1U : 0U;
  EXPECT_GT(equal, truth.size() * 95 / 100);
  const double loss = sum(losses(found)), least = sum(doubles("nvfp4/descent_loss"));
  EXPECT_NEAR(loss, least, 0.01 * least);
  EXPECT_LT(loss, 0.95 * sum(doubles("nvfp4/gptq_loss")));
}

}  // namespace
}  // namespace nibble
