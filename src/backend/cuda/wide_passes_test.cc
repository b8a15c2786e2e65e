// Passes of 65 to 256 generated rows, recorded and launched block by block, on Pebble. Needs a
// card.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "backend/cuda/bench_access.h"
#include "backend/cuda/cuda_backend.h"
#include "checkpoint/checkpoint.h"
#include "testing/source_dir.h"
#include "testing/test_session.h"

namespace nibble {
namespace {

using Logits = std::vector<float>;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

struct CacheKinds {
  const char* name;
  KvCache kv = KvCache::bf16;
  StateCache state = StateCache::f32;
};

/// The rows of each pass: the largest recording, the sizes of others, and numbers between. Row s
/// is of sequence s.
constexpr int kRows[] = {256, 255, 193, 192, 160, 129, 128, 100, 81, 80, 66, 65};
constexpr size_t kPasses = std::size(kRows);
constexpr SessionLimits kLimits{.sequences = kRows[0], .tokens_max = 64};

class CudaWidePasses : public testing::TestWithParam<CacheKinds> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    backend_ =
        make_cuda_backend(weights_, config_, {.kv_cache = GetParam().kv, .state = GetParam().state})
            .value();
    std::mt19937 engine(300);
    for (int s = 0; s < kRows[0]; ++s)
      for (size_t i = 0; i < kPasses; ++i)
        ids_.push_back(static_cast<int32_t>(engine() % static_cast<uint32_t>(config_.vocab_rows)));
  }
  /// Token `i` of sequence `s`.
  TestSession::Feed feed(int s, size_t i) const {
    return {.sequence = s,
            .tokens = std::span(ids_).subspan(static_cast<size_t>(s) * kPasses + i, 1),
            .arithmetic = Arithmetic::generation};
  }
  /// The logits of every row, in passes of a single row: [sequence][pass].
  std::vector<std::vector<Logits>> alone() {
    TestSession session(*backend_, config_, kLimits);
    std::vector<std::vector<Logits>> logits(static_cast<size_t>(kRows[0]));
    for (int s = 0; s < kRows[0]; ++s)
      for (size_t i = 0; i < kPasses && s < kRows[i]; ++i)
        logits[static_cast<size_t>(s)].push_back(session.pass({feed(s, i)}));
    return logits;
  }
  void expect_together(const std::vector<std::vector<Logits>>& expected, const char* how) {
    TestSession session(*backend_, config_, kLimits);
    const auto vocab = static_cast<size_t>(config_.vocab_rows);
    for (size_t i = 0; i < kPasses; ++i) {
      std::vector<TestSession::Feed> feeds;
      for (int s = 0; s < kRows[i]; ++s) feeds.push_back(feed(s, i));
      const Logits all = session.pass(feeds);
      for (size_t s = 0; s < feeds.size(); ++s)
        EXPECT_TRUE(same_bits(std::span(all).subspan(s * vocab, vocab), expected[s][i]))
            << "row " << s << " of " << feeds.size() << ", " << how;
    }
  }

  Checkpoint checkpoint_ = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  ModelConfig config_ = ModelConfig::parse(checkpoint_.config()).value();
  Weights weights_ = Weights::bind(checkpoint_, config_).value();
  std::unique_ptr<Backend> backend_;
  std::vector<int32_t> ids_;
};

TEST_P(CudaWidePasses, RowsDoNotDependOnTheirBatch) {
  const std::vector<std::vector<Logits>> expected = alone();
  expect_together(expected, "recorded");
  cuda::watch_blocks(*backend_, [](const Batch&, int) {});  // then nothing runs recorded
  expect_together(expected, "launched block by block");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaWidePasses,
                         testing::Values(CacheKinds{"bf16"}, CacheKinds{"fp8", KvCache::fp8},
                                         CacheKinds{"state_bf16", KvCache::bf16, StateCache::bf16}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nibble
