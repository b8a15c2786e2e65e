// The layout of a workspace, computed without a card: slices lie inside and apart from each other,
// counting and cutting agree, and the sizes for real models are those that a server reported.
#include "backend/cuda/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/recorded_plan.h"
#include "backend/cuda/weights/device_weights.h"
#include "plan/testing/real_models.h"

namespace nibble::cuda {
namespace {

std::byte* const kBase = reinterpret_cast<std::byte*>(int64_t{1} << 40);  // never read

struct Named {
  const char* name;
  DeviceSlice slice;
};

/// The slices that hold values at the same time as all others of the list.
std::vector<Named> apart(const Workspace& w) {
  return {{"h", w.h},
          {"x", w.x},
          {"mixed", w.mixed},
          {"first", w.first},
          {"third", w.third},
          {"gates", w.gates},
          {"router", w.router},
          {"act", w.act},
          {"expert_y", w.expert_y},
          {"choices", w.choices},
          {"flag", w.flag},
          {"rounded", w.rounded},
          {"ahead", w.ahead},
          {"groups", w.groups},
          {"ordered", w.ordered},
          {"spread", w.spread},
          {"gate_up", w.gate_up},
          {"rest", w.rest},
          {"batch", w.batch},
          {"choice state", w.choice.state},
          {"choice rows", w.choice.rows},
          {"biases", w.choice.biases},
          {"masks", w.choice.masks},
          {"sampleable", w.choice.sampleable},
          {"counts", w.choice.counts},
          {"counted", w.choice.counted},
          {"chunks", w.prompt.chunks},
          {"sequences", w.prompt.sequences},
          {"runs", w.prompt.runs},
          {"tiles", w.prompt.tiles},
          {"prompt act", w.prompt.mlp.act},
          {"shared", w.shared}};
}

/// The slices that one block takes of `shared`.
std::vector<std::vector<Named>> blocks(const Workspace& w) {
  const PromptMlpMemory& m = w.prompt.mlp;
  return {{{"partial", w.partial}},
          {{"convolved", w.convolved}},
          {{"logits", w.logits}, {"hidden_rows", w.hidden_rows}},
          {{"y", m.y},
           {"router", m.router},
           {"chosen", m.chosen},
           {"chosen_weight", m.chosen_weight},
           {"token", m.token},
           {"position", m.position},
           {"scratch", m.scratch},
           {"tiles", m.tiles},
           {"tile_count", m.tile_count}}};
}

int64_t begin_of(const DeviceSlice& slice) { return slice.as<std::byte>() - kBase; }

/// Every slice that is not empty lies in [begin, end) at a multiple of 256 bytes, and none overlap.
void expect_apart(std::vector<Named> slices, int64_t begin, int64_t end) {
  std::erase_if(slices, [](const Named& each) { return each.slice.bytes() == 0; });
  std::ranges::sort(slices, {}, [](const Named& each) { return begin_of(each.slice); });
  for (const Named& each : slices) {
    EXPECT_GE(begin_of(each.slice), begin) << each.name;
    EXPECT_EQ(begin_of(each.slice) % 256, 0) << each.name;
    begin = begin_of(each.slice) + each.slice.bytes();
    EXPECT_LE(begin, end) << each.name;
  }
}

std::vector<WorkspaceNeeds> needs_of(const ModelConfig& config) {
  std::vector<WorkspaceNeeds> all;
  for (const auto activations : {Activations::bf16, Activations::declared, Activations::f32})
    for (const int32_t rows : {1, 63, 512, 8192})
      for (const int32_t sequences : {0, 1, 64})
        all.push_back(workspace_needs(
            config,
            {.pages = 4096, .state_slots = 80, .rows_max = rows, .sequences_max = sequences},
            activations));
  return all;
}

TEST(Workspace, SlicesLieInsideAndApart) {
  for (const char* name : {"qwen3.6-35b-a3b", "qwen3.6-27b", "qwen3-30b-a3b", "qwen3.5-4b"}) {
    const ModelConfig config = real_config(name);
    for (const WorkspaceNeeds& needs : needs_of(config)) {
      SCOPED_TRACE(testing::Message()
                   << config.hidden << " wide, " << needs.sizes.rows_max << " rows, activations "
                   << activations_name(needs.activations));
      const Workspace counted = Workspace::cut(config, needs, nullptr);
      const Workspace work = Workspace::cut(config, needs, kBase);
      EXPECT_EQ(counted.bytes, work.bytes);
      expect_apart(apart(work), 0, work.bytes);
      const int64_t begin = begin_of(work.shared);
      for (const std::vector<Named>& block : blocks(work))
        expect_apart(block, begin, begin + work.shared.bytes());
    }
  }
}

/// The contracts of the fields, in bytes, at one size.
TEST(Workspace, FieldsHaveTheBytesOfTheirShapes) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const int64_t rows = 512;
  const Workspace work =
      Workspace::cut(config,
                     workspace_needs(config, {.pages = 4096, .state_slots = 8, .rows_max = 512},
                                     Activations::bf16),
                     kBase);
  EXPECT_EQ(work.h.bytes(), rows * 2048 * 4);
  EXPECT_EQ(work.x.bytes(), rows * 2048 * 2);
  EXPECT_EQ(work.first.bytes(), rows * 8192 * 4);  // q with its gate, or qkv of a delta net
  EXPECT_EQ(work.third.bytes(), rows * 4096 * 4);  // z
  EXPECT_EQ(work.mixed.bytes(), rows * 4096 * 2);
  EXPECT_EQ(work.gates.bytes(), rows * 64 * 4);
  EXPECT_EQ(work.expert_y.bytes(), 256 * 9 * 2048 * 4);
  EXPECT_EQ(work.prompt.mlp.act.bytes(), rows * 9 * 512 * 2);
  EXPECT_EQ(work.prompt.mlp.y.bytes(), rows * 9 * 2048 * 2);
  EXPECT_EQ(work.logits.bytes(), int64_t{64} * config.vocab_rows * 4);
  EXPECT_EQ(work.partial.bytes(), int64_t{64} * 16 * 128 * (256 * 2 + 16));
}

/// The figure that `serve` prints for the 35B on an H200.
TEST(Workspace, IsWhatAServerPrints) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const PoolSizes sizes{.pages = 1 << 20, .state_slots = 64, .rows_max = 8192, .sequences_max = 64};
  const WorkspaceNeeds needs = workspace_needs(config, sizes, Activations::bf16);
  EXPECT_NEAR(1e-6 * static_cast<double>(Workspace::cut(config, needs, nullptr).bytes), 1020.0,
              0.05);
}

