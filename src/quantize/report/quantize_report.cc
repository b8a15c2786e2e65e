// The numbers of a run as JSON and as a table.
#include "quantize/report/quantize_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "quantize/recipe/scheme_words.h"

namespace nibble {
namespace {

constexpr std::string_view kUnmeasured =
    "input scales are the recipe's constants: no activation was measured";
constexpr std::string_view kBlocks = " blocks of 16 weights";
constexpr std::string_view kNoData = " linears were rounded without data";

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e6);
  return text;
}

std::string percent(double ratio, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %%", digits, 100.0 * ratio);
  return text;
}

double ratio(double part, double whole) { return whole > 0 ? std::sqrt(part / whole) : 0.0; }

/// Records the sums that errors are computed from, so that a conversion can add them up again.
void set_squares(const RoundStatistics& rounding, Json& row) {
  row.set("weight_squares", rounding.weight_squares);
  row.set("error_squares", rounding.error_squares);
}

Json row_json(const KindReport& kind) {
  Json row;
  row.set("kind", kind.kind);
  row.set("scheme", kind.scheme);
  row.set("tensors", kind.tensors);
  row.set("weights", kind.weights);
  row.set("bytes_in", kind.bytes_in);
  row.set("bytes_out", kind.bytes_out);
  if (kind.weights == 0) return row;  // what stayed
  row.set("relative_error", kind.relative_error());
  row.set("relative_error_amax", kind.amax_relative_error());
  set_squares(kind.rounding, row);
  row.set("amax_error_squares", kind.rounding.amax_error_squares);
  row.set("zero_blocks", kind.rounding.zero_blocks);
  row.set("flushed_blocks", kind.rounding.flushed_blocks);
  return row;
}

using Cells = std::vector<std::string>;

Cells row_cells(const KindReport& kind) {
  Cells cells = {kind.kind, kind.scheme, concat(kind.tensors), megabytes(kind.bytes_in),
                 megabytes(kind.bytes_out)};
  if (kind.rounding.weight_squares > 0) {
    const double better = 1.0 - kind.relative_error() / kind.amax_relative_error();
    cells.insert(cells.end(), {percent(kind.relative_error(), 3),
                               percent(kind.amax_relative_error(), 3), percent(better, 1)});
  }
  cells.resize(8);
  return cells;
}

