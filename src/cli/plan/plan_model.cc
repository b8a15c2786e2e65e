// Folder with weights: their headers. Anything else: the shapes that a config.json implies.
#include "cli/plan/plan_model.h"

#include "backend/cuda/activations/activation_rule.h"
#include "base/file.h"
#include "cli/options/image_options.h"
#include "cli/plan/plan_sizes.h"
#include "cli/serving/engine_setup.h"
#include "cli/serving/model_loader.h"
#include "cli/serving/speculation.h"
#include "model/config/rope_override.h"
#include "model/config/target_patterns.h"
#include "model/weights/draft_places.h"
#include "quantize/recipe/quant_plan.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

/// This is what the first word turned out to be.
struct Found {
  std::string name;
  fs::path folder;                        // the folder with weights; empty: none
  fs::path config;                        // a config.json; empty: none
  const BuiltinPreset* preset = nullptr;  // a built-in shape
  std::optional<FetchedModel> fetched = {};
};

bool has_weights(const fs::path& folder) {
  std::error_code failure;
  for (const auto& file : fs::directory_iterator(folder, failure))
    if (file.path().extension() == ".safetensors") return true;
  return false;
}

Found in_folder(const std::string& name, const fs::path& folder) {
  Found found{.name = name, .folder = {}, .config = folder / "config.json"};
  if (has_weights(folder)) found.folder = folder;
  return found;
}

Error unknown_model(const std::string& word) {
  return make_error(ErrorCode::not_found,
                    {.what = concat("model \"", word, "\""),
                     .expected = concat("a folder, a config.json, org/name of the Hugging Face "
                                        "cache, or one of ",
                                        known_presets()),
                     .found = "none of these"});
}

/// org/name of the cache, else the preset that is called like it.
Result<Found> in_hub_cache(const std::string& word, const std::string& revision,
                           Terminal& terminal) {
  const auto folder = checkpoint_folder(word, terminal, SnapshotNeeds::papers, revision);
  if (folder.ok()) return in_folder(word, folder.value());
  const std::string name = word.substr(word.find('/') + 1);
  const BuiltinPreset* preset = find_preset(name.substr(0, name.find('@')));
  if (preset == nullptr || folder.error().code != ErrorCode::not_found) return folder.error();
  terminal.err(concat(word, " is not in the Hugging Face cache: planned by the shapes of ",
                      preset->name, "; --fetch reads its own\n"));
  return Found{.name = word, .folder = {}, .config = {}, .preset = preset};
}

/// A model of the cache by its name without the owner; nothing: there is none.
Result<std::optional<Found>> by_alias(const std::string& word, const std::string& revision,
                                      Terminal& terminal) {
  const fs::path folder = TRY(checkpoint_folder(word, terminal, SnapshotNeeds::papers, revision));
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) return std::optional<Found>();
  return std::optional(in_folder(word, folder));
}

Result<Found> find_model(const Arguments& arguments, const std::string& word,
                         const ModelFetcher& fetch, Terminal& terminal) {
  const std::string revision = arguments.text(kRevisionOption.name).value_or("");
  std::error_code failure;
  if (fs::is_directory(word, failure)) {
    TRY(checkpoint_folder(word, terminal, SnapshotNeeds::papers, revision));  // its notices
    return in_folder(folder_name(word), word);
  }
  if (fs::exists(word, failure))
    return Found{.name = fs::path(word).filename().string(), .folder = {}, .config = word};
  if (const BuiltinPreset* preset = find_preset(word))
    return Found{.name = std::string(preset->name), .folder = {}, .config = {}, .preset = preset};
  if (hub_name_of(word) && fetch) {
    Found found{.name = word, .folder = {}, .config = {}};
    found.fetched = TRY(fetch(word));
    return found;
  }
  if (hub_name_of(word)) return in_hub_cache(word, revision, terminal);
  if (auto found = TRY(by_alias(word, revision, terminal))) return std::move(*found);
  return unknown_model(word);
}

/// Bytes of the tensors that are written and that `counts` says.
int64_t bytes_of(const QuantPlan& plan, const std::function<bool(const std::string&)>& counts) {
  int64_t bytes = 0;
  for (const TensorPlan& tensor : plan.outputs)
    if (counts(tensor.name)) bytes += dtype_bytes(tensor.dtype, tensor.shape.count());
  return bytes;
}

