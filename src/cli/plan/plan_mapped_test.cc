// The part of a plan for a CPU that is read in mapped files; that a server maps as much is tested
// with what it loads (drafts/draft_weights_test.cc).
#include <gtest/gtest.h>

#include "cli/plan/plan_making.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

PlanReport report(std::vector<std::string> words) {
  words.insert(words.begin(), NIBBLE_SOURCE_DIR "/pebble/model");
  const Arguments flags = parse_arguments(kPlanVerb, words, [](const std::string&) {
                            return std::optional<std::string>();
                          }).value();
  Terminal terminal;
  const PlanModel model = read_plan_model(flags, words.front(), {}, terminal).value();
  const Place host = {.kind = Place::Kind::host, .card = {}};
  const PlannedRun run = plan_run(flags, model, host.card).value();
  return whole_report(flags, model, host, run, {});
}

int64_t bytes_of(const PlanReport& report, WeightKind kind) {
  int64_t bytes = 0;
  for (const WeightRow& row : report.weights)
    if (row.kind == kind) bytes += row.bytes;
  return bytes;
}

TEST(PlannedMapping, IsOfExpertsAndEmbeddingUnlessFlagsSayOtherwise) {
  const PlanReport automatic = report({});
  const int64_t experts = bytes_of(automatic, WeightKind::experts);
  const int64_t rows = bytes_of(automatic, WeightKind::embedding);
  EXPECT_LE(automatic.plan.mapped_bytes, experts + rows);
  EXPECT_GT(automatic.plan.mapped_bytes, (experts + rows) * 9 / 10);  // less what memory pads
  EXPECT_NE(plan_text(automatic).find("in mapped files"), std::string::npos);
  EXPECT_EQ(plan_json(automatic).find("memory")->find("mapped_weights")->as_int(),
            automatic.plan.mapped_bytes);
  EXPECT_GT(report({"--weights", "mapped"}).plan.mapped_bytes, automatic.plan.mapped_bytes);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--weights", "copied"},
                                                {"--direct-io"},
                                                {"--load-format", "dummy:mixed"}}) {
    const PlanReport copied = report(words);
    EXPECT_EQ(copied.plan.mapped_bytes, 0) << words.front();
    EXPECT_EQ(plan_text(copied).find("in mapped files"), std::string::npos);
  }
}

}  // namespace
}  // namespace nibble
