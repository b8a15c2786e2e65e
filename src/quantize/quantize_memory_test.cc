// The memory that the parts of a run ask for, in numbers: what is told to the user before the work,
// and what a limit is compared with.
#include <gtest/gtest.h>

#include "quantize/allocate/format_losses.h"
#include "quantize/gradient/fisher_weights.h"
#include "quantize/quantize.h"

namespace nibble {
namespace {

constexpr int64_t kKept = int64_t{64} << 20;  // freed, but kept by the allocator
constexpr int64_t kOutput = 512;              // of the hashes and the name of one

PlannedLinear linear_of(std::string module, int64_t rows, int64_t cols) {
  PlannedLinear linear;
  linear.source.module = std::move(module);
  linear.source.rows = rows;
  linear.source.cols = cols;
  return linear;
}

/// Groups of 2000, 5000 and 3000 bytes, three outputs.
QuantPlan small_plan() {
  QuantPlan plan;
  for (const int64_t bytes : {2000, 5000, 3000})
    plan.rounded.push_back(
        {.linears = {linear_of("model.layers.0.mlp.down_proj", 4, 32)}, .bytes = bytes});
  plan.outputs.resize(3);
  return plan;
}

int64_t small_bytes(int64_t held_bytes_max, int threads) {
  return quantize_memory_bytes(
      small_plan(), {.threads = threads, .held_bytes_max = held_bytes_max, .block_bytes = 100},
      nullptr);
}

TEST(QuantizeMemory, IsThatOfTheGroupsThatAreHeldAtOnceAndOfABlockForEachThread) {
  EXPECT_EQ(small_bytes(1 << 20, 1), 5000 + 100 + 3 * kOutput + kKept);
  EXPECT_EQ(small_bytes(1 << 20, 3), 3 * 5000 + 3 * 100 + 3 * kOutput + kKept);
  // A group of more than an eighth of the limit has all threads for itself.
  EXPECT_EQ(small_bytes(8000, 4), 5000 + 4 * 100 + 3 * kOutput + kKept);
  EXPECT_EQ(small_bytes(8000, 6), 6 * 1000 + 6 * 100 + 3 * kOutput + kKept);
  EXPECT_EQ(small_bytes(4000, 2), 4000 + 2 * 100 + 3 * kOutput + kKept);
}

/// An embedding is rounded without data, so nothing is kept of its inputs.
TEST(QuantizeMemory, GptqHoldsTheSumsOfTheWidestLinearButNotOfTheEmbedding) {
  QuantPlan plan = small_plan();
  const auto bytes = [&](RoundAlgorithm algorithm) {
    return quantize_memory_bytes(
        plan, {.algorithm = algorithm, .threads = 2, .held_bytes_max = 1 << 20, .block_bytes = 100},
        nullptr);
  };
  const int64_t without = bytes(RoundAlgorithm::blocks);
  EXPECT_EQ(bytes(RoundAlgorithm::gptq), without + 2 * 32 * 32 * (8 + 4));
  plan.rounded.push_back(
      {.linears = {linear_of("model.language_model.embed_tokens", 8, 512)}, .bytes = 10});
  EXPECT_EQ(bytes(RoundAlgorithm::gptq), without + 2 * 32 * 32 * (8 + 4));
}

TEST(QuantizeMemory, LessIsHeldBeforeFewerThreadsWork) {
  const auto fitted = [](int64_t limit) {
    QuantizeOptions options{.threads = 4, .held_bytes_max = 8192, .block_bytes = 1024};
    const auto done = fit_memory(small_plan(), limit, nullptr, options);
    if (!done.ok()) return std::tuple(done.error().message, int64_t{0}, 0);
    return std::tuple(std::string(), options.held_bytes_max, options.threads);
  };
  const int64_t fixed = 3 * kOutput + kKept;
  EXPECT_EQ(fitted(5000 + 4 * 1024 + fixed), std::tuple("", 8192, 4));
  EXPECT_EQ(fitted(5000 + 4 * 1024 + fixed - 1), std::tuple("", 4096, 4));
  EXPECT_EQ(fitted(1024 + 4 * 1024 + fixed), std::tuple("", 1024, 4));
  EXPECT_EQ(fitted(1024 + 4 * 1024 + fixed - 1), std::tuple("", 1024, 3));
  EXPECT_EQ(fitted(1024 + 1 * 1024 + fixed), std::tuple("", 1024, 1));
  const std::string refused = std::get<0>(fitted(1024 + 1 * 1024 + fixed - 1));
  EXPECT_EQ(refused, concat("--memory-limit: expected at least ", 2048 + fixed,
                            " bytes for this checkpoint, found ", 2047 + fixed));
}

/// In F32 and in both formats: the linears of the largest layer; in F32 again: the largest linear.
TEST(FormatLossBytes, AreThoseOfTheLargestLayerAndTheLargestLinear) {
  QuantPlan plan;
  plan.rounded = {{.linears = {linear_of("model.layers.0.self_attn.q_proj", 48, 64),
                               linear_of("model.layers.0.self_attn.k_proj", 16, 64)}},
                  {.linears = {linear_of("model.layers.0.mlp.down_proj", 32, 64)}},
                  {.linears = {linear_of("model.layers.1.mlp.down_proj", 64, 64)}}};
  constexpr int64_t kLayer = (48 + 16 + 32) * 64, kLinear = 64 * 64;
  EXPECT_EQ(format_loss_bytes(plan), kLayer * 4 + kLayer + kLayer / 2 + kLayer / 16 + kLinear * 4);
}

/// Streams before each of three layers and after the last, and a gradient for each draw, in F32.
TEST(FisherMemory, IsThatOfTheSamplesThatAreTakenTogether) {
  ModelConfig config;
  config.hidden = 10;
  config.layers.resize(3);
  constexpr int64_t kToken = 10 * (3 + 1 + 2) * 4;
  const auto bytes = [&](int64_t states_bytes_max) {
    return fisher_state_bytes(100, 7, config,
                              {.label_draws = 2, .states_bytes_max = states_bytes_max});
  };
  EXPECT_EQ(bytes(10 * kToken), 10 * kToken);
  EXPECT_EQ(bytes(11 * kToken - 1), 10 * kToken);
  EXPECT_EQ(bytes(1), 7 * kToken) << "the longest sample is taken whole";
  EXPECT_EQ(bytes(1000 * kToken), 100 * kToken);
  EXPECT_EQ(fisher_rows(100, config), 100 * (3 + 1 + 3)) << "forward, head, backward";
}

}  // namespace
}  // namespace nibble
