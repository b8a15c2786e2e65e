// The document of a receipt, to the letter (tests/golden/receipt, which tests/cli/receipt_test.py
// holds against the schema), and its verdict.
#include "cli/card/receipt.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

/// An H100 might say this.
Receipt hopper() {
  Receipt receipt{.version = "0.1.0",
                  .commit = "0123456789ab",
                  .program = "build 0a1b",
                  .built_for = "sm_90a (CUDA 13.0)",
                  .card = {.name = "NVIDIA H100 80GB HBM3",
                           .uuid = "00ff",
                           .capability = 90,
                           .multiprocessors = 132,
                           .memory_bytes = int64_t{81559} << 20,
                           .driver_cuda = 13000,
                           .runtime_cuda = 13000,
                           .code = "sm_90a"},
                  .driver = "580.95.05",
                  .harness = {.cases = 21504, .milliseconds = 12.5}};
  receipt.checks = {{.name = "linears of generated tokens",
                     .ran = "native (sm_90a) and portable",
                     .passed = 160,
                     .worst = 0.00025,
                     .seconds = 21.5}};
  receipt.figures = {{.name = "memory read",
                      .ran = "a plain kernel",
                      .limit = SpeedLimit::bandwidth,
                      .work = 1e9,
                      .seconds = {0.0004, 0.0005, 0.00032}},
                     {.name = "prompts: 8192 x 2048, 4-bit codes, 64 tokens",
                      .ran = "emulated, slow",
                      .limit = SpeedLimit::none,
                      .work = 1e9,
                      .seconds = {0.001}}};
  add_data_sheet(receipt);
  return receipt;
}

/// A card of compute capability 12 might say this whose instruction is not what it should be, and
/// of which no data sheet is known.
Receipt unsound() {
  Receipt receipt = hopper();
  receipt.commit.clear();
  receipt.driver.clear();
  receipt.card.name = "NVIDIA GeForce RTX 5099";
  receipt.card.capability = 120;
  receipt.card.code = "sm_120f";
  receipt.card.has_fp4_instruction = true;
  receipt.harness = {.cases = 21504, .different = 3, .first_case = 17, .milliseconds = 8.25};
  receipt.checks.push_back({.name = "the instruction for 4-bit codes",
                            .ran = "instruction",
                            .passed = 4,
                            .failed = 1,
                            .worst = std::nan(""),
                            .seconds = 0.5,
                            .failures = {"instruction: random scales"}});
  receipt.bandwidth_bytes = receipt.bf16_flops = receipt.fp8_flops = receipt.fp4_flops =
      std::nullopt;
  return receipt;
}

std::string golden(const char* name) {
  return read_text_file(concat(NIBBLE_SOURCE_DIR "/tests/golden/receipt/", name), 1 << 20).value();
}

TEST(Receipt, IsTheDocumentThatTheSchemaDescribes) {
  EXPECT_EQ(receipt_json(hopper()).dump_pretty(), golden("emulated.json"));
  EXPECT_EQ(receipt_json(unsound()).dump_pretty(), golden("different.json"));
}

TEST(Receipt, SaysWhatPeopleMustKnow) {
  const std::string text = receipt_text(hopper());
  EXPECT_NE(text.find("NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.95.05"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("memory read (a plain kernel): 2500.0 GB/s, 75 % of 3350\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("160 passed, 0 failed"), std::string::npos) << text;
  EXPECT_TRUE(
      text.ends_with("sound: the card has no instruction for 4-bit codes; the kernels for "
                     "it ran with software in its place\n"))
      << text;
  const std::string bad = receipt_text(unsound());
  EXPECT_NE(bad.find("FAIL  the instruction for 4-bit codes"), std::string::npos) << bad;
  EXPECT_NE(bad.find("        instruction: random scales\n"), std::string::npos) << bad;
  EXPECT_NE(bad.find("memory read (a plain kernel): 2500.0 GB/s\n"), std::string::npos) << bad;
}

TEST(Receipt, IsSoundOnlyIfAllIs) {
  EXPECT_TRUE(is_sound(hopper()));
  EXPECT_FALSE(is_sound(unsound()));
  Receipt receipt = hopper();
  receipt.checks[0].failed = 1;
  EXPECT_FALSE(is_sound(receipt));
  EXPECT_TRUE(verdict_text(receipt).starts_with("not sound: 1 check failed; "));
  receipt = hopper();
  receipt.harness.different = 1;
  EXPECT_FALSE(is_sound(receipt));
  receipt = hopper();
  receipt.checks[0].passed = 0;
  EXPECT_FALSE(is_sound(receipt)) << "a part that checked nothing";
  receipt = hopper();
  receipt.checks.clear();
  EXPECT_FALSE(is_sound(receipt));
  receipt = hopper();
  receipt.harness.cases = 0;
  EXPECT_FALSE(is_sound(receipt)) << "a harness that tried nothing";
}

TEST(Receipt, SaysWhetherProductsByTensorMemoryAreOn) {
  Receipt receipt = hopper();
  receipt.card.has_tensor_memory = true;
  EXPECT_EQ(verdict_text(receipt),
            "sound: the card's products of 4-bit codes by tensor memory are those of this program");
  receipt.checks[0].failed = 2;
  EXPECT_EQ(verdict_text(receipt),
            "not sound: 2 checks failed; the card's products of 4-bit codes by tensor memory stay "
            "off, and the weight-only kernels run instead");
}

TEST(Receipt, KnowsDataSheets) {
  const auto of = [](const char* name, int32_t capability, int64_t mib) {
    Receipt receipt;
    receipt.card = {.name = name, .capability = capability, .memory_bytes = mib << 20};
    add_data_sheet(receipt);
    return receipt;
  };
  const Receipt blackwell = of("NVIDIA GeForce RTX 5090", 120, 32607);
  EXPECT_EQ(blackwell.bandwidth_bytes, 1792e9);
  EXPECT_EQ(blackwell.bf16_flops, 209.5e12);
  EXPECT_EQ(blackwell.fp8_flops, 419e12);
  EXPECT_EQ(blackwell.fp4_flops, 1676e12);
  const Receipt hopper = of("NVIDIA H100 80GB HBM3", 90, 81559);
  EXPECT_EQ(hopper.bandwidth_bytes, 3350e9);
  EXPECT_EQ(hopper.bf16_flops, 989e12);
  EXPECT_EQ(hopper.fp8_flops, std::nullopt);
  EXPECT_EQ(hopper.fp4_flops, std::nullopt);
  EXPECT_EQ(of("NVIDIA Nothing", 90, 1000).bandwidth_bytes, std::nullopt);
}

}  // namespace
}  // namespace nibble
