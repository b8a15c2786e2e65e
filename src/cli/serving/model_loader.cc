// Checkpoint -> config -> weights -> backend by name.
#include "cli/serving/model_loader.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/processors.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/vision/vision_memory.h"
#include "backend/reference/reference_backend.h"
#include "base/file.h"
#include "cli/card/card_products.h"
#include "cli/loading/kv_range.h"
#include "cli/options/flag_errors.h"
#include "cli/serving/engine_setup.h"
#include "model/config/target_patterns.h"
#include "model/pages/kv_scales.h"
#include "model/synthetic/synthetic_numbers.h"
#include "model/weights/rounded_draft.h"
#include "model/weights/synthetic_weights.h"
#include "model/weights/weights.h"
#include "plan/card_limit.h"
#include "tensor/activation_codec.h"

namespace nibble {

Result<Activations> parse_activations(const Arguments& arguments, std::string_view name) {
  const std::string mode = TRY(arguments.choice(name, {"auto", "bf16", "declared", "f32", "int8"}));
  for (const Activations candidate :
       {Activations::automatic, Activations::bf16, Activations::declared, Activations::int8})
    if (activations_name(candidate) == mode) return candidate;
  return Activations::f32;
}

Result<StateCache> parse_state(const Arguments& arguments, std::string_view name) {
  const std::string kind =
      TRY(arguments.choice(name, {"f32", "float32", "auto", "bf16", "bfloat16"}));
  return kind.starts_with("b") ? StateCache::bf16 : StateCache::f32;
}

namespace {

/// Errors: invalid_argument also for activations that are never rounded to 4 bits.
Result<InputScales> parse_input_scales(const Arguments& arguments, Activations activations) {
  const std::string scales =
      TRY(arguments.choice(kInputScalesOption.name, {"amax", "four-over-six"}));
  if (scales == input_scales_name(InputScales::amax)) return InputScales::amax;
  if (activations != Activations::declared && activations != Activations::automatic)
    return make_error(ErrorCode::invalid_argument, {.what = concat("--input-scales ", scales),
                                                    .expected = "--activations declared or auto",
                                                    .found = activations_name(activations),
                                                    .advice = "leave one of them out"});
  return InputScales::four_over_six;
}

/// Scales are of FP8 alone, and never switch it on by themselves.
Result<KvScales> parse_kv_scales(const Arguments& arguments, KvCache kind) {
  const std::string word = arguments.text(kKvScalesOption.name).value_or("unit");
  if (word == "unit") return KvScales::unit;
  if (word != "checkpoint")
    return make_error(ErrorCode::invalid_argument, {.what = concat("--", kKvScalesOption.name),
                                                    .expected = "unit or checkpoint",
                                                    .found = concat('"', word, '"')});
  if (kind == KvCache::fp8) return KvScales::checkpoint;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--kv-scales checkpoint",
                     .expected = "--kv-cache-dtype fp8, the format that has such scales",
                     .found = concat("--kv-cache-dtype ", kv_cache_name(kind)),
                     .advice = "add it, or use --kv-scales unit"});
}

/// vLLM's words for the formats that are here, and no others: what is close to one of them must not
/// be taken for it.
Result<KvCache> parse_kv_cache(const Arguments& arguments) {
  const std::string word = arguments.text(kKvCacheOption.name).value_or("auto");
  for (const KvCache kind : kKvCaches)
    if (word == kv_cache_name(kind)) return kind;
  if (word == "bfloat16") return KvCache::bf16;
  if (word == "fp8_e4m3") return KvCache::fp8;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat("--", kKvCacheOption.name),
       .expected = "one of auto, bf16 (bfloat16), fp8 (fp8_e4m3), turboquant_4bit_nc, nvfp4",
       .found = concat('"', word, '"'),
       .advice =
           "each runs on cuda, cpu and reference with any model, but turboquant_4bit_nc takes "
           "head sizes that are powers of two from 16 up, and nvfp4 multiples of 16"});
}

Result<std::optional<std::string>> parse_load_format(const Arguments& arguments) {
  const std::string name = TRY(arguments.choice(
      "load-format",
      {"auto", "hf", "safetensors", "fastsafetensors", "runai_streamer", "instanttensor", "dummy",
       "dummy:mixed", "dummy:mixed-nvfp4-head", "dummy:nvfp4", "dummy:w4a4", "dummy:bf16"}));
  constexpr std::string_view kDummy = "dummy";
  if (!name.starts_with(kDummy)) return std::optional<std::string>();
  return std::optional(name.size() > kDummy.size() ? name.substr(kDummy.size() + 1) : "");
}

