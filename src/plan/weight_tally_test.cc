// Bytes of weights against figures from elsewhere: what a card allocated, what published files hold
// and what another server said it loaded.
#include "plan/weight_tally.h"

#include <gtest/gtest.h>

#include "plan/presets.h"
#include "plan/testing/real_weights.h"

namespace nibble {
namespace {

constexpr double kGib = 1073741824.0;

int64_t file_bytes(const char* name, const FormatOf& formats) {
  const Json json = preset_config(*find_preset(name));
  const ModelConfig config = ModelConfig::parse(json).value();
  const OtherWeights others = other_weights(json, config).value();
  const auto rows = tally_in_file(synthetic_weights(config, formats), usual_file_bytes());
  return total_bytes(rows) + others.vision_bytes + others.mtp_bytes;
}

/// docs/serving.md, "The card": planned weights of the 35B on one H200, in MB.
TEST(WeightTally, IsWhatACardHolds) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const int64_t held = card_weight_bytes(config, WeightLayout::mixed_nvfp4_head);
  EXPECT_NEAR(static_cast<double>(held), 20827e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(card_weight_bytes(config, WeightLayout::w4a4)), 22446e6, 0.5e6);
}

/// Bytes of tensors in Qwen/Qwen3.6-35B-A3B, read from its index (tests/published/README.md).
TEST(WeightTally, IsThePublishedFile) {
  EXPECT_EQ(file_bytes("qwen3.6-35b-a3b", formats_of(WeightLayout::bf16)), 71903645408);
}

/// 27,781,427,952 parameters of 2 bytes.
TEST(WeightTally, IsThePublishedFileOfTheDenseModel) {
  EXPECT_EQ(file_bytes("qwen3.6-27b", formats_of(WeightLayout::bf16)), 2 * 27781427952);
}

/// GiB that vLLM said it loaded of inferRouter's files, the vision tower included.
TEST(WeightTally, IsWhatAnotherServerLoaded) {
  const Json json = preset_config(*find_preset("qwen3.6-35b-a3b"));
  const ModelConfig config = ModelConfig::parse(json).value();
  const FormatOf plain_head = formats_of(WeightLayout::w4a4);
  const FormatOf fp8_head = [&](std::string_view module) {
    return module == "lm_head" ? WeightFormat::fp8_block : plain_head(module);
  };
  const auto vision = static_cast<double>(other_weights(json, config).value().vision_bytes);
  const auto gib = [&](const FormatOf& formats) {
    const auto text = total_bytes(tally_on_card(synthetic_weights(config, formats)));
    return (static_cast<double>(text) + vision) / kGib;
  };
  EXPECT_NEAR(gib(plain_head) / 21.88, 1.0, 0.02);
  EXPECT_NEAR(gib(fp8_head) / 21.40, 1.0, 0.02);
}

TEST(WeightTally, RowsAreByKindAndFormat) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const auto rows =
      tally_in_file(synthetic_weights(config, formats_of(WeightLayout::mixed)), usual_file_bytes());
  const auto bytes_of = [&](WeightKind kind, WeightFormat format) {
    for (const WeightRow& row : rows)
      if (row.kind == kind && row.format == format) return row.bytes;
    return int64_t{0};
  };
  constexpr int64_t kCodes = int64_t{40} * 256 * 3 * 512 * 2048;
  EXPECT_EQ(bytes_of(WeightKind::experts, WeightFormat::nvfp4),
            kCodes / 2 + kCodes / 16 + 40 * 256 * 3 * 4);
  EXPECT_EQ(bytes_of(WeightKind::router, WeightFormat::plain), 40 * (256 + 1) * 2048 * 2);
  EXPECT_EQ(bytes_of(WeightKind::embedding, WeightFormat::plain), int64_t{248320} * 2048 * 2);
  EXPECT_EQ(bytes_of(WeightKind::head, WeightFormat::fp8_channel), int64_t{248320} * (2048 + 4));
  EXPECT_EQ(bytes_of(WeightKind::dense_mlp, WeightFormat::nvfp4), 0);
}

/// A card holds an input scale where one is declared and heeded, and values wider than BF16 in
/// three parts where nothing is rounded: one more number in each, or three times the rows.
TEST(WeightTally, ActivationsChangeWhatACardHolds) {
  LinearSource head{
      .module = "lm_head", .rows = 512, .cols = 256, .scheme = {}, .values = "lm_head.weight"};
  const auto bytes = [&](const CardLayout& layout) {
    SyntheticWeights weights;
    weights.head = head;
    return total_bytes(tally_on_card(weights, layout));
  };
  constexpr int64_t kPlain = int64_t{512} * 256 * 2;
  const auto wider = [](const LinearSource&) { return true; };
  EXPECT_EQ(bytes({}), kPlain);
  EXPECT_EQ(bytes({.activations = Activations::f32, .is_wider = {}}), kPlain);
  EXPECT_EQ(bytes({.activations = Activations::f32, .is_wider = wider}), 3 * kPlain);
  EXPECT_EQ(bytes({.activations = Activations::bf16, .is_wider = wider}), kPlain);
  head.scheme = {.weights = WeightFormat::fp8_channel, .activations = ActivationFormat::fp8_tensor};
  constexpr int64_t kCodes = int64_t{512} * 256 + 512 * 4;
  EXPECT_EQ(bytes({}), kCodes);
  EXPECT_EQ(bytes({.activations = Activations::declared, .is_wider = {}}), kCodes + 256);
  head.scheme.activations = ActivationFormat::fp8_token;
  EXPECT_EQ(bytes({.activations = Activations::declared, .is_wider = {}}), kCodes);
}

TEST(WeightTally, ATiedHeadIsCountedOnce) {
  const ModelConfig config = real_config("qwen3.5-4b");
  ASSERT_TRUE(config.tied_head);
  for (const WeightRow& row :
       tally_on_card(synthetic_weights(config, formats_of(WeightLayout::mixed))))
    EXPECT_NE(row.kind, WeightKind::head);
}

}  // namespace
}  // namespace nibble
