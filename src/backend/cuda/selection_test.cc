// The choice of kernels on cards of every architecture, for the shapes of real models, against a
// recorded table: a change of a condition shows as changed lines. The lines come from the tests of
// the operations (testing/plan_tables.h).
#include <gtest/gtest.h>

#include "backend/cuda/testing/plan_tables.h"
#include "base/file.h"
#include "plan/testing/real_models.h"
#include "testing/source_dir.h"

namespace nibble::cuda {
namespace {

/// Operations whose plans do not depend on the format of weights.
std::string operation_lines() {
  std::string out;
  for (const std::string name : {"qwen3.6-35b-a3b", "qwen3.6-27b"}) {
    const ModelConfig config = real_config(name);
    for (const KvFormat kv : kPageFormats) out += attention_lines(name, config, kv);
    for (const StateFormat state : {StateFormat::f32, StateFormat::bf16})
      out += delta_net_lines(name, config, state);
    if (config.moe) out += route_lines(name, config);
  }
  return out + prompt_gemm_lines();
}

TEST(CudaSelectionTest, MatchesTheRecordedTable) {
  struct Model {
    std::string name;
    WeightLayout layout;
  };
  const Model models[] = {{"qwen3.6-35b-a3b", WeightLayout::mixed},
                          {"qwen3.6-35b-a3b", WeightLayout::nvfp4},
                          {"qwen3.6-35b-a3b", WeightLayout::bf16},
                          {"qwen3.6-27b", WeightLayout::mixed},
                          {"qwen3.5-4b", WeightLayout::fp8}};
  std::string found;
  for (const Model& model : models) found += product_lines(model.name, model.layout);
  found += operation_lines();
  const std::string path = NIBBLE_SOURCE_DIR "/tests/golden/cuda_plans.txt";
  const std::string now = testing::TempDir() + "cuda_plans.txt";
  ASSERT_TRUE(write_file_atomically(now, found).ok());
  const auto recorded = read_text_file(path, uint64_t{1} << 20);
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;
  EXPECT_EQ(found, recorded.value()) << "if this change is wanted: cp " << now << " " << path;
}

}  // namespace
}  // namespace nibble::cuda
