// One quantized linear on given BF16 inputs: activation codes and scales byte-equal to
// compressed-tensors', outputs within 1e-5. Cases: tools/oracle/model_quantized_golden.py.
#include "backend/reference/linear.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/safetensors_header.h"
#include "tensor/activation_codec.h"
#include "tensor/fp8.h"
#include "testing/golden.h"
#include "testing/source_dir.h"

namespace nibble::reference {
namespace {

class LinearCases : public testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(NIBBLE_SOURCE_DIR) /
                                "tests/golden/model-quantized/nvfp4-w4a4/linear_cases.bin";
  Golden golden_ = load_golden("model-quantized/nvfp4-w4a4");
  File file_ = File::open_read(path_).value();
  SafetensorsHeader header_ = read_safetensors_header(file_).value();

  Tensor read(const std::string& name) {
    for (const auto& entry : header_.tensors) {
      if (entry.name != name) continue;
      Tensor tensor(entry.dtype, entry.shape);
      file_.read_at(tensor.span(), entry.offset).value();
      return tensor;
    }
    CHECK(false, "no case ", name);
  }

  std::vector<float> read_floats(const std::string& name) {
    const Tensor tensor = read(name);
    std::vector<float> values(static_cast<size_t>(tensor.shape().count()));
    decode_plain(tensor.view().data, tensor.dtype(), tensor.shape().count(), values.data());
    return values;
  }

  std::vector<LinearSource> sources() const {
    const auto& layers = golden_.weights.layers();
    return {layers[0].moe.experts[2].gate, layers[1].moe.experts[0].down, layers[1].attention.q,
            layers[2].moe.shared.up};
  }
};

TEST_F(LinearCases, ActivationCodesAreByteEqual) {
  for (const auto& source : sources()) {
    SCOPED_TRACE(source.module);
    const LinearWeight weight = golden_.weights.load(source).value();
    const auto x = read_floats(source.module + "/x");
    std::vector<uint8_t> codes(x.size() / 2);
    std::vector<uint8_t> scales(x.size() / 16);
    const auto k = static_cast<size_t>(source.cols);
    for (size_t row = 0; row < x.size() / k; ++row)
      encode_nvfp4_activations(&x[row * k], {.global = weight.input_scale}, source.cols,
                               &codes[row * k / 2], &scales[row * k / 16]);
    const Tensor expected_codes = read(source.module + "/packed");
    const Tensor expected_scales = read(source.module + "/scales");
    ASSERT_EQ(static_cast<size_t>(expected_codes.bytes()), codes.size());
    ASSERT_EQ(static_cast<size_t>(expected_scales.bytes()), scales.size());
    EXPECT_EQ(std::memcmp(codes.data(), expected_codes.as<uint8_t>(), codes.size()), 0);
    EXPECT_EQ(std::memcmp(scales.data(), expected_scales.as<uint8_t>(), scales.size()), 0);
  }
}

TEST_F(LinearCases, FourOverSixIsThatOfTheCodec) {
  for (const auto& source : sources()) {
    SCOPED_TRACE(source.module);
    const LinearWeight weight = golden_.weights.load(source).value();
    const auto x = read_floats(source.module + "/x");
    std::vector<float> rounded(x.size());
    round_nvfp4_activations(x.data(),
                            {.global = weight.input_scale, .scales = InputScales::four_over_six},
                            std::ssize(x), rounded.data());
    const auto linear = [&](const LinearOptions& options) {
      return Linear::load(golden_.weights, source, options).value();
    };
    const auto better =
        linear({.mode = Activations::declared, .input_scales = InputScales::four_over_six});
    EXPECT_EQ(better.apply(x), linear({.mode = Activations::f32}).apply(rounded));
    EXPECT_NE(better.apply(x), linear({.mode = Activations::declared}).apply(x));
  }
}

TEST_F(LinearCases, OutputsAgree) {
  for (const auto& source : sources()) {
    SCOPED_TRACE(source.module);
    const auto x = read_floats(source.module + "/x");
    const auto expected = read_floats(source.module + "/y");
    const auto linear =
        Linear::load(golden_.weights, source, {.mode = Activations::declared}).value();
    EXPECT_LE(relative_error(linear.apply(x), expected), 1e-5);
    const auto plain = Linear::load(golden_.weights, source, {.mode = Activations::f32}).value();
    EXPECT_GT(relative_error(plain.apply(x), expected), 1e-3);  // the activations do matter
  }
}

TEST_F(LinearCases, Bf16ModeRoundsTheInputs) {
  const LinearSource source = sources()[0];
  auto x = read_floats(source.module + "/x");
  const auto rounding = Linear::load(golden_.weights, source, {.mode = Activations::bf16}).value();
  const auto plain = Linear::load(golden_.weights, source, {.mode = Activations::f32}).value();
  EXPECT_EQ(rounding.apply(x), plain.apply(x));  // BF16 values stay as they are
  for (float& value : x) value *= 1.003F;
  EXPECT_NE(rounding.apply(x), plain.apply(x));
}

}  // namespace
}  // namespace nibble::reference
