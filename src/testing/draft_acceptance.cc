// Texts of Pebble with the drafts that PyTorch makes at each of their places.
#include "testing/draft_acceptance.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace nibble {

namespace {

std::vector<int32_t> integers(const Json& list) {
  std::vector<int32_t> numbers;
  for (const Json& number : list.as_array())
    numbers.push_back(static_cast<int32_t>(number.as_int()));
  return numbers;
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
  const std::filesystem::path root(NIBBLE_SOURCE_DIR);
  const Checkpoint checkpoint = Checkpoint::open(root / "pebble/model").value();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  config.draft_layers = config.mtp_layers;
  const Weights weights = Weights::bind(checkpoint, config).value();
  const auto backend = factory(weights, config, options).value();
  const std::string path = (root / "tests/golden/mtp_pebble.json").string();
  const Json golden = parse_json(read_text_file(path, 1U << 20).value(), path).value();
  const auto prompt = static_cast<size_t>(golden.find("prompt")->as_int());
  Acceptance counts;
  counts.right.resize(static_cast<size_t>(golden.find("steps")->as_int()));
  for (const Json& text : golden.find("texts")->as_array()) {
    TestSession session(*backend, config, {.tokens_max = 256, .rows_max = 64});
    count_text(text, prompt, session, counts);
  }
  const std::vector<int32_t> expected = integers(*golden.find("right")->find("by_position"));
  const auto beside =
      1 + static_cast<int64_t>(bars.places_share * static_cast<double>(counts.places));
  EXPECT_EQ(counts.places, golden.find("right")->find("places")->as_int());
  for (size_t n = 0; n < counts.right.size(); ++n)
    EXPECT_LE(std::abs(counts.right[n] - expected[n]), beside) << n << ": " << counts.right[n];
  EXPECT_GE(counts.same, counts.places - beside);
}

}  // namespace nibble
