// Texts of Pebble with the drafts that PyTorch makes at each of their places.
#include "testing/draft_acceptance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"

namespace nibble {

namespace {

std::vector<int32_t> integers(const Json& list) {
  std::vector<int32_t> numbers;
  for (const Json& number : list.as_array())
    numbers.push_back(static_cast<int32_t>(number.as_int()));
  return numbers;
}

Json golden_drafts() {
  const auto path = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/mtp_pebble.json";
  return parse_json(read_text_file(path, 1U << 20).value(), path.string()).value();
}

struct Acceptance {
  std::vector<int64_t> right;  // by place in a round, with all before it
  int64_t places = 0;
  int64_t same = 0;  // rounds as PyTorch drafts them
};

/// Feeds one text token by token and drafts at each.
void count_text(const Json& text, size_t prompt, TestSession& session, Acceptance& counts) {
  const std::vector<int32_t> ids = integers(*text.find("ids"));
  session.pass({{.tokens = std::span(ids).first(prompt)}});
  size_t place = prompt;
  for (const Json& expected : text.find("drafts")->as_array()) {
    const auto count = static_cast<int32_t>(counts.right.size());
    const auto drafted = session.draft({{.token = ids[place], .count = count}});
    counts.same += drafted.tokens[0] == integers(expected) ? 1 : 0;
    for (size_t n = 0; n < counts.right.size() && drafted.tokens[0][n] == ids[place + 1 + n]; ++n)
      ++counts.right[n];
    session.pass(
        {{.tokens = std::span(ids).subspan(place++, 1), .arithmetic = Arithmetic::generation}});
    ++counts.places;
  }
}

}  // namespace

void expect_acceptance_of_pebble(const BackendFactory& factory, const BackendOptions& options,
                                 const AcceptanceBars& bars) {
  const Golden pebble = load_pebble_that_drafts(bars.variant);
  const auto backend = factory(pebble.weights, pebble.config, options).value();
  const Json golden = golden_drafts();
  const auto prompt = static_cast<size_t>(golden.find("prompt")->as_int());
  Acceptance counts;
  counts.right.resize(static_cast<size_t>(golden.find("steps")->as_int()));
  for (const Json& text : golden.find("texts")->as_array()) {
    TestSession session(*backend, pebble.config, {.tokens_max = 256, .rows_max = 64});
    count_text(text, prompt, session, counts);
  }
  const std::vector<int32_t> expected =
      bars.right.empty() ? integers(*golden.find("right")->find("by_position")) : bars.right;
  const auto beside = [&](double share) {
    return 1 + static_cast<int64_t>(share * static_cast<double>(counts.places));
  };
  std::printf("%lld places:", static_cast<long long>(counts.places));
  for (const int64_t right : counts.right) std::printf(" %lld", static_cast<long long>(right));
  std::printf(" right, %lld rounds the same\n", static_cast<long long>(counts.same));
  EXPECT_EQ(counts.places, golden.find("right")->find("places")->as_int());
  for (size_t n = 0; n < counts.right.size(); ++n)
    EXPECT_LE(std::abs(counts.right[n] - expected[n]), beside(bars.places_share))
        << n << ": " << counts.right[n];
  EXPECT_GE(counts.same, counts.places - beside(bars.rounds_share));
}

void expect_drafts_of_the_reference(const BackendFactory& factory, const BackendFactory& reference,
                                    const BackendOptions& options, double error_max) {
  constexpr size_t kTokens = 24;
  DraftVariant variant{.format = WeightFormat::nvfp4, .tokens = {}};
  for (int32_t id = 1; id < 2048; id += 3) variant.tokens.push_back(id);
  const Golden pebble = load_pebble_that_drafts(variant);
  const Json golden = golden_drafts();
  const std::vector<int32_t> ids = integers(*golden.find("texts")->as_array()[0].find("ids"));
  const auto drafted = [&](const BackendFactory& make, const BackendOptions& with) {
    const auto backend = make(pebble.weights, pebble.config, with).value();
    TestSession session(*backend, pebble.config, {.tokens_max = 64, .rows_max = 64});
    session.pass({{.tokens = std::span(ids).first(kTokens)}});
    return session.draft({{.token = ids[kTokens], .count = 1}});
  };
  const auto found = drafted(factory, options);
  const auto expected = drafted(reference, {.activations = Activations::f32});
  ASSERT_EQ(found.logits.size(), variant.tokens.size());
  const double error = relative_error(found.logits, expected.logits);
  std::printf("relative error %.2e, bar %.0e\n", error, error_max);
  EXPECT_LE(error, error_max);
  EXPECT_TRUE(std::ranges::binary_search(variant.tokens, found.tokens[0][0])) << found.tokens[0][0];
}

}  // namespace nibble
