// Work that was stopped goes on to the same bytes, or says why not.
#include <gtest/gtest.h>

#include <atomic>

#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Asked;
using test::files_of;
using test::Folder;
using test::Layout;
using test::run;

/// Runs until `asks` questions whether to stop, then stops.
Asked stopping_after(int asks, std::atomic<int>& asked_count) {
  Asked asked;
  asked.recipe = load_recipe("mixed").value();
  asked.options.threads = 2;
  asked.options.journal_seconds = 0;
  asked.options.cancelled = [asks, &asked_count] { return ++asked_count > asks; };
  return asked;
}

TEST(Quantize, WorkThatWasStoppedGoesOnToTheSameBytes) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  std::atomic<int> all = 0;
  ASSERT_TRUE(run(folder / "in", folder / "whole", stopping_after(1 << 30, all)).ok());
  const auto expected = files_of(folder / "whole");
  for (const int step : {9, 40}) {
    const auto output = folder / concat("step", step);
    int stops = 0;
    for (;; ++stops) {
      ASSERT_LT(stops, 20);
      std::atomic<int> asks = 0;
      const auto report = run(folder / "in", output, stopping_after(step << stops, asks));
      if (report.ok()) {
        EXPECT_LT(asks, all) << "what was finished is not done again";
        break;
      }
      ASSERT_EQ(report.error().code, ErrorCode::cancelled) << report.error().message;
      EXPECT_FALSE(std::filesystem::exists(output / "config.json"));
      EXPECT_TRUE(std::filesystem::exists(output / ".nibble-journal"));
    }
    EXPECT_GT(stops, 0);
    EXPECT_TRUE(files_of(output) == expected) << step;
  }
}

TEST(Quantize, WorkGoesOnOnlyIfNothingChanged) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto stop = [&] {
    std::atomic<int> asks = 0;
    EXPECT_FALSE(run(folder / "in", folder / "out", stopping_after(30, asks)).ok());
  };
  const auto refused = [&](const Asked& asked, const char* words) {
    const auto report = run(folder / "in", folder / "out", asked);
    ASSERT_FALSE(report.ok()) << words;
    EXPECT_NE(report.error().message.find(words), std::string::npos) << report.error().message;
    EXPECT_TRUE(std::filesystem::exists(folder / "out/.nibble-journal")) << "nothing is lost";
  };
  stop();
  std::atomic<int> asks = 0;
  Asked asked = stopping_after(1 << 30, asks);
  refused({.recipe = load_recipe("fp8").value()}, "expected the recipe it was begun with, mixed ");
  asked.options.algorithm = RoundAlgorithm::amax;
  refused(asked, "expected the algorithm it was begun with, search, found amax");
  asked.options.algorithm = RoundAlgorithm::search;
  asked.options.data_hash = "x";
  refused(asked, "expected the calibration it was begun with");
  asked.options.data_hash = "";
  asked.dialect = Dialect::modelopt;
  refused(asked, "expected the format it was begun with, compressed-tensors, found modelopt");
  asked.dialect = Dialect::compressed_tensors;
  std::filesystem::remove_all(folder / "in");
  test::write_model(folder / "in", Layout::fused_experts,
                    [](const std::string&, int64_t, float w) { return 2 * w; });
  refused(asked, "expected the source it was begun with, in ");
  std::filesystem::remove_all(folder / "out");
  EXPECT_TRUE(run(folder / "in", folder / "out", asked).ok());
}

}  // namespace
}  // namespace nibble
