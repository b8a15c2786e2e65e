// The CPU backend holds what its formulas say, to the byte, in every configuration; and logits
// beyond the planned rows come and go outside of that account.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/pass_memory.h"
#include "backend/cpu/weight_bytes.h"
#include "backend/cpu/workspace.h"
#include "model/forward.h"
#include "model/sample_passes.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

class CpuReserved : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> make(BackendOptions options = {}) const {
    options.threads = 1;
    return make_cpu_backend(golden_.weights, golden_.config, options).value();
  }
  Golden golden_ = load_golden(GetParam());
};

TEST_P(CpuReserved, IsWhatTheFormulasSay) {
  const PoolSizes all_sizes[] = {
      {.pages = 1, .state_slots = 1, .rows_max = 1},
      {.pages = 7, .state_slots = 3, .rows_max = 65, .sequences_max = 1, .logit_rows = 1},
      {.pages = 16, .state_slots = 24, .rows_max = 512, .sequences_max = 16, .logit_rows = 16},
      {.pages = 9,
       .state_slots = 5,
       .rows_max = 80,
       .host_pages = 4,
       .host_slots = 2,
       .replay_rows = 5,
       .sequences_max = 4,
       .logit_rows = 20}};
  for (const Activations activations : {Activations::automatic, Activations::bf16,
                                        Activations::declared, Activations::f32, Activations::int8})
    for (const KvCache kv : {KvCache::automatic, KvCache::bf16, KvCache::fp8})
      for (const PoolSizes& sizes : all_sizes) {
        const auto backend = make({.activations = activations, .kv_cache = kv});
        backend->reserve(sizes).value();
        const ReservedBytes held = backend->reserved_bytes().value();
        EXPECT_EQ(held.pages, sizes.pages * backend->page_bytes());
        EXPECT_EQ(held.states,
                  sizes.state_slots * (backend->state_slot_bytes() +
                                       sizes.replay_rows * backend->replay_row_bytes()));
        EXPECT_EQ(held.workspace, backend->workspace_bytes(sizes)) << sizes.rows_max;
        EXPECT_EQ(held.workspace, cpu::pass_memory_bytes(golden_.config, sizes, activations));
        EXPECT_EQ(held.mapped, held.total());
        EXPECT_GT(held.weights, 0);
        EXPECT_EQ(held.tables > 0, golden_.config.kv_layers() > 0);
      }
}

/// Bytes of `rows` more rows of logits: the logits, and the hidden rows twice.
TEST_P(CpuReserved, ARowOfLogitsCostsItsVocabulary) {
  const ModelConfig& config = golden_.config;
  const auto bytes = [&](int32_t logit_rows) {
    return cpu::pass_memory_bytes(config, {.rows_max = 256, .logit_rows = logit_rows},
                                  Activations::f32);
  };
  const int64_t row =
      int64_t{4} * (config.vocab_rows + config.hidden) + cpu::Matrix::bytes_of(1, config.hidden);
  EXPECT_EQ(bytes(17) - bytes(16), row);
  EXPECT_EQ(bytes(0), bytes(256));
}

TEST_P(CpuReserved, MoreLogitsThanPlannedAreTheSame) {
  const ModelConfig& config = golden_.config;
  Batch batch;
  const auto rows = static_cast<int32_t>(golden_.sequences[0].ids.size());
  batch.tokens = golden_.sequences[0].ids;
  for (size_t axis = 0; axis < 3; ++axis)
    for (const auto& position : golden_.sequences[0].positions)
      batch.positions.push_back(position[axis]);
  const int32_t pages = (rows + kPageTokens - 1) / kPageTokens;
  for (int32_t page = 0; page < pages; ++page) batch.pages.push_back(page);
  batch.sequences = {{.row_count = rows, .page_count = pages}};
  const auto logits_of = [&](Backend& backend, int32_t first) {
    batch.logit_rows.clear();
    for (int32_t row = first; row < rows; ++row) batch.logit_rows.push_back(row);
    backend.zero_state(0);
    const HeadOutput output = forward(backend, config, batch);
    return std::vector<float>(output.logits.begin(), output.logits.end());
  };
  const PoolSizes sizes{.pages = 8, .state_slots = 1, .rows_max = 256};
  PoolSizes few = sizes;
  few.logit_rows = 2;
  const auto wide = make(), narrow = make();
  wide->reserve(sizes).value();
  narrow->reserve(few).value();
  const ReservedBytes before = narrow->reserved_bytes().value();
  EXPECT_LT(before.workspace, wide->reserved_bytes()->workspace);
  for (const int32_t first : {rows - 1, 0, rows / 2, rows - 2})
    EXPECT_EQ(logits_of(*narrow, first), logits_of(*wide, first)) << first;
  EXPECT_EQ(narrow->reserved_bytes()->workspace, before.workspace);
}

TEST_P(CpuReserved, ShapesWithoutRoomOnTheStackAreRefused) {
  ModelConfig config = golden_.config;
  config.layers = {LayerKind::delta_net};
  config.delta_net.conv_kernel = 17;
  EXPECT_EQ(make_cpu_backend(golden_.weights, config, {}).error().message,
            "convolution taps: expected at most 16, found 17");
}

TEST(EmbeddingBytes, AreThoseOfTheFormat) {
  LinearSource source{.rows = 256, .cols = 128};
  const auto bytes = [&](WeightFormat format, DType stored = DType::u8) {
    source.scheme.weights = format;
    return cpu::embedding_bytes(source, stored);
  };
  constexpr int64_t kCount = 256 * 128;
  EXPECT_EQ(bytes(WeightFormat::plain, DType::bf16), 2 * kCount);
  EXPECT_EQ(bytes(WeightFormat::nvfp4), kCount / 2 + kCount / 16);
  EXPECT_EQ(bytes(WeightFormat::fp8_tensor), kCount + 4);
  EXPECT_EQ(bytes(WeightFormat::fp8_channel), kCount + 4 * 256);
  EXPECT_EQ(bytes(WeightFormat::fp8_block), kCount + 4 * 2);
}

std::vector<std::string> names() {
  std::vector<std::string> all = golden_names();
  for (const std::string& name : mtp_golden_names()) all.push_back(name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, CpuReserved, testing::ValuesIn(names()), [](const auto& test) {
  const bool mtp = test.param.starts_with("model-mtp");
  return concat(golden_test_name(test.param), mtp ? "_mtp" : "");
});

}  // namespace
}  // namespace nibble
