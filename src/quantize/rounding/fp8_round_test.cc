// FP8 rounding against compressed-tensors (tests/golden/codec) and against the slow conversion.
#include "quantize/rounding/fp8_round.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "checkpoint/safetensors_header.h"
#include "tensor/fp8.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

using Tensors = std::map<std::string, Tensor>;

Tensors goldens() {
  const File file =
      File::open_read(NIBBLE_SOURCE_DIR "/tests/golden/codec/fp8_weights.safetensors").value();
  Tensors out;
  for (const TensorEntry& entry : read_safetensors_header(file).value().tensors) {
    Tensor tensor(entry.dtype, entry.shape);
    file.read_at(tensor.span(), entry.offset).value();
    out.emplace(entry.name, std::move(tensor));
  }
  return out;
}

float amax_of(const Tensor& values) {
  return largest_magnitude(values.view().data, values.dtype(), values.shape().count());
}

void expect_bytes(const void* ours, const Tensor& theirs, const std::string& what) {
  const auto* a = static_cast<const uint8_t*>(ours);
  const auto* b = reinterpret_cast<const uint8_t*>(theirs.view().data);
  for (int64_t i = 0; i < theirs.bytes(); ++i)
    ASSERT_EQ(a[i], b[i]) << what << " byte " << i << " of " << theirs.bytes();
}

/// Their scale of a matrix or tile of zeros is an epsilon; ours is 1. The codes are zero under
/// both.
void expect_scales(const std::vector<float>& ours, const Tensor& theirs, const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(ours.size()), theirs.shape().count()) << what;
  for (size_t i = 0; i < ours.size(); ++i)
    ASSERT_EQ(ours[i], theirs.view().as<float>()[i]) << what << " " << i;
}

TEST(Fp8Round, EqualsCompressedTensorsByteForByte) {
  const Tensors golden = goldens();
  for (const std::string name : {"plain", "wild", "ties"}) {
    const Tensor& values = golden.at(name + "/values");
    const int64_t rows = values.shape()[0], cols = values.shape()[1];
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
    const float scale = fp8_scale(amax_of(values));
    EXPECT_EQ(scale, *golden.at(name + "/tensor_scale").view().as<float>()) << name;
    round_fp8_rows(values.view(), scale, codes);
    expect_bytes(codes.data(), golden.at(name + "/tensor_codes"), name + " by tensor");

    std::vector<float> scales;
    for (int64_t row = 0; row < rows; row += kFp8Block) {
      const auto at = static_cast<size_t>(row * cols);
      std::vector<float> band(static_cast<size_t>(cols / kFp8Block));
      round_fp8_band({values.view().data + at * 2, DType::bf16, {kFp8Block, cols}},
                     std::span(codes).subspan(at, static_cast<size_t>(kFp8Block * cols)), band);
      scales.insert(scales.end(), band.begin(), band.end());
    }
    expect_scales(scales, golden.at(name + "/block_scales"), name);
    expect_bytes(codes.data(), golden.at(name + "/block_codes"), name + " by block");
  }
}

TEST(Fp8Round, ByChannelIsEachRowUnderItsOwnScale) {
  Tensor values(DType::f32, {3, 4});
  const float rows[] = {1, -2, 448, 3, 0, 0, 0, 0, 0.5F, 0.25F, -0.125F, 0};
  std::memcpy(values.span().data(), rows, sizeof rows);
  std::vector<uint8_t> codes(12);
  std::vector<float> scales(3);
  const RoundStatistics all = round_fp8_channels(values.view(), codes, scales);
  EXPECT_EQ(scales, (std::vector<float>{1, 1, 0.5F / 448}));
  double squares = 0;
  for (int64_t row = 0; row < 3; ++row) {
    const TensorView one = {values.view().data + row * 16, DType::f32, {1, 4}};
    std::vector<uint8_t> alone(4);
    squares += round_fp8_rows(one, scales[static_cast<size_t>(row)], alone).weight_squares;
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), codes.begin() + row * 4)) << row;
  }
  EXPECT_EQ(all.weight_squares, squares);
}

TEST(Fp8Round, FastConversionEqualsTheSlowOne) {
  std::vector<float> x = {0, 448, 464, 1e30F, -1e30F, 0x1p-10F, 0x1.8p-10F, -0x1p-126F};
  for (int code = 0; code < 0x7F; ++code) {
    const float at = e4m3_to_float(static_cast<uint8_t>(code));
    const float next = code == 0x7E ? 480.0F : e4m3_to_float(static_cast<uint8_t>(code + 1));
    const float middle = (at + next) / 2;
    for (const float value :
         {at, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)})
      x.insert(x.end(), {value, value == 0 ? 0 : -value});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i)
    x.push_back(
        std::ldexp(static_cast<float>(random()) - 2e9F, static_cast<int>(random() % 60) - 60));
  const auto count = static_cast<int64_t>(x.size());
  std::vector<uint8_t> codes(x.size());
  round_fp8_rows({reinterpret_cast<const std::byte*>(x.data()), DType::f32, {1, count}}, 1.0F,
                 codes);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], float_to_e4m3(x[i])) << x[i];
}

TEST(Fp8Round, RaggedAndZeroTiles) {
  const int64_t rows = 5, cols = 130;
  std::vector<float> w(static_cast<size_t>(rows * cols), 0.0F);
  w[129] = -3.0F;  // in the second, two columns wide tile
  std::vector<uint8_t> codes(w.size());
  std::vector<float> scales(2);
  const RoundStatistics statistics = round_fp8_band(
      {reinterpret_cast<const std::byte*>(w.data()), DType::f32, {rows, cols}}, codes, scales);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(scales[1], 3.0F / 448.0F);
  EXPECT_EQ(codes[129], 0xFE);
  EXPECT_EQ(statistics.weight_squares, 9.0);
  EXPECT_LT(statistics.error_squares, 1e-10);
}

}  // namespace
}  // namespace nibble
