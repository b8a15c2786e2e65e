// Words and columns of the report.
#include "bench/load_text.h"

#include <algorithm>

#include "plan/text_table.h"

namespace nibble {

namespace {

std::string spread_text(const Spread& spread, int digits) {
  if (spread.count == 0) return "-";
  return concat(fixed_text(spread.median, digits), " (", fixed_text(spread.least, digits), "-",
                fixed_text(spread.most, digits), ")");
}

std::string fact_text(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

struct Counts {
  int64_t completed = 0, failed = 0, stopped = 0, short_answers = 0;
  int64_t input = 0, output = 0, cached = 0;
  double late_share = 0.0, late_ms = 0.0, cpu_share = 0.0;
};

Counts counts_of(const StepRounds& rounds) {
  Counts counts;
  for (const LoadMetrics& each : rounds.rounds) {
    counts.completed += each.completed;
    counts.failed += each.failed;
    counts.stopped += each.stopped;
    counts.short_answers += each.short_answers;
    counts.input += each.input_tokens;
    counts.output += each.output_tokens;
    counts.cached += each.cached_tokens;
    counts.late_share = std::max(counts.late_share, each.late_share);
    counts.late_ms = std::max(counts.late_ms, each.late_ms_most);
    counts.cpu_share = std::max(counts.cpu_share, each.cpu_share);
  }
  return counts;
}

std::string answers_text(const Counts& counts) {
  std::string text = concat("answers: ", counts.completed, " complete, ", counts.failed, " failed");
  if (counts.stopped > 0) text += concat(", ", counts.stopped, " stopped by this client");
  if (counts.short_answers > 0)
    text += concat(", ", counts.short_answers, " shorter than asked for");
  return text + concat("; tokens by usage: ", counts.input, " in (", counts.cached, " cached), ",
                       counts.output, " out");
}

std::string client_text(const Counts& counts) {
  constexpr double kPercent = 100.0;
  return concat("this client: at most ", fixed_text(counts.cpu_share * kPercent, 1),
                " % of a core, ", fixed_text(counts.late_share * kPercent, 1),
                " % of requests sent late, the latest by ", fixed_text(counts.late_ms, 1), " ms");
}

std::string cost_text(const LoadReport& report, const StepRounds& rounds) {
  const Figure output = figures_of(report)[1];
  const Spread rate = spread_of(rounds, output);
  if (report.price_per_hour <= 0.0 || rate.count == 0 || rate.median <= 0.0) return {};
  const double tokens = tokens_per_price(rate.median, report.price_per_hour);
  constexpr double kMillion = 1e6;
  return concat("cost at ", fixed_text(report.price_per_hour, 2), " ", report.currency,
                " an hour: ", fixed_text(tokens, 0), " output tokens for 1 ", report.currency, " (",
                fixed_text(tokens_per_price(rate.least, report.price_per_hour), 0), "-",
                fixed_text(tokens_per_price(rate.most, report.price_per_hour), 0), "), ",
                fixed_text(kMillion / tokens, 3), " ", report.currency, " for a million");
}

void add_server_notes(const LoadReport& report, const StepRounds& rounds, const std::string& who,
                      std::vector<std::string>& notes) {
  const Counts counts = counts_of(rounds);
  notes.push_back(who + answers_text(counts));
  notes.push_back(who + client_text(counts));
  if (counts.cached > 0 && !report.shares_prompts)
    notes.push_back(who + "the server had prompts of this seed in its cache: give another --seed");
  std::map<std::string, int64_t> errors;
  for (size_t i = 0; i < rounds.rounds.size(); ++i) {
    const LoadMetrics& each = rounds.rounds[i];
    for (const auto& [error, count] : each.errors) errors[error] += count;
    if (!each.invalid.empty())
      notes.push_back(concat(who, "round ", i + 1, " is invalid: ", each.invalid));
    for (const OutlierResult& outlier : each.outliers)
      notes.push_back(concat(
          who, "round ", i + 1, ", a prompt of ", outlier.input_tokens, " tokens beside the load: ",
          outlier.ttft_ms ? concat("first token after ", fixed_text(*outlier.ttft_ms, 0), " ms")
                          : concat("failed: ", outlier.error)));
  }
  for (const auto& [error, count] : errors)
    notes.push_back(concat(who, count, count == 1 ? " error: " : " errors: ", error));
  if (std::string cost = cost_text(report, rounds); !cost.empty())
    notes.push_back(who + std::move(cost));
}

Json spread_json(const Spread& spread) {
  if (spread.count == 0) return {};
  return json_object({{"median", Json(spread.median)},
                      {"least", Json(spread.least)},
                      {"most", Json(spread.most)},
                      {"rounds", Json(spread.count)}});
}

Json figures_json(const LoadReport& report, const StepRounds& rounds) {
  Json json = Json(Json::Object());
  for (const Figure& figure : figures_of(report))
    json.set(figure.key, spread_json(spread_of(rounds, figure)));
  if (report.price_per_hour > 0.0) {
    const Spread rate = spread_of(rounds, figures_of(report)[1]);
    json.set("output_tokens_per_price",
             rate.count > 0 ? Json(tokens_per_price(rate.median, report.price_per_hour)) : Json());
  }
  return json;
}

Json server_json(const ServerFacts& server) {
  return json_object({{"url", Json(server.url)}, {"model", Json(server.model)}});
}

}  // namespace

std::vector<std::vector<std::string>> step_rows(const LoadReport& report, const LoadStep& step) {
  const bool two = report.second.has_value();
  std::vector<std::vector<std::string>> rows = {
      {step.name, "unit", two ? "first server" : "median (least-most)"}};
  if (two) {
    rows[0].push_back("second server");
    rows[0].push_back("first / second");
  }
  for (const Figure& figure : figures_of(report)) {
    const Spread first = spread_of(step.first, figure);
    const Spread second = spread_of(step.second, figure);
    if (first.count == 0 && second.count == 0) continue;
    rows.push_back({figure.label, figure.unit, spread_text(first, figure.digits)});
    if (!two) continue;
    constexpr int kRatioDigits = 3;
    rows.back().push_back(spread_text(second, figure.digits));
    rows.back().push_back(spread_text(ratio_of(step, figure), kRatioDigits));
  }
  return rows;
}

std::vector<std::string> step_notes(const LoadReport& report, const LoadStep& step) {
  std::vector<std::string> notes;
  add_server_notes(report, step.first, report.second ? "first server: " : "", notes);
  if (report.second) add_server_notes(report, step.second, "second server: ", notes);
  return notes;
}

std::vector<std::string> head_lines(const LoadReport& report) {
  std::vector<std::string> lines;
  lines.push_back(concat(report.second ? "first server: " : "server: ", report.first.url,
                         ", model ", report.first.model));
  if (report.second)
    lines.push_back(concat("second server: ", report.second->url, ", model ", report.second->model,
                           "; rounds of both in turn"));
  std::string machine;
  for (const auto& [key, value] : report.machine)
    machine += concat(machine.empty() ? "" : ", ", key, " ", fact_text(value));
  lines.push_back(concat("machine of this client: ", machine));
  std::string settings;
  for (const auto& [key, value] : report.settings)
    settings += concat(settings.empty() ? "" : ", ", key, " ", fact_text(value));
  lines.push_back(concat("load: ", settings));
  if (!report.note.empty()) lines.push_back(report.note);
  return lines;
}

std::string load_text(const LoadReport& report) {
  std::string text;
  for (const std::string& line : head_lines(report)) text += line + "\n";
  using enum ColumnSide;
  for (const LoadStep& step : report.steps) {
    text +=
        concat("\n", text_table(step_rows(report, step), {left, left, right, right, right}, ""));
    for (const std::string& note : step_notes(report, step)) text += concat("  ", note, "\n");
  }
  return text;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += "|";
    for (const std::string& cell : rows[i]) {
      text += " ";
      for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
      text += " |";
    }
    text += "\n";
    if (i > 0) continue;
    text += "|";
    for (size_t column = 0; column < rows[0].size(); ++column) text += "---|";
    text += "\n";
  }
  return text;
}

std::string load_markdown(const LoadReport& report) {
  std::string text;
  for (const std::string& line : head_lines(report)) text += concat("- ", line, "\n");
  for (const LoadStep& step : report.steps) {
    text += concat("\n", markdown_table(step_rows(report, step)), "\n");
    for (const std::string& note : step_notes(report, step)) text += concat("- ", note, "\n");
  }
  return text;
}

Json load_json(const LoadReport& report, Json::Array runs) {
  Json json = json_object({{"machine", Json(report.machine)},
                           {"settings", Json(report.settings)},
                           {"server", server_json(report.first)}});
  if (report.second) json.set("against", server_json(*report.second));
  if (!report.note.empty()) json.set("note", Json(report.note));
  const std::string trouble = trouble_of(report);
  json.set("invalid", trouble.empty() ? Json() : Json(trouble));
  Json::Array steps;
  for (const LoadStep& step : report.steps) {
    Json each =
        json_object({{"step", Json(step.name)}, {"figures", figures_json(report, step.first)}});
    if (report.second) {
      each.set("against", figures_json(report, step.second));
      Json ratios = Json(Json::Object());
      for (const Figure& figure : figures_of(report))
        ratios.set(figure.key, spread_json(ratio_of(step, figure)));
      each.set("ratio", std::move(ratios));
    }
    steps.push_back(std::move(each));
  }
  json.set("steps", Json(std::move(steps)));
  json.set("runs", Json(std::move(runs)));
  return json;
}

}  // namespace nibble
