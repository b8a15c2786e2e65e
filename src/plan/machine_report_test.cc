// Reports of machines that are not here: no card, old and new cards, missing drivers and folders.
#include "plan/machine_report.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGigabyte = 1'000'000'000;

/// A machine with nothing amiss and no card.
MachineFacts plain_machine() {
  MachineFacts facts;
  facts.version = "1.2.3";
  facts.cuda_code = "none (built without NIBBLE_CUDA)";
  facts.cores = 8;
  facts.isa = "avx2";
  facts.memory_bytes = 64 * kGigabyte;
  facts.folders = {{.purpose = "this folder",
                    .path = "/home/ada",
                    .state = FolderFacts::State::writable,
                    .free_bytes = 500 * kGigabyte,
                    .advice = "work elsewhere"}};
  return facts;
}

MachineFacts machine_with(const GpuFacts& gpu) {
  MachineFacts facts = plain_machine();
  facts.gpus = {gpu};
  facts.driver_version = "580.159.03";
  facts.driver_cuda = 13000;
  facts.cuda_code = "sm_80, sm_90a, PTX compute_80 (CUDA 13.0)";
  facts.built_with_cuda = true;
  return facts;
}

GpuFacts gpu_named(std::string name, int32_t capability, int64_t mib) {
  return {.name = std::move(name),
          .capability = capability,
          .memory_bytes = mib * kMib,
          .free_bytes = mib * kMib};
}

