// Generation at the shapes of Qwen3.6-35B-A3B, four layers of it on random weights: which kernels
// run there small models do not show. Skipped without a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "base/file.h"
#include "model/synthetic_weights.h"
#include "testing/golden_checks.h"

namespace nibble {
namespace {

/// The last layers of one period: delta nets, then attention.
ModelConfig four_layers() {
  const std::string path = NIBBLE_SOURCE_DIR "/tests/golden/configs/qwen3.6-35b-a3b.json";
  const std::string text = read_text_file(path, uint64_t{1} << 20).value();
  ModelConfig config = ModelConfig::parse(parse_json(text, path).value()).value();
  config.layers.resize(4);
  return config;
}

class CudaRealShape : public testing::TestWithParam<WeightLayout> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
};

/// Sixty-four sequences alone, by threes, by twenties and all at once: one row has one result.
TEST_P(CudaRealShape, RowsDoNotDependOnTheirBatch) {
  constexpr int kSequences = 64;
  constexpr int kTokens = 2;
  const ModelConfig config = four_layers();
  const auto backend = make_random_cuda_backend(config, formats_of(GetParam()), {}).value();
  std::mt19937 engine(std::random_device{}());
  std::vector<std::vector<int32_t>> ids(kSequences);
  for (auto& sequence : ids)
    for (int i = 0; i < kTokens; ++i)
      sequence.push_back(static_cast<int32_t>(engine() % static_cast<uint32_t>(config.vocab_rows)));
  const auto run = [&](Backend& of, int together) {
    TestSession session(of, config, {.sequences = kSequences, .tokens_max = 64});
    std::vector<float> last;
    for (int i = 0; i < kTokens; ++i) {
      last.clear();
      for (int begin = 0; begin < kSequences; begin += together) {
        std::vector<TestSession::Feed> feeds;
        for (int s = begin; s < std::min(begin + together, kSequences); ++s)
          feeds.push_back(
              {.sequence = s,
               .tokens = std::span(ids[static_cast<size_t>(s)]).subspan(static_cast<size_t>(i), 1),
               .arithmetic = Arithmetic::generation});
        const std::vector<float> some = session.pass(feeds);
        last.insert(last.end(), some.begin(), some.end());
      }
    }
    return last;
  };
  const std::vector<float> alone = run(*backend, 1);
  EXPECT_TRUE(std::ranges::all_of(alone, [](float x) { return std::isfinite(x); }));
  const auto expect_the_same = [&](Backend& of, int together) {
    const std::vector<float> found = run(of, together);
    EXPECT_TRUE(std::ranges::equal(
        found, alone,
        [](float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); }))
        << together << " rows at once";
  };
  for (const int together : {3, 12, 20, kSequences}) expect_the_same(*backend, together);
  // Blocks of fewer tokens, as a card with less shared memory runs them.
  const auto smaller =
      make_random_cuda_backend(config, formats_of(GetParam()), {.card = {.shared_bytes = 99 << 10}})
          .value();
  expect_the_same(*smaller, kSequences);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaRealShape,
                         testing::Values(WeightLayout::mixed, WeightLayout::nvfp4,
                                         WeightLayout::bf16));

}  // namespace
}  // namespace nibble