Result<std::optional<RopeOverride>> parse_rope_flags(const Arguments& arguments) {
  const auto scaling = arguments.text(kRopeScalingOption.name);
  const auto overrides = arguments.text(kHfOverridesOption.name);
  if (scaling && overrides)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--rope-scaling and --hf-overrides", .expected = "one of them", .found = "both"});
  if (scaling) return std::optional(TRY(parse_rope_scaling("--rope-scaling", *scaling)));
  if (overrides) return std::optional(TRY(parse_config_overrides("--hf-overrides", *overrides)));
  return std::optional<RopeOverride>();
}

/// Lines for people about the rotary settings: a key that was not taken, and how far YaRN goes.
std::string rope_notice(const ModelConfig& config) {
  const RopeConfig& rope = config.attention.rope;
  std::string text = rope.notice.empty() ? "" : concat(rope.notice, "\n");
  if (rope.yarn)
    text += concat("YaRN: factor ", rope.yarn->factor, " of ", rope.yarn->original_max_positions,
                   " positions, up to ", config.max_positions, " tokens\n");
  return text;
}

}  // namespace

bool wants_random_weights(const Arguments& arguments) {
  return arguments.text("load-format").value_or("").starts_with("dummy");
}

Result<ModelRequest> model_request(const Arguments& arguments, std::filesystem::path folder) {
  FlagErrors errors;
  ModelRequest request{.folder = std::move(folder)};
  request.backend = errors.take(arguments.choice("backend", {"auto", "cuda", "cpu", "reference"}));
  request.options.activations = errors.take(parse_activations(arguments, "activations"));
  request.options.input_scales =
      errors.take(parse_input_scales(arguments, request.options.activations));
  request.options.kv_cache = errors.take(parse_kv_cache(arguments));
  request.kv_scales = errors.take(parse_kv_scales(arguments, request.options.kv_cache));
  request.options.state = errors.take(parse_state(arguments, kStateOption.name));
  request.options.card = errors.take(card_limit(arguments.text("card-limit").value_or("")));
  request.dummy = errors.take(parse_load_format(arguments));
  request.options.threads = errors.take(read_threads(arguments));
  request.direct_io = arguments.enabled(kDirectIoOption.name);
  errors.add(read_weight_places(arguments, request.options));
  if (arguments.enabled(kEmulateFp4Option.name)) request.wanted.asked = Fp4Products::software;
  request.wanted.require_native = arguments.enabled(kRequireNativeOption.name);
  request.options.isa = arguments.text("isa").value_or("");
  request.options.host_memory_bytes = available_memory_bytes();
  request.rope = errors.take(parse_rope_flags(arguments));
  TRY(errors.result());
  return request;
}

namespace {

/// auto is cuda where a usable card is, else cpu, and `notice` says why. Asked before anything is
/// read.
Result<std::string> choose_backend(const std::string& name, std::string& notice) {
  if (name != "auto" && name != "cuda") return name;
  const Result<std::string> device = describe_cuda_device();
  if (device.ok()) return std::string("cuda");
  if (name == "cuda") return device.error();
  notice = concat("--backend auto takes the CPU: ", device.error().message, "\n");
  return std::string("cpu");
}

/// Only a card is imitated.
Result<void> check_card_limit(const std::string& backend, const CardLimit& limit) {
  if (backend == "cuda" || limit.memory_bytes == 0) return {};
  return make_error(ErrorCode::invalid_argument, {.what = "--card-limit",
                                                  .expected = "a card to limit (--backend cuda)",
                                                  .found = concat("the ", backend, " backend"),
                                                  .advice = "leave the flag out"});
}

/// A CPU must have the instructions that are asked for.
Result<void> check_processors(const std::string& backend, const BackendOptions& options,
                              LoadedModel& model) {
  if (backend != "cpu") return {};
  TRY(cpu::select_kernels(options.isa));
  model.notice += cpu::numa_notice();
  return {};
}

/// The reason why weights are not read in mapped files; empty: they can be.
std::string why_unmapped(const std::string& backend, const ModelRequest& request) {
  if (backend != "cpu") return concat("the ", backend, " backend");
  if (request.dummy) return "random weights";
  return request.direct_io ? "--direct-io" : "";
}

/// Codes of 4 bits on both sides are what a checkpoint declares, and kernels of cards.
Result<void> check_emulation(const std::string& backend, const ModelRequest& request) {
  const Activations mode = request.options.activations;
  if (request.wanted.asked != Fp4Products::software ||
      (backend == "cuda" && !request.dummy &&
       (mode == Activations::declared || mode == Activations::automatic)))
    return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--emulate-fp4",
       .expected = "--backend cuda, --activations declared or auto, and a checkpoint",
       .found = concat("the ", backend, " backend, activations ", activations_name(mode),
                       request.dummy ? " and random weights" : ""),
       .advice = "leave the flag out"});
}

