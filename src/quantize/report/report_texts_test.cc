// The words and pictures of a report whose numbers are known: the table, the warnings, the charts.
#include <gtest/gtest.h>

#include <cmath>

#include "quantize/report/allocation.h"
#include "quantize/report/quantize_report.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

RoundStatistics squares(double weights, double errors, double amax) {
  return {.weight_squares = weights, .error_squares = errors, .amax_error_squares = amax};
}

/// More kinds than there are colours, one of them in no layer and one without weights.
std::vector<LayerReport> layers_of_kinds() {
  std::vector<LayerReport> layers;
  for (int kind = 0; kind < 16; ++kind)
    for (int layer = 0; layer < 20; layer += 1 + kind)
      layers.push_back({.kind = concat("kind", kind < 10 ? "0" : "", kind),
                        .layer = layer,
                        .rounding = squares(100, 0.01 * kind, 0)});
  layers.push_back({.kind = "lm_head", .layer = -1, .rounding = squares(400, 16, 25)});
  layers.push_back({.kind = "nothing", .layer = 3, .rounding = {}});
  return layers;
}

QuantizeReport report_of_kinds() {
  QuantizeReport report;
  report.bytes_in = 40'000'000;
  report.bytes_out = 12'000'000;
  report.kinds = {{.kind = "lm_head",
                   .scheme = "FP8",
                   .tensors = 1,
                   .weights = 1000,
                   .bytes_in = 2'000'000,
                   .bytes_out = 1'000'000,
                   .rounding = squares(400, 0.16, 0.25)},
                  {.kind = "mlp.experts.up_proj",
                   .scheme = "NVFP4",
                   .tensors = 128,
                   .weights = 2000,
                   .bytes_in = 30'000'000,
                   .bytes_out = 8'440'000,
                   .rounding = squares(100, 0.81, 1.21)},
                  {.kind = "mlp.gate",
                   .scheme = "NVFP4",
                   .tensors = 1,
                   .weights = 16,
                   .bytes_in = 32,
                   .bytes_out = 9,
                   .rounding = {}}};
  report.add_rest(
      {.kind = std::string(kRest), .scheme = "as it was", .tensors = 7, .rounding = {}});
  report.layers = layers_of_kinds();
  return report;
}

TEST(ReportTexts, TheTableHasARowForEachKindAndTheirSum) {
  QuantizeReport report = report_of_kinds();
  report.warnings = {"one thing", "another"};
  EXPECT_EQ(report.table(),
            "kind                 scheme     tensors  MB in  MB out  rel. error  plain amax/6  "
            "better by\n"
            "lm_head              FP8              1   2.00    1.00     2.000 %       2.500 %     "
            "20.0 %\n"
            "mlp.experts.up_proj  NVFP4          128  30.00    8.44     9.000 %      11.000 %     "
            "18.2 %\n"
            "mlp.gate             NVFP4            1   0.00    0.00\n"
            "everything else      as it was        7   8.00    2.56\n"
            "all quantized                       130  32.00    9.44     4.405 %       5.404 %     "
            "18.5 %\n"
            "all tensors: 40.00 MB -> 12.00 MB, 3.33 times smaller\n"
            "warning: one thing\nwarning: another\n");
}

TEST(ReportTexts, OfNoTensorsTheTableHasNumbersToo) {
  EXPECT_TRUE(
      QuantizeReport().table().ends_with("all tensors: 0.00 MB -> 0.00 MB, 0.00 times smaller\n"));
}