/// Tallies what a CPU and a card hold, with this MTP layer, loaded as the request says, or none.
/// Errors: those of choose_draft_weights.
Result<ServedModelSizes> sizes_of(const ModelRequest& request, const std::optional<MtpSources>& mtp,
                                  const Checkpoint* checkpoint, const PlanModel& model) {
  ServedModelSizes sizes{.config = model.config, .on_card = {}, .on_cpu = {}};
  SyntheticWeights all = model.weights;
  all.mtp = mtp;
  if (mtp) {
    sizes.config.draft_layers = 1;
    TRY(choose_draft_weights(request.draft_weights, *mtp, all.head, sizes.config));
    all.mtp = draft_places(*mtp, all.head, sizes.config);
  }
  all.vision = model.vision_weights;
  sizes.on_cpu = tally_in_file(all, sizes_on_cpu(all, checkpoint));
  sizes.mapped_on_cpu = tally_mapped(request, all, mtp, checkpoint);
  CardLayout layout{.activations = request.options.activations, .is_wider = {}};
  if (checkpoint != nullptr)
    layout.is_wider = [checkpoint](const LinearSource& source) {
      const TensorEntry* entry = checkpoint->find(source.values);
      return entry != nullptr && entry->dtype != DType::bf16;
    };
  sizes.on_card = tally_on_card(all, layout);
  sizes.declares_codes = cuda::linears_in_fp4(all.head, all.layers) > 0;
  return sizes;
}

/// The MTP layer is served if it is asked for and there; by default the place decides. Errors:
/// those of choose_draft_weights.
Result<void> tally_served(const ModelRequest& request, const std::optional<MtpSources>& mtp,
                          const Checkpoint* checkpoint, PlanModel& model) {
  const bool wanted = request.draft_layer == DraftLayer::wanted;
  model.served = TRY(sizes_of(request, wanted ? mtp : std::nullopt, checkpoint, model));
  if (request.draft_layer != DraftLayer::by_default) return {};
  ModelConfig config = model.config;
  if (!mtp) config.mtp_layers = 0;
  model.no_drafts = no_default_drafts(request, "cuda", config);
  if (model.no_drafts.empty()) model.drafting = TRY(sizes_of(request, mtp, checkpoint, model));
  return {};
}

/// The MTP layer of a checkpoint, with the formats of a recipe; nothing where a server would do
/// without it too.
std::optional<MtpSources> mtp_of(const Checkpoint& checkpoint, ModelConfig config,
                                 const Recipe* recipe) {
  config.draft_layers = config.mtp_layers > 0 ? 1 : 0;
  const auto bound = Weights::bind(checkpoint, config);
  std::optional<MtpSources> mtp = bound.ok() ? bound.value().mtp() : std::nullopt;
  if (mtp && recipe != nullptr) apply_recipe(*recipe, *mtp);
  return mtp;
}

/// The tower as a checkpoint stores it, or as config.json implies it.
Result<void> add_tower(const Json& json, const Checkpoint* checkpoint, PlanModel& model) {
  ModelConfig config = model.config;
  config.vision = TRY(VisionConfig::parse(json, config.hidden, config.vocab_rows));
  if (!config.vision) return {};
  model.vision = config.vision;
  model.vision_weights = plain_vision(*config.vision);
  if (checkpoint != nullptr)
    model.vision_weights = TRY(Weights::bind(*checkpoint, config)).vision();
  return {};
}

Result<PlanModel> from_headers(std::string name, const Checkpoint& checkpoint, const Recipe* recipe,
                               const ModelRequest& request) {
  PlanModel model{.name = std::move(name), .made_of = "headers of its weight files", .config = {}};
  model.config = TRY(parse_config(checkpoint.config(), request.rope));
  const Weights bound = TRY(Weights::bind(checkpoint, model.config));
  model.weights = {bound.embedding(), bound.head(), bound.final_norm(), bound.layers(), {}};
  int64_t text_bytes = text_weight_bytes(checkpoint);
  model.others = others_of(checkpoint);
  if (recipe != nullptr) {
    const QuantPlan plan = TRY(plan_quantization(checkpoint, *recipe, Dialect::compressed_tensors));
    model.made_of += concat(", recipe ", recipe->name);
    model.written_bytes = plan.bytes_out;
    text_bytes = bytes_of(plan, is_text_tensor);
    model.others.mtp_bytes = bytes_of(plan, is_mtp);
    apply_recipe(*recipe, model.weights);
  }
  model.in_file = tally_in_file(model.weights, sizes_in(checkpoint, recipe));
  if (request.tower == TowerUse::wanted && !vision_prefix(checkpoint).empty())
    TRY(add_tower(checkpoint.config(), &checkpoint, model));
  TRY(tally_served(request, mtp_of(checkpoint, model.config, recipe), &checkpoint, model));
  model.unread_bytes = text_bytes - total_bytes(model.in_file);
  return model;
}

