// The model that `nibble plan` speaks of, from headers, a config.json or a name; no tensor is read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "cli/options/folders.h"
#include "cli/verb.h"
#include "model/config/config.h"
#include "model/weights/synthetic_weights.h"
#include "plan/presets.h"
#include "plan/weight_tally.h"
#include "quantize/recipe/recipe.h"

namespace nibble {

inline constexpr Option kPlanRecipeOption = {
    "recipe", "NAME|FILE", "",
    "plan what `nibble quantize --recipe` would make of it; for a name alone: mixed", "quantize"};

/// The config that a server runs, and the weights that it holds.
struct ServedModelSizes {
  ModelConfig config;
  std::vector<WeightRow> on_card;
  std::vector<WeightRow> on_cpu;
  std::vector<WeightRow> mapped_on_cpu = {};  // the part of on_cpu in mapped files
  bool declares_codes = false;                // 4-bit inputs of 4-bit weights
};

struct PlanModel {
  std::string name;
  std::string made_of;  // for people: what the sizes come from
  ModelConfig config;
  std::optional<VisionConfig> vision;  // the tower that is loaded beside what is served
  std::optional<VisionSources> vision_weights;
  SyntheticWeights weights;  // names, shapes and formats, those of the recipe if there is one
  /// The sizes as served: with the MTP layer if --speculative-config loads it.
  ServedModelSizes served;
  /// The sizes with the MTP layer, where a server may load it by default; absent: `no_drafts` says
  /// why not.
  std::optional<ServedModelSizes> drafting;
  std::string no_drafts;
  std::vector<WeightRow> in_file;
  int64_t unread_bytes = 0;  // text tensors of the file beyond `in_file`
  OtherWeights others;
  std::optional<int64_t> written_bytes;  // bytes of all tensors that quantize would write
};

/// A model of the hub, of which only the beginnings of its files are here.
struct FetchedModel {
  Json config;                        // config.json
  std::optional<Checkpoint> weights;  // headers alone; absent: it has no safetensors files
};
/// Asks the hub for a model: ORG/NAME[@REV]. Empty: nothing is fetched, the cache is looked into.
using ModelFetcher = std::function<Result<FetchedModel>(const std::string& word)>;

/// The model that `word` means, with --recipe, --load-format dummy:LAYOUT and the rotary flags.
/// Errors: not_found for a word that is no folder, no file, no model of the Hugging Face cache and
/// no preset; those of the checkpoint, the config, the recipe and the fetcher.
Result<PlanModel> read_plan_model(const Arguments& arguments, const std::string& word,
                                  const ModelFetcher& fetch, Terminal& terminal);

/// A preset in a recipe, with its MTP layer where a server would load it by default.
Result<PlanModel> preset_model(const BuiltinPreset& preset, const Recipe& recipe);

}  // namespace nibble
