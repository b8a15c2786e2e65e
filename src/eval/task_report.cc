// Counts for each task, then words.
#include "eval/task_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/check.h"
#include "base/concat.h"

namespace nibble {
namespace {

std::string fixed(double value, int digits) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string signed_points(double share) {
  const std::string text = fixed(100 * share, 1);
  return share < 0 || text[0] == '-' ? text : "+" + text;
}

std::string mode_of(const TaskItem& item) {
  if (!item.thinking) return item.task;
  return concat(item.task, *item.thinking ? ", thinking" : ", direct");
}

void count(ReportRow& row, size_t item, const std::vector<ModelOutcomes>& models) {
  row.shares.resize(models.size());
  bool both = models.size() == 2;
  for (size_t m = 0; m < models.size(); ++m) {
    const Outcome outcome = models[m].outcomes[item];
    if (outcome == Outcome::unscored && m == 0) ++row.unscored;
    const bool scored = outcome == Outcome::right || outcome == Outcome::wrong;
    both = both && scored;
    row.shares[m].right += outcome == Outcome::right;
    row.shares[m].scored += scored;
    row.shares[m].failed += outcome == Outcome::failed;
  }
  if (!both) return;
  const Outcome first = models[0].outcomes[item], second = models[1].outcomes[item];
  ++row.counts.pairs;
  row.counts.gained += second == Outcome::right && first == Outcome::wrong;
  row.counts.lost += first == Outcome::right && second == Outcome::wrong;
}

/// "95.0 [91.2, 97.3]", or what there is instead of a share.
std::string share_words(const ReportRow& row, const ScoredShare& share) {
  if (share.scored == 0) return row.unscored > 0 ? "run through, not scored" : "-";
  return concat(fixed(share.percent(), 1), " [", fixed(100 * share.interval.low, 1), ", ",
                fixed(100 * share.interval.high, 1), "]");
}

std::string difference_words(const ReportRow& row) {
  const PairedDifference& found = row.difference;
  if (row.counts.pairs == 0) return "-";
  return concat(signed_points(found.delta), " [", signed_points(found.interval.low), ", ",
                signed_points(found.interval.high), "] ",
                found.shown() ? concat("difference shown, p ", fixed(found.p_value, 4))
                              : "no difference shown");
}

std::string table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<size_t> widths(cells.front().size(), 0);
  for (const auto& line : cells)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const auto& line : cells) {
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
      out += line[i];
      if (i + 1 < line.size()) out.append(widths[i] + 2 - line[i].size(), ' ');
    }
    text += out + "\n";
  }
  return text;
}

Json interval_json(const Interval& interval) {
  return Json(Json::Array{Json(interval.low), Json(interval.high)});
}

Json row_json(const ReportRow& row) {
  Json shares = Json::Array{};
  for (const ScoredShare& share : row.shares)
    shares.push_back(
        json_object({{"right", Json(share.right)},
                     {"scored", Json(share.scored)},
                     {"failed", Json(share.failed)},
                     {"share", share.scored > 0 ? Json(share.percent() / 100) : Json()},
                     {"interval", interval_json(share.interval)}}));
  Json json = json_object(
      {{"task", row.task}, {"unscored", Json(row.unscored)}, {"models", std::move(shares)}});
  if (row.shares.size() < 2) return json;
  json.set("paired", json_object({{"pairs", Json(row.counts.pairs)},
                                  {"gained", Json(row.counts.gained)},
                                  {"lost", Json(row.counts.lost)},
                                  {"delta", Json(row.difference.delta)},
                                  {"interval", interval_json(row.difference.interval)},
                                  {"p_value", Json(row.difference.p_value)},
                                  {"difference_shown", Json(row.difference.shown())}}));
  return json;
}

}  // namespace

double ScoredShare::percent() const {
  return scored == 0 ? 0.0 : 100.0 * static_cast<double>(right) / static_cast<double>(scored);
}

std::vector<ReportRow> report_rows(const std::vector<TaskItem>& items,
                                   const std::vector<ModelOutcomes>& models) {
  CHECK(models.size() == 1 || models.size() == 2, models.size());
  for (const ModelOutcomes& model : models)
    CHECK(model.outcomes.size() == items.size(), model.outcomes.size(), " of ", items.size());
  std::vector<ReportRow> rows;
  std::map<std::string, size_t> place;
  ReportRow all{.task = "all"};
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string task = mode_of(items[i]);
    const auto [found, fresh] = place.emplace(task, rows.size());
    if (fresh) rows.push_back({.task = task});
    count(rows[found->second], i, models);
    count(all, i, models);
  }
  rows.push_back(std::move(all));
  for (ReportRow& row : rows) {
    for (ScoredShare& share : row.shares)
      share.interval = wilson_interval(share.right, share.scored);
    if (models.size() == 2) row.difference = paired_difference(row.counts);
  }
  return rows;
}

std::string report_text(const std::vector<ReportRow>& rows,
                        const std::vector<ModelOutcomes>& models) {
  std::vector<std::vector<std::string>> cells = {{"task", "items"}};
  for (const ModelOutcomes& model : models) cells[0].push_back(model.name + " %");
  if (models.size() == 2) cells[0].push_back("difference in points");
  for (const ReportRow& row : rows) {
    int64_t asked = row.unscored + row.shares.front().scored + row.shares.front().failed;
    std::vector<std::string> line = {row.task, concat(asked)};
    for (const ScoredShare& share : row.shares) line.push_back(share_words(row, share));
    if (models.size() == 2) line.push_back(difference_words(row));
    cells.push_back(std::move(line));
  }
  std::string text = table(cells) + "in brackets: 95 % intervals";
  text += models.size() == 2 ? " (Wilson; of differences exact, over pairs)\n" : " (Wilson)\n";
  for (size_t m = 0; m < models.size(); ++m) {
    const int64_t failed = rows.back().shares[m].failed;
    if (models[m].cut > 0)
      text += concat(models[m].name, ": ", models[m].cut, " answers were cut by max_tokens\n");
    if (failed > 0)
      text += concat(models[m].name, ": ", failed, " items failed and are not counted\n");
  }
  return text;
}

Json report_json(const std::vector<ReportRow>& rows, const std::vector<ModelOutcomes>& models) {
  Json names = Json::Array{};
  for (const ModelOutcomes& model : models)
    names.push_back(json_object({{"name", model.name}, {"cut", Json(model.cut)}}));
  Json list = Json::Array{};
  for (const ReportRow& row : rows) list.push_back(row_json(row));
  return json_object({{"models", std::move(names)}, {"confidence", Json(0.95)}, {"rows", list}});
}

}  // namespace nibble