/// The first line about `subject`.
HealthLine line_of(const MachineFacts& facts, std::string_view subject) {
  for (const HealthLine& line : machine_report(facts))
    if (line.subject == subject) return line;
  ADD_FAILURE() << "no line about " << subject;
  return {};
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(MachineReport, WithoutACardTheCpuRuns) {
  const MachineFacts facts = plain_machine();
  EXPECT_TRUE(all_fine(machine_report(facts)));
  const HealthLine gpu = line_of(facts, "GPU");
  EXPECT_EQ(gpu.health, Health::note);
  EXPECT_TRUE(has(gpu.text, "the CPU backend runs every model instead")) << gpu.text;
  for (const HealthLine& line : machine_report(facts)) {
    EXPECT_NE(line.subject, "driver");
    EXPECT_NE(line.subject, "formats");
    EXPECT_NE(line.subject, "model");
  }
}

TEST(MachineReport, ACardWithoutADriverIsNotFine) {
  MachineFacts facts = plain_machine();
  facts.gpu_trouble = "an NVIDIA card is in this machine and no driver answers for it";
  EXPECT_FALSE(all_fine(machine_report(facts)));
  EXPECT_TRUE(has(line_of(facts, "GPU").advice, "driver"));
}

TEST(MachineReport, AnRtx4090RunsWeightOnly) {
  MachineFacts facts = machine_with(gpu_named("NVIDIA GeForce RTX 4090", 89, 24564));
  facts.expectations = {
      {.model = "qwen3.6-35b-a3b",
       .recipe = "mixed",
       .weight_bytes = 20'827'000'000,
       .longest_request = 4000,
       .tokens_per_second = 412.4},
      {.model = "qwen3.6-27b", .recipe = "mixed", .weight_bytes = 30 * kGigabyte}};
  EXPECT_TRUE(all_fine(machine_report(facts)));
  const HealthLine formats = line_of(facts, "formats");
  EXPECT_EQ(formats.health, Health::note);
  EXPECT_TRUE(has(formats.text, "BF16, FP8;")) << formats.text;
  EXPECT_TRUE(has(formats.text, "weight-only: 4 bits in memory")) << formats.text;
  EXPECT_TRUE(has(formats.text, "not tuned or measured on this card")) << formats.text;
  const HealthLine model = line_of(facts, "model");
  EXPECT_TRUE(has(model.text, "at most 412 tokens/s for one stream (computed")) << model.text;
  EXPECT_TRUE(has(machine_text(machine_report(facts)), "qwen3.6-27b in mixed does not fit"));
}

TEST(MachineReport, AnA100RunsWeightOnlyWithoutFp8) {
  const MachineFacts facts = machine_with(gpu_named("NVIDIA A100-SXM4-80GB", 80, 81920));
  EXPECT_TRUE(all_fine(machine_report(facts)));
  const std::string text = line_of(facts, "formats").text;
  EXPECT_TRUE(has(text, "multiplies BF16; NVFP4 weights run weight-only")) << text;
}

TEST(MachineReport, HopperIsTunedAndBlackwellIsNotUsedWhole) {
  EXPECT_EQ(line_of(machine_with(gpu_named("NVIDIA H200", 90, 143771)), "formats").health,
            Health::fine);
  const std::string text =
      line_of(machine_with(gpu_named("NVIDIA GeForce RTX 5090", 120, 32607)), "formats").text;
  EXPECT_TRUE(has(text, "where the checkpoint declares 4-bit activations")) << text;
  const std::string other =
      line_of(machine_with(gpu_named("NVIDIA B200", 100, 183359)), "formats").text;
  EXPECT_TRUE(has(other, "does not use the card's FP4 products")) << other;
}

TEST(MachineReport, AnOldCardIsRefusedWithTheReason) {
  const MachineFacts facts = machine_with(gpu_named("Tesla V100-SXM2-32GB", 70, 32768));
  EXPECT_FALSE(all_fine(machine_report(facts)));
  const HealthLine gpu = line_of(facts, "GPU");
  EXPECT_EQ(gpu.health, Health::not_fine);
  EXPECT_TRUE(has(gpu.advice, "8.0 or higher")) << gpu.advice;
  EXPECT_TRUE(has(gpu.advice, "--backend cpu")) << gpu.advice;
}

TEST(MachineReport, CodeAndDriverMustSuit) {
  MachineFacts facts = machine_with(gpu_named("NVIDIA H100 80GB HBM3", 90, 81559));
  facts.cuda_trouble = "backend cuda: expected a driver for CUDA 13.0 or newer, found 12.4";
  EXPECT_EQ(line_of(facts, "CUDA code").health, Health::not_fine);
  facts.built_with_cuda = false;
  EXPECT_TRUE(has(line_of(facts, "CUDA code").advice, "cmake --preset native"));
  facts.driver_version.clear();
  EXPECT_EQ(line_of(facts, "driver").health, Health::not_fine);
}

TEST(MachineReport, FoldersMemoryAndPort) {
  MachineFacts facts = plain_machine();
  facts.folders[0].free_bytes = 100;
  EXPECT_EQ(line_of(facts, "this folder").health, Health::not_fine);
  facts.folders[0].state = FolderFacts::State::read_only;
  EXPECT_EQ(line_of(facts, "this folder").health, Health::note);
  facts.folders[0].state = FolderFacts::State::absent;
  EXPECT_EQ(line_of(facts, "this folder").health, Health::note);
  facts.folders[0].state = FolderFacts::State::unusable;
  EXPECT_EQ(line_of(facts, "this folder").health, Health::not_fine);
  EXPECT_EQ(line_of(facts, "this folder").advice, "work elsewhere");
  facts = plain_machine();
  facts.memory_bytes = 1000;
  EXPECT_EQ(line_of(facts, "memory").health, Health::not_fine);
  facts.isa = "scalar";
  EXPECT_EQ(line_of(facts, "CPU").health, Health::note);
  facts.port_trouble = "Address already in use";
  EXPECT_EQ(line_of(facts, "port").health, Health::note);
  EXPECT_TRUE(has(line_of(facts, "port").advice, "--port"));
}

TEST(MachineReport, JsonSaysTheSame) {
  MachineFacts facts = plain_machine();
  facts.memory_bytes = 1000;
  const auto lines = machine_report(facts);
  const Json json = machine_json(lines);
  EXPECT_FALSE(json.find("fine")->as_bool());
  ASSERT_EQ(json.find("lines")->as_array().size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json& row = json.find("lines")->as_array()[i];
    EXPECT_EQ(row.find("subject")->as_string(), lines[i].subject);
    EXPECT_EQ(row.find("health")->as_string(), health_name(lines[i].health));
  }
}

TEST(CardOfDevice, NamesOfTheDriverHaveTheirRows) {
  struct Row {
    const char* name;
    int32_t capability;
    int64_t mib;
    const char* card;
  };
  for (const Row& row : std::vector<Row>{
           {"NVIDIA GeForce RTX 4090", 89, 24564, "rtx4090"},
           {"NVIDIA GeForce RTX 3090 Ti", 86, 24564, "rtx3090ti"},
           {"NVIDIA GeForce RTX 3090", 86, 24576, "rtx3090"},
           {"NVIDIA A100-SXM4-80GB", 80, 81920, "a100-80gb"},
           {"NVIDIA A100-PCIE-40GB", 80, 40960, "a100-40gb"},
           {"NVIDIA H100 80GB HBM3", 90, 81559, "h100"},
           {"NVIDIA H100 PCIe", 90, 81559, "h100-pcie"},
           {"NVIDIA H100 NVL", 90, 95830, "h100-nvl"},
           {"NVIDIA H200", 90, 143771, "h200"},
           {"NVIDIA L40S", 89, 46068, "l40s"},
           {"NVIDIA RTX 6000 Ada Generation", 89, 49140, "rtx-6000-ada"},
           {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120, 97887, "rtx-pro-6000"},
           {"NVIDIA GB10", 121, 0, "dgx-spark"}}) {
    const PlannedCard card = card_of_device(
        {.name = row.name, .capability = row.capability, .memory_bytes = row.mib * kMib});
    EXPECT_EQ(card.name, row.card) << row.name;
  }
  const PlannedCard laptop =
      card_of_device(gpu_named("NVIDIA GeForce RTX 4090 Laptop GPU", 89, 16376));
  EXPECT_EQ(laptop.bandwidth_bytes, 0);  // another chip and other memory
  EXPECT_EQ(laptop.memory_bytes, 16376 * kMib);
  EXPECT_EQ(card_of_device(gpu_named("NVIDIA H200 MIG 1g.18gb", 90, 16384)).bandwidth_bytes, 0);
}

}  // namespace
}  // namespace nibble