/// The picture as it is looked at: a change of it is meant.
TEST(ReportTexts, ThePictures) {
  const QuantizeReport report = report_of_kinds();
  QuantizeReport nothing;
  QuantizeReport small;
  small.layers = {{.kind = "a", .layer = 0, .rounding = squares(100, 0.01, 0)}};
  Allocation bytes{.recipe = "mixed", .target = "t"};
  bytes.total = {.bytes = 8'000'000, .loss = 1.1e-3};
  bytes.curve = {{.bytes = 4'000'000, .loss = 3e-3},
                 {.bytes = 8'000'000, .loss = 1.1e-3},
                 {.bytes = 9'000'000, .loss = 2e-9},
                 {.bytes = 13'000'000, .loss = 0}};
  Allocation large = bytes;
  for (AllocationPoint& point : large.curve) point.bytes *= 1000;
  large.total = large.curve[3];
  Allocation alike = bytes;
  for (AllocationPoint& point : alike.curve) point = {.bytes = 5, .loss = 0};
  alike.total = {.bytes = 5, .loss = 0.5};
  expect_golden_text("output_texts/pictures.txt",
                     concat(report.chart(), nothing.chart(), small.chart(), bytes.chart(),
                            large.chart(), alike.chart()));
}

TEST(ReportTexts, WarningsFollowFromTheStatistics) {
  QuantizeReport report = report_of_kinds();
  report.warnings = {"stays", "3 blocks of 16 weights are all zero",
                     "2 linears were rounded without data, first a: b",
                     "input scales are the recipe's constants: no activation was measured"};
  finish_report(report);
  EXPECT_EQ(report.warnings,
            (std::vector<std::string>{
                "stays", "input scales are the recipe's constants: no activation was measured"}));
  report.kinds[0].rounding.zero_blocks = 3;
  report.kinds[1].rounding.zero_blocks = 4;
  report.kinds[1].rounding.flushed_blocks = 5;
  report.fallbacks = {{"layers.1.up", "few tokens"}, {"layers.2.up", "none"}};
  report.calibration = Json(1);
  for (int again = 0; again < 2; ++again) {
    finish_report(report);
    EXPECT_EQ(report.warnings,
              (std::vector<std::string>{
                  "stays", "7 blocks of 16 weights are all zero",
                  "5 blocks of 16 weights are too small beside their matrix and became zero",
                  "2 linears were rounded without data, first layers.1.up: few tokens"}));
  }
}

TEST(ReportTexts, TheRestHasTheBytesThatNoKindHas) {
  const QuantizeReport report = report_of_kinds();
  EXPECT_EQ(report.kinds.back().kind, kRest);
  EXPECT_EQ(report.kinds.back().bytes_in, 40'000'000 - 32'000'032);
  EXPECT_EQ(report.kinds.back().bytes_out, 12'000'000 - 9'440'009);
  const KindReport total = report.total_rounded();
  EXPECT_EQ(total.tensors, 130);
  EXPECT_EQ(total.weights, 3016);
  EXPECT_EQ(total.bytes_in, 32'000'032);
  EXPECT_EQ(total.bytes_out, 9'440'009);
  EXPECT_NEAR(total.relative_error(), std::sqrt(0.97 / 500), 1e-12);
  EXPECT_NEAR(total.amax_relative_error(), std::sqrt(1.46 / 500), 1e-12);
  EXPECT_EQ(KindReport{}.relative_error(), 0.0);
}

/// Comments of an earlier conversion are replaced, those of the recipe's author are kept.
TEST(ReportTexts, ARecipeFileSaysOnceHowItWasMade) {
  QuantizeReport report = report_of_kinds();
  report.commands = {"nibble quantize a", "nibble convert b"};
  const std::string rules = "# My rules\nrules:\n";
  const std::string file = recipe_file(rules, report);
  const std::string head = file.substr(file.find('\n') + 1);
  EXPECT_TRUE(file.starts_with("# Made by nibble "));
  EXPECT_EQ(head,
            "#   nibble quantize a\n#   nibble convert b\n# It resolved to:\n"
            "#   lm_head: FP8 (1)\n#   mlp.experts.up_proj: NVFP4 (128)\n"
            "#   mlp.gate: NVFP4 (1)\n#   everything else: as it was (7)\n# The rules:\n" +
                rules);
  EXPECT_EQ(recipe_file(file, report), file);
  const std::string unfinished = "# Made by nibble by hand\nrules:\n";
  EXPECT_TRUE(recipe_file(unfinished, report).ends_with("# The rules:\n" + unfinished));
}

}  // namespace
}  // namespace nibble