/// Few bits of activations in integers are a way of the CPU; a judge of checkpoints rounds nothing
/// there unless it is asked to.
Result<void> settle_activations(const std::string& backend, ModelUse use, BackendOptions& options) {
  if (options.activations == Activations::int8 && backend != "cpu")
    return make_error(ErrorCode::unsupported, {.what = "--activations int8",
                                               .expected = "--backend cpu",
                                               .found = concat("the ", backend, " backend"),
                                               .advice = "auto is bf16 there"});
  if (options.activations == Activations::automatic && backend == "cpu" && use == ModelUse::judging)
    options.activations = Activations::f32;
  return {};
}

Result<std::unique_ptr<Backend>> make_backend(const std::string& name, const Weights& weights,
                                              const ModelConfig& config,
                                              const ModelRequest& request) {
  const BackendOptions& options = request.options;
  if (name == "cuda") return make_settled_cuda_backend(weights, config, options, request.products);
  if (name == "reference") return make_reference_backend(weights, config, options);
  return make_cpu_backend(weights, config, options);
}

/// Takes the bytes that the backend holds. The reference keeps no account: its weights take about
/// the bytes `stored`.
void count_weights(int64_t stored, LoadedModel& model) {
  const auto held = model.backend->reserved_bytes();
  model.weight_bytes = held ? held->weights : stored;
  model.table_bytes = held ? held->tables : 0;
  model.host_weights = model.backend->host_weights().value_or(HostWeights{});
}

/// Activations on a card that are not for serving: declared ones are where they are multiplied as
/// 4-bit codes, whether they were asked for or chosen.
bool measures_only(const ModelRequest& request) {
  const Activations mode = request.options.activations;
  return mode == Activations::f32 ||
         (mode == Activations::declared && request.products.way == Fp4Products::widened);
}

/// True if the MTP layer is to be loaded; a line for people where it is wanted in vain. Errors:
/// unsupported, for activations on a card that are there for measuring.
Result<bool> loads_draft_layer(const ModelRequest& request, const std::string& backend,
                               LoadedModel& model) {
  if (request.draft_layer == DraftLayer::unused) return false;
  const ModelConfig& config = model.config;
  if (request.draft_layer == DraftLayer::by_default) {
    model.no_drafts = no_default_drafts(request, backend, config);
    return model.no_drafts.empty();
  }
  const Activations mode = request.options.activations;
  if (backend == "cuda" && measures_only(request))
    return make_error(ErrorCode::unsupported,
                      {.what = "--speculative-config with the method mtp on a card",
                       .expected = "--activations bf16",
                       .found = activations_name(mode),
                       .advice = "leave one of the flags out"});
  if (config.mtp_layers == 0)
    model.notice += "the checkpoint has no MTP layer: answers are made without drafts\n";
  return config.mtp_layers > 0;
}

/// The tower to load, if one is wanted; a line for people where it is wanted in vain. `checkpoint`:
/// null for random weights, which have what the config describes. Errors: those of
/// VisionConfig::parse.
Result<void> choose_tower(const ModelRequest& request, const std::string& backend,
                          const Json& config, LoadedModel& model) {
  const bool described = config.find("vision_config") != nullptr;
  if (request.tower == TowerUse::unused || !described) return {};
  if (model.checkpoint && vision_prefix(*model.checkpoint).empty()) {
    model.notice += "images are not taken: the checkpoint has no vision tower\n";
    return {};
  }
  if (backend == "cuda" && request.tower == TowerUse::wanted_on_cpu) {
    model.notice +=
        "images are not taken: on a card --max-image-tokens N, such as 4096, loads the "
        "vision tower\n";
    return {};
  }
  const auto vision =
      TRY(VisionConfig::parse(config, model.config.hidden, model.config.vocab_rows));
  if (backend == "cuda" && vision && !cuda::vision_fits_card(*vision)) {
    model.notice += "images are not taken: no kernel for the heads of this vision tower\n";
    return {};
  }
  model.config.vision = vision;
  return {};
}