/// There are as many recordings as sequences need, in the rows that there are, 256 rows at most.
TEST(RecordedPlan, FollowsSequencesAndRows) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const auto last = [&](int32_t sequences, int32_t rows) {
    return recorded_rows(config, {.rows_max = rows, .sequences_max = sequences}).back();
  };
  EXPECT_EQ(last(1, 512), 1);
  EXPECT_EQ(last(16, 512), 16);
  EXPECT_EQ(last(17, 512), 24);
  EXPECT_EQ(last(65, 512), 80);
  EXPECT_EQ(last(1000, 2048), 256);
  EXPECT_EQ(last(64, 63), 56);
  const auto bytes = [&](int32_t sequences) {
    return recorded_bytes(config, {.rows_max = 512, .sequences_max = sequences});
  };
  EXPECT_EQ(bytes(64) - bytes(56), (3 + 40 * 10) * 4096);
}

/// Passes that replay are recorded for powers of two of sequences, with a few rows each; steps of
/// drafts for the same, up to what the head holds.
TEST(RecordedPlan, HasPassesThatReplayAndStepsOfDrafts) {
  ModelConfig config = real_config("qwen3.6-35b-a3b");
  const PoolSizes sizes{.rows_max = 512, .replay_rows = 4, .sequences_max = 5};
  std::vector<Extent> replaying;
  for (const Extent& extent : recorded_extents(config, sizes))
    if (extent.replays) replaying.push_back(extent);
  std::vector<Extent> expected;
  for (const int32_t sequences : {1, 2, 4, 8})
    for (const int32_t each : {1, 2, 4})
      expected.push_back({.rows = sequences * each, .sequences = sequences, .replays = true});
  EXPECT_EQ(replaying, expected);
  EXPECT_TRUE(recorded_drafts(config, sizes).empty());
  config.draft_layers = 1;
  EXPECT_EQ(recorded_drafts(config, sizes), (std::vector<int32_t>{1, 2, 4, 8}));
  EXPECT_EQ(recorded_drafts(config, {.rows_max = 512, .sequences_max = 200}).back(), 64);
  const auto last = [&](int32_t sequences, int32_t replay_rows) {
    return recorded_extents(
               config, {.rows_max = 512, .replay_rows = replay_rows, .sequences_max = sequences})
        .back();
  };
  EXPECT_EQ(last(64, 4), (Extent{.rows = 256, .sequences = 64, .replays = true}));
  EXPECT_EQ(last(64, 6), (Extent{.rows = 256, .sequences = 64, .replays = true}));  // not 384
}

/// In F32 every input has kF32Parts parts, and prompts go the way of generated rows.
TEST(Workspace, F32HasParts) {
  const ModelConfig config = real_config("qwen3.6-35b-a3b");
  const WorkspaceNeeds needs =
      workspace_needs(config, {.pages = 64, .state_slots = 8, .rows_max = 64}, Activations::f32);
  EXPECT_FALSE(needs.prompts);
  const Workspace work = Workspace::cut(config, needs, kBase);
  EXPECT_EQ(work.x_stride, kF32Parts * 2048);
  EXPECT_EQ(work.x.bytes(), int64_t{64} * kF32Parts * 2048 * 2);
  EXPECT_EQ(work.prompt.chunks.bytes(), 0);
}

}  // namespace
}  // namespace nibble::cuda
