// The start of a server on a card: refusals without a card, and on one the whole
// way from the comparison at start to the kernels, with mistakes planted in what is compared.
#include "cli/card/card_products.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/proof/fp4_harness.h"
#include "cli/serving/model_loader.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

constexpr auto kGolden = NIBBLE_SOURCE_DIR "/tests/golden/model-quantized/";

TEST(NativeProducts, AreRefusedBeforeAFolderIsRead) {
  const auto refusal = [](ModelRequest request) {
    request.folder = "absent";
    request.wanted.require_native = true;
    return load_model(request).error().message;
  };
  EXPECT_EQ(refusal({.backend = "cpu"}),
            "--require-native: expected products of 4-bit codes by the card's own instruction, "
            "found the cpu backend; leave the flag out to run the weight-only kernels");
  const ProductsRequest required{.require_native = true};
  for (const Activations mode : {Activations::bf16, Activations::f32}) {
    const auto checked = check_native(required, {.activations = mode}, "");
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.error().message.find(concat("found --activations ", activations_name(mode))),
              std::string::npos)
        << checked.error().message;
  }
  EXPECT_FALSE(check_native(required, {}, "random weights").ok());
  EXPECT_TRUE(check_native(required, {}, "").ok());
  EXPECT_TRUE(check_native(required, {.activations = Activations::declared}, "").ok());
  EXPECT_TRUE(check_native({}, {.activations = Activations::f32}, "random weights").ok());
}

class CardProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    const auto card = card_identity({});
    if (card.value().has_fp4_instruction) GTEST_SKIP() << "nothing stands in for the instruction";
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }
  static ModelRequest request(const char* name, const ProductsRequest& wanted) {
    return {.folder = std::string(kGolden) + name, .backend = "cuda", .wanted = wanted};
  }
  std::filesystem::path proof() const { return cache_ / "nibble" / "fp4-proof.json"; }

  TemporaryFolder cache_;
  ProductsRequest software_{.asked = Fp4Products::software};
};

constexpr const char* kCodes = "declared (products of codes, 4-bit ones emulated)";

TEST_F(CardProducts, AreProvedOnceAndTakenByTheRule) {
  for (const bool remembered : {false, true}) {
    EXPECT_EQ(std::filesystem::exists(proof()), remembered);
    const auto model = load_model(request("nvfp4-w4a4", software_));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model.value().notice, "");
    const std::string said = model.value().backend->description();
    EXPECT_NE(said.find(kCodes), std::string::npos) << said;
    EXPECT_NE(said.find("they get them"), std::string::npos) << said;
  }
}

TEST_F(CardProducts, AMismatchRunsTheWeightOnlyKernelsWithALine) {
  for (const cuda::Fp4Fault fault :
       {cuda::Fp4Fault::last_bit, cuda::Fp4Fault::scales, cuda::Fp4Fault::lost_code}) {
    software_.fault = fault;
    const auto model = load_model(request("nvfp4-w4a4", software_));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_TRUE(model.value().notice.starts_with("this card's products of 4-bit codes are not "))
        << model.value().notice;
    const std::string said = model.value().backend->description();
    EXPECT_EQ(said.find(kCodes), std::string::npos) << said;
    EXPECT_NE(said.find("activations bf16"), std::string::npos) << said;
    software_.require_native = true;
    const auto refused = load_model(request("nvfp4-w4a4", software_));
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(refused.error().message.starts_with("--require-native: "))
        << refused.error().message;
    software_.require_native = false;
  }
  EXPECT_FALSE(std::filesystem::exists(proof())) << "planted mistakes are not remembered";
}

TEST_F(CardProducts, ARememberedMismatchIsObeyed) {
  load_model(request("nvfp4-w4a4", software_)).value();
  std::string text = read_test_file(proof());
  text.replace(text.find("\"equal\": true"), 13, "\"equal\": false");
  write_test_file(proof(), text);
  const auto model = load_model(request("nvfp4-w4a4", software_));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_NE(model.value().notice.find("remembered in "), std::string::npos);
  EXPECT_EQ(model.value().backend->description().find(kCodes), std::string::npos);
}

TEST_F(CardProducts, WhatIsRequiredMustBeThere) {
  software_.require_native = true;
  EXPECT_TRUE(load_model(request("nvfp4-w4a4", software_)).ok());
  const auto plain = load_model(request("nvfp4-w4a16", software_));
  ASSERT_FALSE(plain.ok());
  EXPECT_NE(plain.error().message.find("no linear declares 4-bit inputs"), std::string::npos)
      << plain.error().message;
  const auto no_instruction = load_model(request("nvfp4-w4a4", {.require_native = true}));
  ASSERT_FALSE(no_instruction.ok());
  EXPECT_NE(no_instruction.error().message.find("which has no instruction for them"),
            std::string::npos)
      << no_instruction.error().message;
}

TEST_F(CardProducts, OtherActivationsAskNothing) {
  ModelRequest plain = request("nvfp4-w4a4", {});
  EXPECT_TRUE(load_model(plain).ok());
  plain.options.activations = Activations::bf16;
  EXPECT_TRUE(load_model(plain).ok());
  EXPECT_FALSE(std::filesystem::exists(proof()));
}

}  // namespace
}  // namespace nibble
