// quantize_report.json back to a report: for conversions, whose output needs a true one.
#include "model/config/config_section.h"
#include "quantize/report/quantize_report.h"

namespace nibble {
namespace {

// Beyond these no model goes; within them sums and quotients stay finite.
constexpr size_t kRowsMax = 1'000'000;
constexpr IntRange kCount = {0, int64_t{1} << 42};
constexpr IntRange kLayer = {-1, 100'000};
constexpr NumberRange kSquares = {0, 1e100};
constexpr double kSquaresLeast = 1e-100;

using Rows = std::vector<ConfigSection>;

Result<Rows> rows_of(const ConfigSection& root, std::string_view key) {
  const Json* list = root.find(key);
  if (list == nullptr) return root.missing(key, "a list of objects");
  if (!list->is_array()) return root.wrong(key, "a list of objects", *list);
  if (list->as_array().size() > kRowsMax)
    return root.wrong(key, concat("at most ", kRowsMax, " rows"), list->as_array().size());
  Rows rows;
  for (const Json& row : list->as_array()) {
    if (!row.is_object()) return root.wrong(key, "a list of objects", row);
    rows.emplace_back(row, concat(root.name(key), "[", rows.size(), "]."));
  }
  return rows;
}

Result<std::vector<std::string>> texts_of(const ConfigSection& root, std::string_view key) {
  const Json* list = root.find(key);
  if (list == nullptr) return root.missing(key, "a list of texts");
  if (!list->is_array()) return root.wrong(key, "a list of texts", *list);
  std::vector<std::string> texts;
  for (const Json& text : list->as_array()) {
    if (!text.is_string()) return root.wrong(key, "a list of texts", text);
    texts.push_back(text.as_string());
  }
  return texts;
}

Result<RoundStatistics> statistics_of(const ConfigSection& row) {
  const double squares = TRY(row.number_or("weight_squares", 0, kSquares));
  if (squares > 0 && squares < kSquaresLeast)
    return row.wrong("weight_squares", concat("0, or at least ", kSquaresLeast), squares);
  RoundStatistics seen;
  seen.weight_squares = squares;
  if (squares > 0) {
    seen.error_squares = TRY(row.number_or("error_squares", 0, kSquares));
    seen.amax_error_squares = TRY(row.number_or("amax_error_squares", 0, kSquares));
  }
  seen.zero_blocks = TRY(row.integer_or("zero_blocks", 0, kCount));
  seen.flushed_blocks = TRY(row.integer_or("flushed_blocks", 0, kCount));
  return seen;
}

Result<RecipeStatus> status_of(const ConfigSection& root) {
  const std::string name = TRY(root.text("recipe_status"));
  for (const auto status : {RecipeStatus::production, RecipeStatus::free_text, RecipeStatus::lab})
    if (recipe_status_name(status) == name) return status;
  return root.wrong("recipe_status", "production, free-text or lab", Json(name));
}

Result<void> read_rows(const ConfigSection& root, QuantizeReport& report) {
  for (const ConfigSection& row : TRY(rows_of(root, "kinds"))) {
    auto& kind = report.kinds.emplace_back();
    kind.kind = TRY(row.text("kind"));
    kind.scheme = TRY(row.text("scheme"));
    kind.tensors = TRY(row.integer("tensors", kCount));
    kind.weights = TRY(row.integer("weights", kCount));
    kind.bytes_in = TRY(row.integer("bytes_in", kCount));
    kind.bytes_out = TRY(row.integer("bytes_out", kCount));
    kind.rounding = TRY(statistics_of(row));
  }
  if (report.kinds.empty() || report.kinds.back().kind != kRest)
    return root.wrong("kinds", concat("a last row \"", kRest, "\""), *root.find("kinds"));
  for (const ConfigSection& row : TRY(rows_of(root, "layers"))) {
    auto& layer = report.layers.emplace_back();
    layer.kind = TRY(row.text("kind"));
    layer.layer = static_cast<int>(TRY(row.integer("layer", kLayer)));
    layer.rounding = TRY(statistics_of(row));
  }
  for (const ConfigSection& row : TRY(rows_of(root, "rounded_without_data"))) {
    std::string linear = TRY(row.text("linear"));
    std::string reason = TRY(row.text("reason"));
    report.fallbacks.emplace_back(std::move(linear), std::move(reason));
  }
  return {};
}

}  // namespace

Result<QuantizeReport> parse_report(const Json& json) {
  const ConfigSection root(json, "quantize_report.json: ");
  const std::string format = TRY(root.text("format"));
  const std::string algorithm = TRY(root.text("algorithm"));
  QuantizeReport report;
  report.base = TRY(root.text("base"));
  report.recipe = TRY(root.text("recipe"));
  report.about = TRY(root.text_or("recipe_about", ""));
  report.status = TRY(status_of(root));
  report.dialect = TRY(parse_dialect(format));
  report.algorithm = TRY(parse_round_algorithm(algorithm));
  report.data_hash = TRY(root.text_or("calibration_sha256", ""));
  report.hashes_file = TRY(root.text_or("hashes", ""));
  report.warnings = TRY(texts_of(root, "warnings"));
  report.bytes_in = TRY(root.integer("tensor_bytes_in", kCount));
  report.bytes_out = TRY(root.integer("tensor_bytes_out", kCount));
  report.commands = TRY(texts_of(root, "commands"));
  TRY(read_rows(root, report));
  if (const Json* chosen = root.find("allocation")) report.allocation = *chosen;
  if (const Json* seen = root.find("calibration")) report.calibration = *seen;
  return report;
}

}  // namespace nibble
