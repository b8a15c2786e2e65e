// Tests which tensors lie in which file, how files are named, and the index by which readers find
// them.
#include "checkpoint/shard_layout.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace nibble {
namespace {

TEST(ShardLayout, NumbersBeyondFiveDigitsAreWrittenOut) {
  const std::vector<TensorPlan> plan(100000, {"x", DType::u8, Shape{1}});
  const CheckpointLayout layout = lay_out_shards(plan, 1);
  ASSERT_EQ(layout.shards.size(), plan.size());
  EXPECT_EQ(layout.shards[8].file, "model-00009-of-100000.safetensors");
  EXPECT_EQ(layout.shards[99999].file, "model-100000-of-100000.safetensors");
}

TEST(ShardLayout, FilesOfTheirOwnComeAfterTheShards) {
  const auto files_of = [](const std::vector<const char*>& own, int64_t shard_bytes_max) {
    std::vector<TensorPlan> plan;
    for (const char* file : own)
      plan.push_back(
          {.name = concat("t", plan.size()), .dtype = DType::u8, .shape = {4}, .file = file});
    std::string text;
    for (const ShardLayout& shard : lay_out_shards(plan, shard_bytes_max).shards)
      text += concat(shard.file, ":", shard.tensors.size(), " ");
    return text;
  };
  EXPECT_EQ(files_of({}, 9), "");
  EXPECT_EQ(files_of({"", "", ""}, 12), "model.safetensors:3 ");
  EXPECT_EQ(files_of({"", "", ""}, 11),
            "model-00001-of-00002.safetensors:2 model-00002-of-00002.safetensors:1 ");
  EXPECT_EQ(files_of({"b", "a", "b"}, 9), "b.safetensors:2 a.safetensors:1 ");
  EXPECT_EQ(files_of({"b", "", "b"}, 9), "model-00001-of-00001.safetensors:1 b.safetensors:2 ");
}

TEST(ShardLayout, TheIndexHasTensorsOfLinkedFiles) {
  const std::vector<TensorPlan> plan = {{"b", DType::u8, Shape{4}}, {"a", DType::u8, Shape{2}}};
  const LinkedFile linked{.path = "/source/model_mtp.safetensors", .tensors = {"c"}, .bytes = 10};
  const Json index =
      parse_json(index_text(plan, lay_out_shards(plan, 4), {&linked, 1}), "index").value();
  EXPECT_EQ(
      index.dump(),
      R"({"metadata":{"total_size":16.0},"weight_map":{"a":"model-00002-of-00002.safetensors",)"
      R"("b":"model-00001-of-00002.safetensors","c":"model_mtp.safetensors"}})");
}

}  // namespace
}  // namespace nibble
