// `--activations declared` on a card, on Pebble as recipes quantize it, against the CPU. Needs a
// card.
//
// Rounding to 4 or 8 bits is a staircase: a last bit turns a code by a whole step now and then, and
// every later layer sees that. Inputs that are BF16 first, as here, and F32 ones, as on the CPU, so
// differ by a good part of what the rounding itself costs. What must agree is that cost, which is
// what `declared` is there to measure. Blocks alone, on identical inputs: block_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "quantize/testing/test_runs.h"
#include "testing/source_dir.h"
#include "testing/test_session.h"

namespace nibble {
namespace {

using Logits = std::vector<float>;
constexpr int kPositions = 1024;
constexpr int kPassRows = 256;

struct Case {
  const char* name;
  const char* recipe;
  Dialect dialect;
  bool codes = false;  // products of codes: of 4 bits emulated, of 8 bits in prompts
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"w4a4", "w4a4", Dialect::compressed_tensors},
    {"fp8_per_token", "mixed", Dialect::compressed_tensors},
    {"fp8_static", "fp8", Dialect::modelopt},
    {"w4a4_codes", "w4a4", Dialect::compressed_tensors, true},
    {"w4a4_fp8_head_codes", "w4a4-fp8-head", Dialect::compressed_tensors, true},
    {"fp8_per_token_codes", "mixed", Dialect::compressed_tensors, true},
    {"fp8_static_codes", "fp8", Dialect::modelopt, true},
};

/// The divergence of q from p, over rows.
struct Agreement {
  double divergence = 0.0;  // mean KL; a few rows make most of it
  double distance = 0.0;    // mean of its root: all rows count
  double top1 = 0.0;        // share of rows with the same likeliest token
};
Agreement agreement(const Logits& p, const Logits& q, size_t vocab) {
  const auto log_total = [](std::span<const float> logits) {
    const double highest = *std::ranges::max_element(logits);
    double total = 0.0;
    for (const float logit : logits) total += std::exp(logit - highest);
    return highest + std::log(total);
  };
  Agreement mean;
  const double share = static_cast<double>(vocab) / static_cast<double>(p.size());
  for (size_t at = 0; at < p.size(); at += vocab) {
    const auto a = std::span(p).subspan(at, vocab);
    const auto b = std::span(q).subspan(at, vocab);
    const double shift = log_total(b) - log_total(a);
    const double a_total = log_total(a);
    double divergence = 0.0;
    for (size_t i = 0; i < vocab; ++i)
      divergence += std::exp(a[i] - a_total) * (double{a[i]} - b[i] + shift);
    mean.divergence += share * divergence;
    mean.distance += share * std::sqrt(std::max(divergence, 0.0));
    if (std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin())
      mean.top1 += share;
  }
  return mean;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

/// Returns the root mean square of found - expected in standard deviations of `expected`.
double error_in_deviations(const Logits& found, const Logits& expected) {
  double squares = 0.0;
  double sum = 0.0;
  double total = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    squares += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
    sum += expected[i];
    total += double{expected[i]} * expected[i];
  }
  const auto count = static_cast<double>(expected.size());
  return std::sqrt(squares / (total - sum * sum / count));
}

class DeclaredOnCuda : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    test::run(NIBBLE_SOURCE_DIR "/pebble/model", folder_ / "model",
              {.recipe = load_recipe(GetParam().recipe).value(), .dialect = GetParam().dialect})
        .value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder_ / "model").value());
    config_ = ModelConfig::parse(checkpoint_->config()).value();
    weights_ = Weights::bind(*checkpoint_, config_).value();
  }
  std::unique_ptr<Backend> on_card(Activations mode) {
    const bool codes = GetParam().codes && mode == Activations::declared;
    const auto make = codes ? make_fp4_emulating_backend : make_cuda_backend;
    return make(weights_, config_, {.activations = mode}).value();
  }
  /// Logits of all positions, `piece` rows at a time.
  Logits run(Backend& backend, std::span<const int32_t> ids, size_t piece, Arithmetic arithmetic) {
    TestSession session(backend, config_,
                        {.sequences = 2, .tokens_max = kPositions, .rows_max = kPassRows});
    Logits all;
    for (size_t at = 0; at < ids.size(); at += piece) {
      const auto tokens = ids.subspan(at, std::min(piece, ids.size() - at));
      const Logits some =
          session.pass({{.sequence = 1, .tokens = tokens, .arithmetic = arithmetic}});
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  /// Samples the model's own text.
  std::vector<int32_t> sampled_ids(Backend& backend) {
    TestSession session(backend, config_, {.sequences = 1, .tokens_max = kPositions});
    std::mt19937 engine(3);
    std::vector<int32_t> ids = {17};
    while (static_cast<int>(ids.size()) < kPositions) {
      std::vector<double> weights;
      const Logits logits = session.pass({{.sequence = 0,
                                           .tokens = std::span(ids).last(1),
                                           .arithmetic = Arithmetic::generation}});
      const double highest = *std::ranges::max_element(logits);
      for (const float logit : logits) weights.push_back(std::exp(logit - highest));
      ids.push_back(std::discrete_distribution<int32_t>(weights.begin(), weights.end())(engine));
    }
    return ids;
  }

  test::Folder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  Weights weights_;
};

TEST_P(DeclaredOnCuda, CostsWhatItCostsOnTheCpu) {
  const auto card = on_card(Activations::declared);
  const std::string_view how = GetParam().codes
                                   ? "activations declared (products of codes, 4-bit ones emulated)"
                                   : "activations declared (emulated)";
  EXPECT_NE(card->description().find(how), std::string::npos) << card->description();
  const auto bf16 = on_card(Activations::bf16);
  const std::vector<int32_t> ids = sampled_ids(*bf16);
  const auto vocab = static_cast<size_t>(config_.vocab_rows);
  const auto on_cpu = [&](Activations mode) {
    const auto cpu = make_cpu_backend(weights_, config_, {.activations = mode}).value();
    return run(*cpu, ids, kPassRows, Arithmetic::prompt);
  };
  const Logits expected = on_cpu(Activations::declared);
  const Agreement expected_cost = agreement(on_cpu(Activations::bf16), expected, vocab);
  for (const Arithmetic arithmetic : {Arithmetic::generation, Arithmetic::prompt}) {
    const Logits found = run(*card, ids, kPassRows, arithmetic);
    const Agreement near = agreement(expected, found, vocab);
    const Agreement cost = agreement(run(*bf16, ids, kPassRows, arithmetic), found, vocab);
    std::fprintf(stderr,
                 "%s, %s: from BF16 activations KL %.2e, root %.2e, top-1 %.4f (on the CPU %.2e, "
                 "%.2e, %.4f); from the CPU's KL %.2e, root %.2e, top-1 %.4f\n",
                 GetParam().name, arithmetic == Arithmetic::prompt ? "prompt" : "generation",
                 cost.divergence, cost.distance, cost.top1, expected_cost.divergence,
                 expected_cost.distance, expected_cost.top1, near.divergence, near.distance,
                 near.top1);
    EXPECT_LE(std::fabs(cost.distance / expected_cost.distance - 1), 0.35);
    EXPECT_LE(near.distance, 1.5 * expected_cost.distance);
  }
}

TEST_P(DeclaredOnCuda, RowsHaveTheSameBitsHoweverTheyRun) {
  const auto card = on_card(Activations::declared);
  std::mt19937 engine(5);
  std::vector<int32_t> ids(96);
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 1900);
  const Logits recorded = run(*card, ids, 1, Arithmetic::generation);
  for (const size_t piece : {2U, 9U, 96U})
    EXPECT_TRUE(same_bits(run(*card, ids, piece, Arithmetic::generation), recorded)) << piece;
  EXPECT_TRUE(
      same_bits(run(*card, ids, 64, Arithmetic::prompt), run(*card, ids, 96, Arithmetic::prompt)));
}

