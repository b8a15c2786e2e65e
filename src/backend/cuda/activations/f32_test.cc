// `--activations f32` on a card: whole models against transformers, the reference and the CPU, and
// what the mode does to caches and memory. Single blocks: block_test.cc. Needs a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "checkpoint/checkpoint.h"
#include "testing/golden_checks.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

/// The house bar is 1e-3. One input rounded to BF16 costs 1e-3 to 1e-2, so it would show.
constexpr double kLogitErrorMax = 1e-4;

class CudaF32 : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
};

class CudaF32Golden : public CudaF32, public testing::WithParamInterface<std::string> {
 protected:
  GoldenChecks checks() {
    return {GetParam(), make_cuda_backend, {.activations = Activations::f32}, kLogitErrorMax};
  }
};

TEST_P(CudaF32Golden, IsTransformers) {
  GoldenChecks checks = this->checks();
  checks.expect_prefill(0);
  checks.expect_prefill(7);
  checks.expect_mixed_batch();
  checks.expect_snapshots();
  checks.expect_greedy();
  checks.report();
}
TEST_P(CudaF32Golden, SameBitsInPiecesAndMixed) { checks().expect_same_bits(); }

INSTANTIATE_TEST_SUITE_P(Models, CudaF32Golden, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

class CudaF32Quantized : public CudaF32, public testing::WithParamInterface<std::string> {};

TEST_P(CudaF32Quantized, IsTransformersWithTheSameWeights) {
  GoldenChecks checks(GetParam(), make_cuda_backend, {.activations = Activations::f32});
  checks.expect_divergence(GoldenChecks::Distributions::weights_only);
}

/// The same ids as one prompt and as generated rows.
TEST_P(CudaF32Quantized, IsTheReference) {
  const Golden golden = load_golden(GetParam());
  const GoldenSequence& sequence = golden.sequences.front();
  const auto run = [&](const BackendFactory& make, size_t piece, Arithmetic arithmetic) {
    const auto backend =
        make(golden.weights, golden.config, {.activations = Activations::f32}).value();
    TestSession session(*backend, golden.config, {.sequences = 1});
    return logits_in_pieces(session, sequence, piece, {.arithmetic = arithmetic});
  };
  const size_t whole = sequence.ids.size();
  const auto expected = run(make_reference_backend, whole, Arithmetic::prompt);
  const double prompt = relative_error(run(make_cuda_backend, whole, Arithmetic::prompt), expected);
  const double single = relative_error(run(make_cuda_backend, 1, Arithmetic::generation), expected);
  std::fprintf(stderr, "%s: relative error %.2e as a prompt, %.2e row by row\n", GetParam().c_str(),
               prompt, single);
  EXPECT_LE(prompt, kLogitErrorMax);
  EXPECT_LE(single, kLogitErrorMax);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaF32Quantized, testing::ValuesIn(quantized_golden_names()),
                         [](const auto& test) { return golden_test_name(test.param); });

class CudaF32Pebble : public CudaF32 {
 protected:
  std::unique_ptr<Backend> make(const BackendOptions& options) {
    return make_cuda_backend(weights_, config_, options).value();
  }
  Checkpoint checkpoint_ = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  ModelConfig config_ = ModelConfig::parse(checkpoint_.config()).value();
  Weights weights_ = Weights::bind(checkpoint_, config_).value();
};

/// Half a prompt, half its greedy continuation by the CPU: the same logits and the same text.
TEST_F(CudaF32Pebble, SaysWhatTheCpuSays) {
  constexpr size_t kPrompt = 150;
  constexpr size_t kTokens = 300;
  const auto vocab = static_cast<size_t>(config_.vocab_rows);
  const auto cpu = make_cpu_backend(weights_, config_, {}).value();
  const auto cuda = make({.activations = Activations::f32});
  const SessionLimits limits{.sequences = 1, .tokens_max = kTokens};
  TestSession expected(*cpu, config_, limits);
  TestSession found(*cuda, config_, limits);
  std::mt19937 engine(3);
  std::vector<int32_t> ids(kPrompt);
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % vocab);
  const auto best = [vocab](std::span<const float> logits) {
    const auto last = logits.last(vocab);
    return static_cast<int32_t>(std::ranges::max_element(last) - last.begin());
  };
  double error = 0.0;
  for (size_t at = 0; ids.size() < kTokens;) {
    const TestSession::Feed feed{
        .tokens = std::span(ids).subspan(at),
        .arithmetic = at == 0 ? Arithmetic::prompt : Arithmetic::generation};
    const std::vector<float> e = expected.pass({feed});
    const std::vector<float> f = found.pass({feed});
    error = std::max(error, relative_error(f, e));
    EXPECT_EQ(best(f), best(e)) << "after token " << ids.size();
    at = ids.size();
    ids.push_back(best(e));
  }
  std::fprintf(stderr, "relative error %.2e over %zu tokens\n", error, kTokens);
  EXPECT_LE(error, kLogitErrorMax);
}

/// Pages are as wide as they are asked for, F32 if nobody asks.
TEST_F(CudaF32Pebble, PagesAreOfTheFormatAskedFor) {
  const auto page_bytes = [&](Activations activations, KvCache kv) {
    const auto backend = make({.activations = activations, .kv_cache = kv});
    return backend->page_bytes();
  };
  const int64_t wide = page_bytes(Activations::bf16, KvCache::automatic);
  EXPECT_EQ(page_bytes(Activations::f32, KvCache::automatic), 2 * wide);
  EXPECT_EQ(page_bytes(Activations::f32, KvCache::bf16), wide);
  EXPECT_EQ(2 * page_bytes(Activations::f32, KvCache::fp8), wide);
}

/// Narrower pages are read as they are kept: near the wide ones, and not the same.
TEST_F(CudaF32Pebble, ReadsNarrowPages) {
  std::mt19937 engine(4);
  std::vector<int32_t> ids(200);
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 1000);
  const auto run = [&](KvCache kv) {
    const auto backend = make({.activations = Activations::f32, .kv_cache = kv});
    TestSession session(*backend, config_, {.sequences = 1});
    return session.pass({{.tokens = ids}});
  };
  const std::vector<float> wide = run(KvCache::automatic);
  for (const auto& [kv, error_max] : {std::pair(KvCache::bf16, 0.05), {KvCache::fp8, 0.5}}) {
    const double error = relative_error(run(kv), wide);
    std::fprintf(stderr, "pages in %s: relative error %.2e\n",
                 std::string(kv_cache_name(kv)).c_str(), error);
    EXPECT_GT(error, 1e-5) << kv_cache_name(kv);
    EXPECT_LE(error, error_max) << kv_cache_name(kv);
  }
}

TEST_F(CudaF32Pebble, SaysSoAndPlansItsMemory) {
  const auto backend = make({.activations = Activations::f32});
  EXPECT_NE(backend->description().find("activations f32"), std::string::npos);
  EXPECT_NE(backend->description().find("KV f32"), std::string::npos) << backend->description();
  EXPECT_NE(backend->kernel_table().find("activations f32"), std::string::npos);
  const PoolSizes sizes{.pages = 40, .state_slots = 5, .rows_max = 256};
  const DeviceMemory loaded = backend->device_memory().value();
  const int64_t workspace = backend->workspace_bytes(sizes);
  backend->reserve(sizes).value();
  EXPECT_EQ(backend->device_memory().value().allocated,
            loaded.allocated + workspace + sizes.pages * backend->page_bytes() +
                sizes.state_slots * backend->state_slot_bytes());
}

}  // namespace
}  // namespace nibble
