// Spreads, ratios, costs, and the texts that are made of them.
#include "bench/load_series.h"

#include <gtest/gtest.h>

#include "bench/load_page.h"
#include "bench/load_text.h"
#include "bench/svg_chart.h"

namespace nibble {
namespace {

LoadMetrics round_of(double output, std::string invalid = "") {
  LoadMetrics metrics{.completed = 1, .seconds = 1.0};
  metrics.output_per_second = output;
  const std::vector<double> percents = {50, 95};
  for (Summary* each : {&metrics.ttft_ms, &metrics.tpot_ms, &metrics.itl_ms, &metrics.e2el_ms})
    *each = summarize({output}, percents);
  metrics.output_by_second = {output};
  metrics.invalid = std::move(invalid);
  return metrics;
}

LoadReport report_of(std::vector<LoadMetrics> first, std::vector<LoadMetrics> second) {
  LoadReport report{.machine = {{"cores", Json(2)}}, .first = {"http://a", "m|1"}};
  if (!second.empty()) report.second = {"http://b", "m<2>"};
  report.percents = {50, 95};
  report.steps = {{.name = "2 clients", .load = 2.0}};
  report.steps[0].first.rounds = std::move(first);
  report.steps[0].second.rounds = std::move(second);
  return report;
}

const Figure& output_of(const std::vector<Figure>& figures) {
  for (const Figure& each : figures)
    if (each.key == "output_throughput") return each;
  return figures.front();
}

TEST(LoadSeries, SpreadsAreOverValidRounds) {
  const LoadReport report =
      report_of({round_of(10), round_of(30), round_of(14), round_of(99, "x")}, {});
  const auto figures = figures_of(report);
  const Spread spread = spread_of(report.steps[0].first, output_of(figures));
  EXPECT_EQ(spread.count, 3u);
  EXPECT_DOUBLE_EQ(spread.median, 14.0);
  EXPECT_DOUBLE_EQ(spread.least, 10.0);
  EXPECT_DOUBLE_EQ(spread.most, 30.0);
  EXPECT_EQ(trouble_of(report), "2 clients: x");
  EXPECT_EQ(spread_of(std::vector<double>()).count, 0u);
}

TEST(LoadSeries, RatiosAreOfRoundsThatStoodBesideEachOther) {
  const LoadReport report = report_of({round_of(10), round_of(40), round_of(7)},
                                      {round_of(5), round_of(10), round_of(0)});
  const auto figures = figures_of(report);
  const Spread ratio = ratio_of(report.steps[0], output_of(figures));
  EXPECT_EQ(ratio.count, 2u);  // nothing is divided by 0
  EXPECT_DOUBLE_EQ(ratio.least, 2.0);
  EXPECT_DOUBLE_EQ(ratio.most, 4.0);
  EXPECT_EQ(trouble_of(report), "");
}

TEST(LoadSeries, CostsFollowFromTheRate) {
  EXPECT_DOUBLE_EQ(tokens_per_price(100.0, 2.0), 180000.0);
  LoadReport report = report_of({round_of(100)}, {});
  report.price_per_hour = 2.0;
  report.currency = "EUR";
  EXPECT_NE(load_text(report).find("180000 output tokens for 1 EUR (180000-180000), 5.556 EUR"),
            std::string::npos)
      << load_text(report);
}

TEST(LoadText, HasBothServersAndTheirRatio) {
  const LoadReport report = report_of({round_of(10), round_of(20)}, {round_of(5), round_of(5)});
  const std::string text = load_text(report);
  EXPECT_NE(text.find("15.0 (10.0-20.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("5.0 (5.0-5.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("3.000 (2.000-4.000)"), std::string::npos) << text;
  const Json json = load_json(report, {});
  const Json& step = json.find("steps")->as_array().at(0);
  EXPECT_EQ(step.find("ratio")->find("output_throughput")->find("median")->as_double(), 3.0);
}

TEST(LoadText, EscapesWhatTheFormsWouldRead) {
  EXPECT_EQ(markdown_table({{"a|b", "c"}, {"1", "2"}}), "| a\\|b | c |\n|---|---|\n| 1 | 2 |\n");
  EXPECT_EQ(html_text("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
  const std::string page = load_page(report_of({round_of(10)}, {round_of(5)}));
  EXPECT_EQ(page.find("m<2>"), std::string::npos);
  EXPECT_NE(page.find("m&lt;2&gt;"), std::string::npos);
}

TEST(SvgChart, DrawsPointsWhereTheyBelong) {
  const Chart chart{.title = "t",
                    .x_label = "x",
                    .y_label = "y",
                    .lines = {{.name = "l", .points = {{0, 0, 0, 0}, {10, 100, 50, 100}}}}};
  const std::string svg = svg_chart(chart);
  // The axis ends at 100, so the second point lies in the upper right corner of the plot.
  EXPECT_NE(svg.find("points=\"70.0,250.0 700.0,34.0 \""), std::string::npos) << svg;
  EXPECT_NE(svg.find("<line x1=\"700.0\" y1=\"142.0\" x2=\"700.0\" y2=\"34.0\""),
            std::string::npos);
  EXPECT_NE(svg.find(">20</text>"), std::string::npos);
  const std::string small = svg_chart(
      {.title = "t", .lines = {{.name = "l", .points = {{0, 0.5, 0, 0}, {1, 1.1, 0, 0}}}}});
  EXPECT_NE(small.find(">0.2</text>"), std::string::npos) << small;
  EXPECT_EQ(svg_chart({.title = "none"}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace nibble