/// Shapes alone, in the formats of a recipe, of a layout, or of the config's own declaration.
Result<PlanModel> from_shapes(std::string name, const Json& json, const Recipe* recipe,
                              const ModelRequest& request) {
  const std::optional<std::string>& layout = request.dummy;
  PlanModel model{.name = std::move(name), .made_of = {}, .config = {}};
  model.config = TRY(parse_config(json, request.rope));
  FormatOf formats = formats_of(WeightLayout::bf16);
  if (recipe != nullptr) {
    model.made_of = concat("shapes of its config.json, recipe ", recipe->name);
  } else if (layout && !layout->empty()) {
    model.made_of = concat("shapes of its config.json, layout ", *layout);
    formats = formats_of(TRY(parse_weight_layout(*layout)));
  } else {
    const bool declared = json.find("quantization_config") != nullptr;
    model.made_of = declared ? "config.json alone, as it declares" : "config.json alone, BF16";
    formats = TRY(declared_formats(json));
  }
  model.weights = synthetic_weights(model.config, formats);
  if (recipe != nullptr) apply_recipe(*recipe, model.weights);
  model.in_file = tally_in_file(model.weights, usual_file_bytes());
  if (request.tower == TowerUse::wanted) TRY(add_tower(json, nullptr, model));
  ModelConfig drafting = model.config;
  drafting.draft_layers = drafting.mtp_layers == 1 ? 1 : 0;
  std::optional<MtpSources> mtp = synthetic_weights(drafting, formats).mtp;
  if (mtp && recipe != nullptr) apply_recipe(*recipe, *mtp);
  TRY(tally_served(request, mtp, nullptr, model));
  model.others = TRY(other_weights(json, model.config));
  if (mtp) model.others.mtp_bytes = loaded_draft_bytes(*mtp);  // in the formats of the recipe
  return model;
}

Result<Json> read_config(const fs::path& path) {
  constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
  const std::string text = TRY(read_text_file(path, kConfigBytesMax));
  return parse_json(text, path.string());
}

Result<PlanModel> plan_model(const Found& found, const Recipe* recipe,
                             const ModelRequest& request) {
  if (found.fetched && found.fetched->weights && !request.dummy)
    return from_headers(found.name, *found.fetched->weights, recipe, request);
  if (!found.folder.empty() && !request.dummy)
    return from_headers(found.name, TRY(Checkpoint::open(found.folder)), recipe, request);
  const Json json = found.preset != nullptr ? preset_config(*found.preset)
                    : found.fetched         ? found.fetched->config
                                            : TRY(read_config(found.config));
  return from_shapes(found.name, json, recipe, request);
}

}  // namespace

Result<PlanModel> preset_model(const BuiltinPreset& preset, const Recipe& recipe) {
  const ModelRequest as_served = {.draft_layer = DraftLayer::by_default,
                                  .draft_weights = {.format = std::nullopt}};
  return from_shapes(std::string(preset.name), preset_config(preset), &recipe, as_served);
}

Result<PlanModel> read_plan_model(const Arguments& arguments, const std::string& word,
                                  const ModelFetcher& fetch, Terminal& terminal) {
  const Found found = TRY(find_model(arguments, word, fetch, terminal));
  ModelRequest request = TRY(model_request(arguments, found.folder));
  const auto speculation = TRY(read_speculation(arguments));
  if (speculation && speculation->method == DraftMethod::mtp)
    request.draft_layer = DraftLayer::wanted;
  else if (speculates_by_default(arguments))
    request.draft_layer = DraftLayer::by_default;
  if (TRY(takes_media(arguments)) && !arguments.enabled(kNoVisionOption.name))
    request.tower = TowerUse::wanted;
  request.draft_weights = TRY(read_draft_weights(arguments));
  std::optional<Recipe> recipe;
  const bool nothing_said = found.preset != nullptr && !request.dummy;
  if (const auto wanted = arguments.text(kPlanRecipeOption.name))
    recipe = TRY(load_recipe(*wanted));
  else if (nothing_said)
    recipe = TRY(load_recipe(kDefaultRecipe));
  PlanModel model = TRY(plan_model(found, recipe ? &*recipe : nullptr, request));
  const bool loads_layer = model.drafting || model.served.config.draft_layers > 0;
  const std::string in_vain = loads_layer ? "" : options_in_vain(request.draft_weights);
  if (!in_vain.empty()) terminal.err(in_vain);
  return model;
}

}  // namespace nibble