/// Left-aligned words, right-aligned numbers.
std::string layout(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      text += concat(i == 0 ? "" : "  ", i < 2 ? row[i] + space : space + row[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::vector<KindReport> rounded_rows(const QuantPlan& plan) {
  std::map<std::pair<std::string, std::string>, KindReport> rows;
  for (const FusedGroup& group : plan.rounded) {
    int64_t group_weights = 0;
    for (const PlannedLinear& linear : group.linears)
      group_weights += linear.source.rows * linear.source.cols;
    for (const PlannedLinear& linear : group.linears) {
      const std::string scheme = scheme_text(linear.becomes.scheme);
      KindReport& row = rows[{linear.kind, scheme}];
      row.kind = linear.kind;
      row.scheme = scheme;
      const int64_t count = linear.source.rows * linear.source.cols;
      ++row.tensors;
      row.weights += count;
      row.bytes_in += group.bytes / group_weights * count;
      row.bytes_out +=
          stored_bytes(linear.source.rows, linear.source.cols, linear.becomes.scheme, plan.dialect);
    }
  }
  std::vector<KindReport> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace

double KindReport::relative_error() const {
  return ratio(rounding.error_squares, rounding.weight_squares);
}
double KindReport::amax_relative_error() const {
  return ratio(rounding.amax_error_squares, rounding.weight_squares);
}

std::string scheme_text(const QuantScheme& scheme) {
  if (scheme.weights == WeightFormat::plain) return "as it was";
  if (scheme.weights == WeightFormat::fp8_block) return "FP8 128x128";
  if (scheme.weights == WeightFormat::fp8_channel) return "FP8 per channel";
  if (scheme.weights == WeightFormat::fp8_tensor)
    return scheme.activations == ActivationFormat::fp8_tensor ? "FP8, static activations" : "FP8";
  return scheme.activations == ActivationFormat::nvfp4 ? "NVFP4, 4-bit activations" : "NVFP4";
}

void QuantizeReport::add_rest(KindReport rest) {
  rest.bytes_in = bytes_in;
  rest.bytes_out = bytes_out;
  for (const KindReport& row : kinds) {
    rest.bytes_in -= row.bytes_in;
    rest.bytes_out -= row.bytes_out;
  }
  kinds.push_back(std::move(rest));
}

KindReport QuantizeReport::total_rounded() const {
  KindReport total{.kind = "all quantized", .scheme = "", .rounding = {}};
  for (const KindReport& kind : kinds) {
    if (kind.weights == 0) continue;  // what stayed as it was
    total.tensors += kind.tensors;
    total.weights += kind.weights;
    total.bytes_in += kind.bytes_in;
    total.bytes_out += kind.bytes_out;
    total.rounding += kind.rounding;
  }
  return total;
}

Json QuantizeReport::json() const {
  Json out;
  Json producer;
  producer.set("name", "nibble");
  producer.set("version", NIBBLE_VERSION);
  out.set("producer", std::move(producer));
  out.set("base", base);
  out.set("commands", json_strings(commands));
  out.set("recipe", recipe);
  out.set("recipe_about", about);
  out.set("recipe_status", recipe_status_name(status));
  out.set("format", dialect_name(dialect));
  out.set("algorithm", round_algorithm_name(algorithm));
  if (!data_hash.empty()) out.set("calibration_sha256", data_hash);
  if (!hashes_file.empty()) out.set("hashes", hashes_file);
  out.set("tensor_bytes_in", bytes_in);
  out.set("tensor_bytes_out", bytes_out);
  out.set("total", row_json(total_rounded()));
  Json rows{Json::Array()};
  for (const KindReport& kind : kinds) rows.push_back(row_json(kind));
  out.set("kinds", std::move(rows));
  Json by_layer{Json::Array()};
  for (const LayerReport& layer : layers) {
    Json row;
    row.set("kind", layer.kind);
    row.set("layer", layer.layer);
    row.set("relative_error", ratio(layer.rounding.error_squares, layer.rounding.weight_squares));
    set_squares(layer.rounding, row);
    by_layer.push_back(std::move(row));
  }
  out.set("layers", std::move(by_layer));
  Json without_data{Json::Array()};
  for (const auto& [module, reason] : fallbacks) {
    Json row;
    row.set("linear", module);
    row.set("reason", reason);
    without_data.push_back(std::move(row));
  }
  out.set("rounded_without_data", std::move(without_data));
  out.set("warnings", json_strings(warnings));
  if (!allocation.is_null()) out.set("allocation", allocation);
  if (!calibration.is_null()) out.set("calibration", calibration);
  return out;
}

std::string QuantizeReport::table() const {
  std::vector<Cells> rows = {
      {"kind", "scheme", "tensors", "MB in", "MB out", "rel. error", "plain amax/6", "better by"}};
  for (const KindReport& kind : kinds) rows.push_back(row_cells(kind));
  rows.push_back(row_cells(total_rounded()));
  std::string text = layout(rows);
  char line[160];
  std::snprintf(
      line, sizeof line, "all tensors: %s MB -> %s MB, %.2f times smaller\n",
      megabytes(bytes_in).c_str(), megabytes(bytes_out).c_str(),
      static_cast<double>(bytes_in) / static_cast<double>(std::max<int64_t>(bytes_out, 1)));
  text += line;
  for (const std::string& warning : warnings) text += concat("warning: ", warning, "\n");
  return text;
}

QuantizeReport start_report(const QuantPlan& plan, const Recipe& recipe, RoundAlgorithm algorithm) {
  QuantizeReport report{.base = {},
                        .recipe = recipe.name,
                        .about = recipe.about,
                        .status = recipe.status,
                        .dialect = plan.dialect,
                        .algorithm = algorithm,
                        .kinds = rounded_rows(plan),
                        .bytes_in = plan.bytes_in,
                        .bytes_out = plan.bytes_out};
  KindReport rest{.kind = std::string(kRest), .scheme = "as it was", .rounding = {}};
  rest.tensors = static_cast<int64_t>(plan.copied.size() + plan.separated.size());
  report.add_rest(std::move(rest));
  if (recipe.status != RecipeStatus::production)
    report.warnings.push_back(
        concat("recipe ", recipe.name, " has status ", recipe_status_name(recipe.status)));
  if (std::ranges::any_of(plan.declaration.quantized, [](const auto& module) {
        return module.scheme.activations == ActivationFormat::nvfp4 ||
               module.scheme.activations == ActivationFormat::fp8_tensor;
      }))
    report.warnings.emplace_back(kUnmeasured);
  return report;
}

void finish_report(QuantizeReport& report) {
  if (!report.calibration.is_null()) std::erase(report.warnings, kUnmeasured);
  std::erase_if(report.warnings, [](const std::string& warning) {
    return warning.find(kBlocks) != std::string::npos || warning.find(kNoData) != std::string::npos;
  });
  const RoundStatistics all = report.total_rounded().rounding;
  if (all.zero_blocks > 0)
    report.warnings.push_back(concat(all.zero_blocks, kBlocks, " are all zero"));
  if (all.flushed_blocks > 0)
    report.warnings.push_back(
        concat(all.flushed_blocks, kBlocks, " are too small beside their matrix and became zero"));
  if (!report.fallbacks.empty())
    report.warnings.push_back(concat(report.fallbacks.size(), kNoData, ", first ",
                                     report.fallbacks.front().first, ": ",
                                     report.fallbacks.front().second));
}

std::string recipe_file(std::string_view rules, const QuantizeReport& report) {
  constexpr std::string_view kEnd = "# The rules:\n";
  const size_t end = rules.starts_with("# Made by nibble") ? rules.find(kEnd) : rules.npos;
  if (end != rules.npos) rules.remove_prefix(end + kEnd.size());
  std::string text = concat("# Made by nibble ", NIBBLE_VERSION, ":\n");
  for (const std::string& command : report.commands) text += concat("#   ", command, "\n");
  text += "# It resolved to:\n";
  for (const KindReport& kind : report.kinds)
    text += concat("#   ", kind.kind, ": ", kind.scheme, " (", kind.tensors, ")\n");
  return concat(text, kEnd, rules);
}

}  // namespace nibble