/// A layer that cannot be bound or loaded costs its drafts, not the start.
std::string without_drafts(const Error& error) {
  return concat("answers are made without drafts of the MTP layer: ", error.message, "\n");
}

/// Loads bound weights of an open checkpoint, with the MTP layer if it is bound.
Result<void> load_weights(const ModelRequest& request, const std::string& backend, Weights weights,
                          LoadedModel& model) {
  const auto source = request.reader ? request.reader(*model.checkpoint) : nullptr;
  if (source) weights = weights.over(*source);
  std::unique_ptr<RoundedDraft> rounded;
  if (weights.mtp()) {
    ThreadPool pool(request.options.threads);
    rounded = TRY(RoundedDraft::make(std::move(weights), model.config, pool));
    weights = rounded->weights();
    model.draft_bytes = loaded_draft_bytes(*weights.mtp());
  }
  model.backend = TRY(make_backend(backend, weights, model.config, request));
  if (request.options.kv_cache == KvCache::fp8)
    model.notice +=
        kv_range_notice(TRY(bound_kv(weights, model.config, request.options.kv_scales)));
  return {};
}

/// Loads the weights with the MTP layer, if they can be loaded so. Errors: those of
/// choose_draft_weights; a layer that cannot be bound or loaded is none.
Result<void> try_draft_layer(const ModelRequest& request, const std::string& backend,
                             LoadedModel& model) {
  model.config.draft_layers = 1;
  Result<Weights> bound = Weights::bind(*model.checkpoint, model.config);
  Result<void> loaded = bound.ok() ? Result<void>() : bound.error();
  if (bound.ok()) {
    TRY(choose_draft_weights(request.draft_weights, *bound.value().mtp(), bound.value().head(),
                             model.config));
    loaded = load_weights(request, backend, std::move(bound).value(), model);
  }
  if (loaded.ok()) return {};
  model.config.draft_layers = 0;
  model.config.draft_format = WeightFormat::plain;
  model.config.draft_tokens.clear();
  model.notice += without_drafts(loaded.error());
  model.no_drafts = "its MTP layer cannot be loaded";
  return {};
}

Result<void> open_checkpoint(const ModelRequest& request, const std::string& backend,
                             LoadedModel& model) {
  model.checkpoint = std::make_unique<Checkpoint>(TRY(Checkpoint::open(request.folder)));
  if (why_unmapped(backend, request).empty())
    TRY(map_weights(request.options.weights, *model.checkpoint, model.notice));
  if (!request.direct_io) return {};
  const Result<void> direct = model.checkpoint->read_directly();
  if (!direct.ok() && direct.error().code != ErrorCode::unsupported) return direct.error();
  if (!direct.ok()) model.notice += concat(direct.error().message, "; reading through the cache\n");
  return {};
}

/// The weight formats that a config.json declares, or those of a layout by its name.
Result<FormatOf> dummy_formats(const Json& config, const std::string& layout) {
  if (!layout.empty()) return formats_of(TRY(parse_weight_layout(layout)));
  return declared_formats(config);
}

/// Random weights: made on a card there, and on a CPU those that `nibble synth` writes.
/// `notice`: lines for people so far.
Result<LoadedModel> make_dummy_model(const ModelRequest& request, const std::string& backend,
                                     std::string notice) {
  constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
  const auto path = request.folder / "config.json";
  const std::string text = TRY(read_text_file(path, kConfigBytesMax));
  const Json config = TRY(parse_json(text, path.string()));
  if (request.kv_scales == KvScales::checkpoint)
    return make_error(ErrorCode::invalid_argument, {.what = "--kv-scales checkpoint",
                                                    .expected = "a checkpoint with scales",
                                                    .found = "random weights",
                                                    .advice = "use --kv-scales unit"});
  LoadedModel model;
  model.config = TRY(parse_config(config, request.rope));
  model.notice = std::move(notice) + rope_notice(model.config);
  const FormatOf formats = TRY(dummy_formats(config, *request.dummy));
  TRY(choose_tower(request, backend, config, model));
  if (TRY(loads_draft_layer(request, backend, model))) {
    model.config.draft_layers = 1;
    const SyntheticWeights plain = synthetic_weights(model.config, formats);
    TRY(choose_draft_weights(request.draft_weights, *plain.mtp, plain.head, model.config));
  } else {
    model.notice += options_in_vain(request.draft_weights);
  }
  if (backend == "cuda") {
    model.backend = TRY(make_random_cuda_backend(model.config, formats, request.options));
    count_weights(0, model);
    return model;
  }
  constexpr uint64_t kSeed = 1;  // the default of `nibble synth`
  SyntheticWeights places = synthetic_weights(model.config, formats);
  const SyntheticTensors tensors(places, model.config, kSeed);
  const Weights weights = Weights::made_up(tensors, std::move(places));
  model.backend = TRY(make_backend(backend, weights, model.config, request));
  count_weights(tensors.bytes(), model);
  return model;
}

}  // namespace

