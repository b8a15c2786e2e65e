// Generation at the shapes of Qwen3.6-35B-A3B and of dense models, four layers of them on random
// weights: which kernels run there small models do not show. Skipped without a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "base/file.h"
#include "model/weights/synthetic_weights.h"
#include "testing/golden_checks.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

/// The layers of one period: delta nets, then attention.
ModelConfig four_layers(const char* model) {
  const std::string path = concat(NIBBLE_SOURCE_DIR "/tests/golden/configs/", model, ".json");
  const std::string text = read_text_file(path, uint64_t{1} << 20).value();
  ModelConfig config = ModelConfig::parse(parse_json(text, path).value()).value();
  config.layers.resize(4);
  return config;
}

struct Kinds {
  const char* name;
  WeightLayout layout;
  StateCache state = StateCache::f32;
  Activations activations = Activations::bf16;
  const char* model = "qwen3.6-35b-a3b";
  ModelConfig config() const { return four_layers(model); }
  BackendOptions options() const { return {.activations = activations, .state = state}; }
};

class CudaRealShape : public testing::TestWithParam<Kinds> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
};

/// Many sequences alone, by threes, by twenties, and so on to all at once: one row has one result.
TEST_P(CudaRealShape, RowsDoNotDependOnTheirBatch) {
  constexpr int kSequences = 150;
  constexpr int kTokens = 2;
  const ModelConfig config = GetParam().config();
  const FormatOf formats = formats_of(GetParam().layout);
  BackendOptions options = GetParam().options();
  const auto backend = make_random_cuda_backend(config, formats, options).value();
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
  for (const int together : {3, 12, 20, 64, 70, kSequences}) expect_the_same(*backend, together);
  // Blocks of fewer tokens, as a card with less shared memory runs them.
  options.card.shared_bytes = 99 << 10;
  const auto smaller = make_random_cuda_backend(config, formats, options).value();
  expect_the_same(*smaller, kSequences);
}

/// Generated rows of a sequence in one pass, few sequences and many: the bits of one at a time.
TEST_P(CudaRealShape, RowsOfASequenceTogether) {
  constexpr size_t kTokens = 3;
  const ModelConfig config = GetParam().config();
  const auto vocab = static_cast<size_t>(config.vocab_rows);
  const FormatOf formats = formats_of(GetParam().layout);
  const auto backend = make_random_cuda_backend(config, formats, GetParam().options()).value();
  const std::vector<int32_t> ids = {7, 1234, 99, 5, 4321, 86420, 31, 2, 1000};
  const auto feed = [&](int sequence, size_t begin, size_t count) {
    return TestSession::Feed{
        .sequence = sequence,
        .tokens = std::span(ids).subspan(static_cast<size_t>(sequence) + begin, count),
        .arithmetic = Arithmetic::generation};
  };
  for (const int sequences : {2, 7}) {
    const SessionLimits limits{.sequences = sequences, .tokens_max = 64};
    std::vector<TestSession::Feed> feeds;
    for (int s = 0; s < sequences; ++s) feeds.push_back(feed(s, 0, kTokens));
    TestSession whole(*backend, config, limits);
    const std::vector<float> together = whole.pass(feeds);
    TestSession single(*backend, config, limits);
    for (size_t i = 0; i < kTokens; ++i)
      for (int s = 0; s < sequences; ++s) {
        const size_t row = static_cast<size_t>(s) * kTokens + i;
        EXPECT_TRUE(std::ranges::equal(single.pass({feed(s, i, 1)}),
                                       std::span(together).subspan(row * vocab, vocab)))
            << "token " << i << " of sequence " << s << " of " << sequences;
      }
  }
}

/// A prompt and generated rows by all widths of pass, over two layers with few experts and tokens:
/// what compute-sanitizer can follow (tools/cuda_sanitize.sh).
TEST_P(CudaRealShape, EveryKindOfPassIsFinite) {
  constexpr int kSequences = 64;
  constexpr int kPrompt = 70;
  ModelConfig config = GetParam().config();
  config.layers = {LayerKind::delta_net, LayerKind::attention};
  config.vocab_rows = 2048;
  if (config.moe) {
    config.moe->experts = 16;
  } else {
    config.dense_width = 6400;
  }
  BackendOptions options = GetParam().options();
  if (GetParam().layout == WeightLayout::nvfp4) options.kv_cache = KvCache::fp8;
  const auto backend =
      make_random_cuda_backend(config, formats_of(GetParam().layout), options).value();
  TestSession session(*backend, config, {.sequences = kSequences, .tokens_max = 128});
  std::vector<int32_t> ids(kPrompt);
  std::mt19937 engine(std::random_device{}());
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 2048);
  const auto expect_finite = [&](const std::vector<TestSession::Feed>& feeds) {
    EXPECT_TRUE(std::ranges::all_of(session.pass(feeds), [](float x) { return std::isfinite(x); }))
        << feeds.size() << " sequences";
  };
  expect_finite({{.sequence = 0, .tokens = ids, .arithmetic = Arithmetic::prompt}});
  for (const int together : {1, 3, 12, 20, kSequences}) {
    std::vector<TestSession::Feed> feeds;
    for (int s = 0; s < together; ++s)
      feeds.push_back({.sequence = s,
                       .tokens = std::span(ids).subspan(static_cast<size_t>(s), 1),
                       .arithmetic = Arithmetic::generation});
    expect_finite(feeds);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, CudaRealShape,
    testing::Values(
        Kinds{"mixed", WeightLayout::mixed},
        Kinds{"mixed_state_bf16", WeightLayout::mixed, StateCache::bf16},
        Kinds{"nvfp4", WeightLayout::nvfp4}, Kinds{"bf16", WeightLayout::bf16},
        Kinds{"mixed_f32", WeightLayout::mixed, StateCache::f32, Activations::f32},
        Kinds{.name = "dense_mixed", .layout = WeightLayout::mixed, .model = "qwen3.6-27b"},
        Kinds{.name = "dense_nvfp4", .layout = WeightLayout::nvfp4, .model = "qwen3.6-27b"},
        Kinds{.name = "dense_9b_mixed", .layout = WeightLayout::mixed, .model = "qwen3.5-9b"},
        Kinds{.name = "dense_4b_mixed", .layout = WeightLayout::mixed, .model = "qwen3.5-4b"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nibble