/// Products of codes differ from those of the same numbers in BF16 by the order of sums alone, but
/// a last bit turns a code now and then.
TEST_P(DeclaredOnCuda, ProductsOfCodesAreThoseInBf16) {
  if (!GetParam().codes) GTEST_SKIP() << "no products of codes";
  const auto codes = on_card(Activations::declared);
  const auto bf16 =
      make_cuda_backend(weights_, config_, {.activations = Activations::declared}).value();
  const auto reference =
      make_bf16_prompt_reference_backend(weights_, config_, {.activations = Activations::declared})
          .value();
  std::mt19937 engine(5);
  std::vector<int32_t> ids(64);
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 1900);
  for (const Arithmetic arithmetic : {Arithmetic::generation, Arithmetic::prompt}) {
    const Logits truth = run(*reference, ids, ids.size(), arithmetic);
    const double of_codes = error_in_deviations(run(*codes, ids, ids.size(), arithmetic), truth);
    const double of_bf16 = error_in_deviations(run(*bf16, ids, ids.size(), arithmetic), truth);
    std::fprintf(stderr, "%s, %s: from the reference rms %.2e of the deviation, in BF16 %.2e\n",
                 GetParam().name, arithmetic == Arithmetic::prompt ? "prompt" : "generation",
                 of_codes, of_bf16);
    EXPECT_LE(of_codes, 1.3 * of_bf16 + 4e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, DeclaredOnCuda, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nibble
