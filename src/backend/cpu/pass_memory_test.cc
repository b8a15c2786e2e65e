// The memory that a pass needs is reserved before it, to the value: none is added by the largest
// pass, whatever its inputs are rounded to, and none of it is for larger ones.
#include "backend/cpu/pass_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/workspace.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

class CpuPassMemory : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_ = load_golden(GetParam());
};

TEST_P(CpuPassMemory, IsNotExceededByTheLargestPass) {
  std::vector<int32_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 50);
  for (const Activations activations :
       {Activations::bf16, Activations::declared, Activations::f32, Activations::int8}) {
    const auto backend = make_cpu_backend(golden_.weights, golden_.config,
                                          {.activations = activations, .threads = 1})
                             .value();
    TestSession session(*backend, golden_.config, {.tokens_max = 128, .rows_max = 64});
    const ReservedBytes before = backend->reserved_bytes().value();
    session.pass({{.tokens = ids}});
    EXPECT_EQ(backend->reserved_bytes()->workspace, before.workspace) << backend->description();
    EXPECT_EQ(backend->reserved_bytes()->total(), before.total()) << backend->description();
  }
}

/// The inputs of the products that run at once, of a row, in the block that has most of them.
int64_t inputs_of_a_row(const ModelConfig& config) {
  const auto padded = [](int64_t columns) { return (columns + 15) / 16 * 16; };
  const int64_t hidden = padded(config.hidden);
  std::vector<int64_t> lists = {4 * hidden};  // of a delta-net layer: qkv, z, b and a
  lists.push_back(padded(int64_t{config.attention.q_heads} * config.attention.head_dim));
  lists.push_back(padded(int64_t{config.delta_net.v_heads} * config.delta_net.v_dim));
  lists.push_back(padded(config.dense_width));
  if (config.moe) {
    const int64_t experts = config.moe->top_k;
    lists.push_back((experts + 1) * 2 * hidden);  // gate and up, the shared expert's too
    lists.push_back(experts * padded(config.moe->expert_width) + padded(config.moe->shared_width));
  }
  return *std::ranges::max_element(lists);
}

TEST_P(CpuPassMemory, IsThatOfTheBlockWithTheMostInputs) {
  ModelConfig config = golden_.config;
  for (const int64_t rows : {1, 10, 300})
    EXPECT_EQ(cpu::block_input_floats(config, rows), rows * inputs_of_a_row(config));
  config.hidden = 16;
  config.attention.q_heads = 40;
  EXPECT_EQ(cpu::block_input_floats(config, 3), 3 * inputs_of_a_row(config));
  config.delta_net.v_heads = 400;
  config.delta_net.v_dim = 24;
  EXPECT_EQ(cpu::block_input_floats(config, 3), 3 * inputs_of_a_row(config));
  config.dense_width = 20001;
  EXPECT_EQ(cpu::block_input_floats(config, 3), 3 * inputs_of_a_row(config));
  if (!config.moe) return;
  config.moe->expert_width = 30001;
  config.moe->shared_width = 50001;
  EXPECT_EQ(cpu::block_input_floats(config, 3), 3 * inputs_of_a_row(config));
}

/// A piece of a tower has 256 patches, however few rows the pass of a text has.
TEST_P(CpuPassMemory, IsThatOfAVisionTowerWhereThatIsMore) {
  ModelConfig config = golden_.config;
  config.vision = VisionConfig{};
  VisionConfig& v = *config.vision;
  v.hidden = 5000;
  v.patch = v.temporal_patch = v.merge = 2;
  v.inner = 100;
  EXPECT_EQ(cpu::block_input_floats(config, 1), 256 * 5008);
  v.inner = 6001;
  EXPECT_EQ(cpu::block_input_floats(config, 1), 256 * 6016);
  EXPECT_EQ(cpu::block_input_floats(config, 1000000), 1000000 * inputs_of_a_row(config));
}

INSTANTIATE_TEST_SUITE_P(Models, CpuPassMemory, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

}  // namespace
}  // namespace nibble