std::string no_default_drafts(const ModelRequest& request, const std::string& backend,
                              const ModelConfig& config) {
  if (config.mtp_layers == 0) return "the checkpoint has no MTP layer";
  if (request.dummy) return "random weights draft nothing that is right";
  if (backend != "cuda")
    return "since a CPU drafts only where it is asked to; --speculative-config turns it on";
  if (measures_only(request))
    return concat("--activations ", activations_name(request.options.activations),
                  " is for measuring");
  return {};
}

bool is_text_tensor(std::string_view name) {
  return name.find("visual.") == std::string_view::npos && !is_mtp(name);
}

int64_t vision_bytes(const Checkpoint& checkpoint) {
  const std::string prefix = vision_prefix(checkpoint);
  int64_t bytes = 0;
  for (const TensorEntry& entry : checkpoint.entries())
    if (!prefix.empty() && entry.name.starts_with(prefix)) bytes += entry.bytes;
  return bytes;
}

int64_t text_weight_bytes(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const TensorEntry& entry : checkpoint.entries())
    if (is_text_tensor(entry.name)) bytes += entry.bytes;
  return bytes;
}

Result<LoadedModel> load_model(const ModelRequest& asked) {
  LoadedModel model;
  ModelRequest request = asked;
  const std::string backend = TRY(choose_backend(request.backend, model.notice));
  TRY(check_card_limit(backend, request.options.card));
  TRY(check_processors(backend, request.options, model));
  TRY(settle_activations(backend, request.use, request.options));
  TRY(check_emulation(backend, request));
  TRY(check_native(request.wanted, request.options,
                   backend != "cuda" ? concat("the ", backend, " backend")
                   : request.dummy   ? "random weights"
                                     : ""));
  TRY(check_weight_places(request.options, why_unmapped(backend, request)));
  if (request.dummy) return make_dummy_model(request, backend, std::move(model.notice));
  TRY(open_checkpoint(request, backend, model));
  model.config = TRY(parse_config(model.checkpoint->config(), request.rope));
  model.notice += rope_notice(model.config);
  if (backend == "cuda") {
    const Weights weights = TRY(Weights::bind(*model.checkpoint, model.config));
    request.products =
        TRY(settle_card_products(weights, request.wanted, request.options, model.notice));
    request.options.activations = request.products.activations;
  }
  TRY(choose_tower(request, backend, model.checkpoint->config(), model));
  if (request.kv_scales == KvScales::checkpoint)
    request.options.kv_scales = TRY(read_kv_scales(*model.checkpoint, model.config));
  if (TRY(loads_draft_layer(request, backend, model)))
    TRY(try_draft_layer(request, backend, model));
  if (!model.backend) {
    Weights weights = TRY(Weights::bind(*model.checkpoint, model.config));
    TRY(load_weights(request, backend, std::move(weights), model));
  }
  if (model.config.draft_layers == 0) {
    model.draft_bytes = 0;
    model.notice += options_in_vain(request.draft_weights);
  }
  count_weights(text_weight_bytes(*model.checkpoint) + model.draft_bytes +
                    (model.config.vision ? vision_bytes(*model.checkpoint) : 0),
                model);
  model.notice += TRY(weight_places_notice({.weights = model.host_weights,
                                            .config = model.config,
                                            .checkpoint = *model.checkpoint,
                                            .memory_bytes = available_memory_bytes()}));
  return model;
}

}  // namespace nibble
