// The page: facts, charts over the steps, one chart over time, and the tables.
#include "bench/load_page.h"

#include <algorithm>

#include "bench/load_text.h"
#include "bench/svg_chart.h"

namespace nibble {

namespace {

const Figure* figure_called(const std::vector<Figure>& figures, std::string_view key) {
  for (const Figure& each : figures)
    if (each.key == key) return &each;
  return nullptr;
}

ChartLine line_over_steps(const LoadReport& report, const Figure& figure, std::string name,
                          StepRounds LoadStep::*server) {
  ChartLine line{.name = std::move(name)};
  for (const LoadStep& step : report.steps) {
    const Spread spread = spread_of(step.*server, figure);
    if (spread.count > 0)
      line.points.push_back({step.load, spread.median, spread.least, spread.most});
  }
  std::ranges::sort(line.points, {}, &ChartPoint::x);
  return line;
}

/// One chart of these figures over the steps, for each server a line.
std::string chart_of(const LoadReport& report, std::string title, std::string y_label,
                     std::initializer_list<std::string_view> keys) {
  const std::vector<Figure> figures = figures_of(report);
  Chart chart{
      .title = std::move(title), .x_label = report.load_label, .y_label = std::move(y_label)};
  for (const std::string_view key : keys) {
    const Figure* figure = figure_called(figures, key);
    if (figure == nullptr) continue;
    const auto add = [&](const std::string& who, StepRounds LoadStep::*server) {
      ChartLine line = line_over_steps(report, *figure, concat(figure->label, who), server);
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    };
    add(report.second ? ", first" : "", &LoadStep::first);
    if (report.second) add(", second", &LoadStep::second);
  }
  return chart.lines.empty() ? "" : svg_chart(chart);
}

/// Output tokens of each second of the first round of each step.
std::string chart_over_time(const LoadReport& report) {
  Chart chart{.title = "output over time, first rounds",
              .x_label = "seconds since the begin of the round",
              .y_label = "tokens/s"};
  for (const LoadStep& step : report.steps) {
    if (step.first.rounds.empty()) continue;
    ChartLine line{.name = step.name};
    const std::vector<double>& output = step.first.rounds.front().output_by_second;
    for (size_t second = 0; second < output.size(); ++second)
      line.points.push_back(
          {static_cast<double>(second), output[second], output[second], output[second]});
    chart.lines.push_back(std::move(line));
  }
  return svg_chart(chart);
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const char* cell = i == 0 ? "th" : "td";
    html += "<tr>";
    for (const std::string& text : rows[i])
      html += concat("<", cell, ">", html_text(text), "</", cell, ">");
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_list(const std::vector<std::string>& lines) {
  std::string html = "<ul>\n";
  for (const std::string& line : lines) html += concat("<li>", html_text(line), "</li>\n");
  return html + "</ul>\n";
}

}  // namespace

std::string load_page(const LoadReport& report) {
  constexpr std::string_view kHead =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<title>nibble bench serve</title>\n<style>\n"
      "body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; "
      "color: #222; background: #fff }\n"
      "table { border-collapse: collapse; margin: 1em 0 }\n"
      "td, th { border-bottom: 1px solid #ddd; padding: .2em .8em; text-align: right }\n"
      "td:first-child, th:first-child { text-align: left }\n"
      "svg { width: 100%; height: auto; margin: .5em 0 }\n</style>\n</head>\n<body>\n"
      "<h1>nibble bench serve</h1>\n";
  std::string html(kHead);
  html += html_list(head_lines(report));
  const std::string trouble = trouble_of(report);
  if (!trouble.empty())
    html += concat("<p><strong>Not a measurement: ", html_text(trouble), "</strong></p>\n");
  html +=
      chart_of(report, "throughput", "tokens/s", {"output_throughput", "busy_output_throughput"});
  html += chart_of(report, "time to the first token", "ms", {"p50_ttft_ms", "p95_ttft_ms"});
  html += chart_of(report, "time per output token", "ms", {"p50_tpot_ms", "p95_tpot_ms"});
  html += chart_over_time(report);
  for (const LoadStep& step : report.steps) {
    html += html_table(step_rows(report, step));
    html += html_list(step_notes(report, step));
  }
  return html + "</body>\n</html>\n";
}

}  // namespace nibble
