// QuantizeReport: what a quantization did, in numbers: bytes and relative error by kind of tensor.
// The same run gives the same report; it holds no times and no paths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/rounding/nvfp4_round.h"

namespace nibble {

/// The kind of all that was not rounded; the last row.
inline constexpr std::string_view kRest = "everything else";

struct KindReport {
  std::string kind;     // "mlp.experts.gate_proj", or kRest
  std::string scheme;   // "NVFP4", "NVFP4, 4-bit activations", "as it was"
  int64_t tensors = 0;  // matrices
  int64_t weights = 0;
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  RoundStatistics rounding;

  /// Norm of the error over norm of the weights, of what was written and of plain amax/6.
  double relative_error() const;
  double amax_relative_error() const;
};

/// The linears of one kind in one layer (all experts together).
struct LayerReport {
  std::string kind;
  int layer = 0;  // -1: in none, as lm_head
  RoundStatistics rounding;
};

struct QuantizeReport {
  std::string base;  // "Qwen/Qwen3.6-35B-A3B", or a folder's name
  std::string recipe;
  std::string about;  // of the recipe
  RecipeStatus status = RecipeStatus::production;
  Dialect dialect = Dialect::compressed_tensors;
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  std::string data_hash = {};       // of what calibration read; empty: nothing
  std::vector<KindReport> kinds;    // quantized ones by name, then what stayed
  std::vector<LayerReport> layers;  // by kind, then layer
  /// Linears rounded without data although data was asked for, and why.
  std::vector<std::pair<std::string, std::string>> fallbacks;
  std::vector<std::string> warnings;
  Json calibration = {};  // what was seen, or null
  Json allocation = {};   // how formats were chosen (allocation.h), or null
  int64_t bytes_in = 0;   // of tensors
  int64_t bytes_out = 0;
  /// The commands that made the file: quantize, then conversions, with SRC and DST for paths.
  std::vector<std::string> commands = {};
  /// The file with the hashes of what was written; empty: there is none.
  std::string hashes_file = {};

  KindReport total_rounded() const;
  /// Adds the last of the kinds: `rest`, with the bytes that no other kind has.
  void add_rest(KindReport rest);
  Json json() const;
  /// Relative error by layer, a line per kind, as an SVG picture.
  std::string chart() const;
  /// The table for people, with the warnings below it.
  std::string table() const;
};

std::string scheme_text(const QuantScheme& scheme);

/// Rows and warnings that follow from the plan alone; rounding statistics are added by the run.
QuantizeReport start_report(const QuantPlan& plan, const Recipe& recipe, RoundAlgorithm algorithm);
/// Warnings that follow from the statistics; those of an earlier call go.
void finish_report(QuantizeReport& report);

/// The report of its json(): the same to the last bit. Errors: corrupt, not_found name the key.
Result<QuantizeReport> parse_report(const Json& json);

/// recipe.yaml: what the rules came to, as comments, and the rules as they were read. A head of
/// such comments that `rules` begins with is replaced.
std::string recipe_file(std::string_view rules, const QuantizeReport& report);

}  // namespace nibble
