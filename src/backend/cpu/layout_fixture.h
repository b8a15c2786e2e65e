// For tests: a small model on disk in each layout that synth writes, and its logits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/concat.h"
#include "model/forward.h"
#include "model/synthetic/synthetic_checkpoint.h"

namespace nibble::cpu {

class LayoutFixture : public testing::TestWithParam<WeightLayout> {
 protected:
  /// `name`: one of this test alone, for the folder.
  LayoutFixture(std::string_view name, const Json& config, uint64_t seed)
      : folder_(std::filesystem::path(testing::TempDir()) /
                concat(name, "_", weight_layout_name(GetParam()), "_", ::getpid())) {
    std::filesystem::remove_all(folder_);
    write_synthetic_checkpoint(config, folder_, {.layout = GetParam(), .seed = seed}).value();
  }
  ~LayoutFixture() override { std::filesystem::remove_all(folder_); }

  /// The logits of the first and the last of a few tokens.
  std::vector<float> logits(Backend& backend) const {
    const std::vector<int32_t> ids = {1, 7, 3, 9, 2};
    const auto rows = static_cast<int32_t>(ids.size());
    backend.reserve({.pages = 1, .state_slots = 1, .rows_max = 8}).value();
    backend.zero_state(0);
    Batch batch{.tokens = ids};
    for (int axis = 0; axis < 3; ++axis)
      for (int32_t i = 0; i < rows; ++i) batch.positions.push_back(i);
    batch.sequences = {{.row_count = rows, .page_count = 1}};
    batch.pages = {0};
    batch.logit_rows = {0, rows - 1};
    const HeadOutput out = forward(backend, config_, batch);
    return {out.logits.begin(), out.logits.end()};
  }

  std::filesystem::path folder_;
  ModelConfig config_;
};

inline auto stored_layouts() {
  return testing::Values(WeightLayout::mixed, WeightLayout::nvfp4, WeightLayout::fp8,
                         WeightLayout::bf16);
}
inline std::string layout_name(const testing::TestParamInfo<WeightLayout>& test) {
  return std::string(weight_layout_name(test.param));
}

}  // namespace nibble::cpu
