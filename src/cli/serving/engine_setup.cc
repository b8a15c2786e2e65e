// Makes a memory plan from flags; asks the system how much memory there is.
#include "cli/serving/engine_setup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

#include "cli/options/flag_errors.h"
#include "plan/card_defaults.h"

namespace nibble {

namespace {

/// "N", "auto" (vLLM also has -1 for it) or "auto:SEQS".
Result<void> read_model_len(const Arguments& arguments, MemoryRequest& request) {
  constexpr std::string_view kAutomatic = "auto";
  const std::string text = arguments.text(kMaxModelLenOption.name).value_or("auto");
  if (text == kAutomatic || text == "-1") return {};
  if (!text.starts_with("auto:")) {
    request.model_len = TRY(arguments.integer(kMaxModelLenOption.name, 2, INT32_MAX));
    return {};
  }
  int32_t count = 0;
  const char* begin = text.data() + kAutomatic.size() + 1;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size())
    return make_error(ErrorCode::invalid_argument, {.what = "--max-model-len",
                                                    .expected = "a number, auto, or auto:SEQUENCES",
                                                    .found = text});
  request.full_length_sequences = count;
  return {};
}

/// Sequences and rows on a CPU unless a flag says otherwise; those of a card come from the plan.
constexpr int32_t kCpuSequences = 16;
constexpr int32_t kCpuRows = 512;
constexpr int64_t kSequencesMost = 65536;

/// Sequences and rows as the flags give them; the machine decides what they leave out.
struct AskedSizes {
  std::optional<int32_t> sequences;
  std::optional<int32_t> rows;
};

/// Bytes of one row of encoded media: F32, in whole vectors of 16.
int64_t padded_row_bytes(int64_t columns) {
  return (columns + 15) / 16 * 16 * int64_t{sizeof(float)};
}

/// Reads the options that only a server has.
Result<void> read_serving(const Arguments& arguments, MemoryRequest& request, EngineSetup& setup) {
  constexpr int64_t kHostBytesMost = int64_t{4} << 30;
  constexpr int64_t kHostShareDivisor = 8;
  if (!arguments.enabled(kPrefixCachingOption.name)) {
    setup.cache = CacheMode::off;
    request.snapshots = 0;
  } else if (TRY(arguments.choice(kCacheModeOption.name, {"exact", "fast"})) == "fast") {
    setup.cache = CacheMode::fast;
  }
  if (arguments.text(kSnapshotsOption.name))
    request.snapshots =
        static_cast<int32_t>(TRY(arguments.integer(kSnapshotsOption.name, 0, 1 << 20)));
  request.host_bytes = std::min(available_memory_bytes() / kHostShareDivisor, kHostBytesMost);
  if (arguments.text(kHostCacheOption.name))
    request.host_bytes = TRY(arguments.integer(kHostCacheOption.name, 0, INT64_MAX));
  setup.step_ms = static_cast<double>(TRY(arguments.integer(kStepTimeOption.name, 1, 60000)));
  setup.long_prompt_tokens =
      static_cast<int32_t>(TRY(arguments.integer(kLongPromptOption.name, 4, 1 << 30)));
  return {};
}

/// The rows of kTowerOptions that are numbers, where they are given.
struct AskedImages {
  std::optional<int64_t> tokens;      // tokens of the largest image
  std::optional<int64_t> kept_bytes;  // bytes of encoded images that are kept
};

Result<AskedImages> read_images(const Arguments& arguments) {
  constexpr int64_t kImageTokensMost = 1 << 16;
  FlagErrors errors;
  AskedImages asked;
  if (arguments.text(kImageTokensOption.name))
    asked.tokens = errors.take(arguments.integer(kImageTokensOption.name, 4, kImageTokensMost));
  if (arguments.text(kEncoderCacheOption.name))
    asked.kept_bytes = errors.take(arguments.integer(kEncoderCacheOption.name, 1, INT64_MAX));
  TRY(errors.result());
  return asked;
}

/// Memory for images: of the largest, and of those that are kept.
Result<void> read_media(const Arguments& arguments, const ModelOnMachine& model,
                        MemoryRequest& request) {
  constexpr int64_t kImageTokensOnCpu = 1024;  // on a card a tower is loaded for what is asked
  constexpr int64_t kKeptImages = 8;
  constexpr int64_t kRowsMost = INT32_MAX / kPageTokens;
  if (!model.vision) return {};
  const AskedImages asked = TRY(read_images(arguments));
  const int64_t tokens = asked.tokens.value_or(kImageTokensOnCpu);
  request.image_tokens_max = static_cast<int32_t>(tokens);
  request.vision_rows = vision_rows_of(tokens * model.vision->merged_patches());
  const int64_t row_bytes = padded_row_bytes(model.vision->out);
  const int64_t rows = asked.kept_bytes ? *asked.kept_bytes / row_bytes : kKeptImages * tokens;
  if (rows < tokens || rows > kRowsMost)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat("--", kEncoderCacheOption.name),
         .expected = concat("from ", tokens * row_bytes, " bytes, an image of ", tokens,
                            " tokens, to ", kRowsMost * row_bytes),
         .found = *arguments.text(kEncoderCacheOption.name),
         .advice = rows < tokens ? "raise it or lower --max-image-tokens" : "lower it"});
  request.media_rows = static_cast<int32_t>(rows);
  request.media_cache_bytes = rows * row_bytes;
  request.media_bytes =
      model.media_bytes({.media_rows = request.media_rows, .vision_rows = request.vision_rows});
  return {};
}

/// auto:SEQS asks for as many sequences, whatever the default; few rows allow fewer.
void use_sizes(const AskedSizes& asked, const ServingDefaults& defaults, MemoryRequest& request) {
  const int32_t rows_left = asked.rows.value_or(INT32_MAX) - kPageTokens;
  request.sequences_max = asked.sequences.value_or(
      std::max(std::min(defaults.sequences_max, rows_left), request.full_length_sequences));
  request.rows_max =
      asked.rows.value_or(std::max(defaults.rows_max, request.sequences_max + kPageTokens));
}

/// `share` of the card, what a pass there is, and what is taken beside weights and caches.
Result<void> read_card(const ModelOnMachine& model, double share, const AskedSizes& asked,
                       MemoryRequest& request) {
  const DeviceMemory& loaded = *model.card;
  const CardBudget budget = card_budget({.card_bytes = loaded.card,
                                         .share = share,
                                         .taken_bytes = loaded.driver,
                                         .context_bytes = loaded.context});
  request.rule = CacheRule::all;
  request.memory_bytes = budget.memory_bytes;
  request.asked_bytes = budget.asked_bytes;
  request.others_bytes = budget.others_bytes;
  const CardRoom room = {.bytes = budget.memory_bytes - model.weight_bytes - budget.context_bytes,
                         .page_bytes = request.page_bytes,
                         .slot_bytes = request.slot_bytes};
  use_sizes(asked, serving_defaults(model.config, room), request);
  request.driver_bytes =
      budget.context_bytes + model.recorded_bytes(largest_pass(request)) + model.driver_growth();
  return {};
}

/// A pass that takes longer will not end. Counted, not measured: the longest honest one, 8,192 rows
/// after 262,144 tokens, takes a few seconds on an H200; on a slow CPU a pass of a dense model
/// takes minutes.
Result<std::chrono::duration<double>> read_step_deadline(const Arguments& arguments,
                                                         const Backend& backend) {
  if (!arguments.text(kStepDeadlineOption.name))
    return std::chrono::duration<double>(backend.device_memory() ? 60.0 : 600.0);
  return std::chrono::duration<double>(
      TRY(arguments.number(kStepDeadlineOption.name, 0.0, 86400.0)));
}

}  // namespace

Result<double> read_memory_share(const Arguments& arguments) {
  const std::string text = *arguments.text(kMemoryShareOption.name);
  double share = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error == std::errc() && end == text.data() + text.size() && share > 0.0 && share <= 1.0)
    return share;
  return make_error(ErrorCode::invalid_argument, {.what = "--gpu-memory-utilization",
                                                  .expected = "a number above 0 and at most 1",
                                                  .found = text});
}

Result<std::optional<int32_t>> read_sequences(const Arguments& arguments) {
  const std::string text = *arguments.text(kMaxSequencesOption.name);
  if (text == "auto") return std::optional<int32_t>();
  const Result<int64_t> count = arguments.integer(kMaxSequencesOption.name, 1, kSequencesMost);
  if (count.ok()) return std::optional(static_cast<int32_t>(count.value()));
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--max-num-seqs",
                     .expected = concat("a whole number from 1 to ", kSequencesMost, ", or auto"),
                     .found = concat("\"", text, "\"")});
}

int64_t available_memory_bytes() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::ifstream memory("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string unit;
  while (memory >> key >> kilobytes) {
    std::getline(memory, unit);
    if (key == "MemAvailable:") bytes = kilobytes * 1024;
  }
  int64_t limit = 0;
  int64_t used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");  // "max" where there is no limit
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  if (!(limit_file >> limit && used_file >> used)) return bytes;
  // Cached pages of files count as used there, and give way when memory is asked for.
  std::ifstream parts("/sys/fs/cgroup/memory.stat");
  int64_t part = 0;
  while (parts >> key >> part)
    if (key == "inactive_file" || key == "active_file") used -= part;
  return std::min(bytes, limit - used);
}

Result<int> end_of_verb(std::string_view verb, const Result<void>& failure, Result<int> code,
                        Terminal& terminal) {
  if (failure.ok()) return code;
  terminal.err(concat("nibble ", verb, ": ", failure.error().message, "\n"));
  return kExitDevice;
}

EngineSettings EngineSetup::settings() const {
  return {.pools = plan.pools,
          .planned = plan.reserved(),
          .sequences_max = plan.sequences_max,
          .context_max = plan.context_max,
          .cache = cache,
          .step_ms = step_ms,
          .drafter = drafter,
          .model_drafts = model_drafts,
          .repeat_match = synthetic_acceptance.empty() ? repeat_match : 0,
          .synthetic_acceptance = synthetic_acceptance,
          .long_prompt_tokens = long_prompt_tokens,
          .sampling_threads = sampling_threads};
}

Result<void> check_engine_flags(const Arguments& arguments, const EngineNeeds& needs) {
  FlagErrors errors;
  MemoryRequest request;
  EngineSetup setup;
  errors.add(read_memory_share(arguments));
  errors.add(read_model_len(arguments, request));
  if (needs.use == EngineUse::serving) errors.add(read_serving(arguments, request, setup));
  if (arguments.text(kKvCacheBytesOption.name))
    errors.add(arguments.integer(kKvCacheBytesOption.name, 1, INT64_MAX));
  if (arguments.text(kMaxBatchedTokensOption.name))
    errors.add(arguments.integer(kMaxBatchedTokensOption.name, kPageTokens + 1, 1 << 20));
  if (arguments.text(kStepDeadlineOption.name))
    errors.add(arguments.number(kStepDeadlineOption.name, 0.0, 86400.0));
  errors.add(read_images(arguments));
  errors.add(read_speculation(arguments));
  errors.add(read_draft_weights(arguments));
  errors.add(model_request(arguments, {}));
  return errors.result();
}

Result<MemoryRequest> memory_request(const Arguments& arguments, const EngineNeeds& needs,
                                     const ModelOnMachine& model) {
  const double share = TRY(read_memory_share(arguments));
  const int64_t most = std::numeric_limits<int64_t>::max() - model.held_bytes;
  const int64_t memory = std::min(available_memory_bytes(), most) + model.held_bytes;
  MemoryRequest request{.memory_bytes = static_cast<int64_t>(static_cast<double>(memory) * share)};
  EngineSetup unused;
  TRY(read_model_len(arguments, request));
  if (needs.use == EngineUse::serving) TRY(read_serving(arguments, request, unused));
  if (arguments.text(kKvCacheBytesOption.name))
    request.kv_cache_bytes = TRY(arguments.integer(kKvCacheBytesOption.name, 1, INT64_MAX));
  AskedSizes asked{.sequences = needs.sequences_max};
  if (arguments.text(kMaxBatchedTokensOption.name))
    asked.rows = static_cast<int32_t>(
        TRY(arguments.integer(kMaxBatchedTokensOption.name, kPageTokens + 1, 1 << 20)));
  if (const auto speculation = TRY(speculation_of(arguments, model.config)))
    request.replay_rows = speculation->tokens + 1;
  request.weight_bytes = model.weight_bytes;
  request.mapped_bytes = model.mapped_bytes;
  request.table_bytes = model.table_bytes;
  request.page_bytes = model.page_bytes;
  request.slot_bytes = model.slot_bytes + request.replay_rows * model.replay_row_bytes;
  request.reuse = needs.use == EngineUse::serving && unused.cache != CacheMode::off
                      ? PrefixReuse::shared
                      : PrefixReuse::none;
  TRY(read_media(arguments, model, request));
  if (model.card)
    TRY(read_card(model, share, asked, request));
  else
    use_sizes(asked, {.sequences_max = kCpuSequences, .rows_max = kCpuRows}, request);
  if (model.workspace_bytes) request.workspace_bytes = model.workspace_bytes(largest_pass(request));
  return request;
}

Result<MemoryPlan> plan_on_machine(const MemoryRequest& request, const ModelOnMachine& model) {
  MemoryPlan plan = TRY(plan_memory(model.config, request));
  if (!model.workspace_bytes) return plan;
  const int64_t exact = model.workspace_bytes(plan.pools);
  CHECK(exact <= plan.workspace_bytes, "a workspace of ", exact, " bytes, of the largest pass ",
        plan.workspace_bytes);
  plan.workspace_bytes = exact;
  return plan;
}

namespace {

/// Loads it; a person sees how far that is.
Result<LoadedModel> load_watched(ModelRequest model, Terminal* terminal) {
  if (terminal == nullptr || terminal->err_watcher() != Watcher::person) return load_model(model);
  Progress progress(*terminal, Progress::Look{.label = "loading", .unit = "MB", .unit_scale = 1e6});
  model.options.loading = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  return load_model(model);
}

Result<MemoryPlan> plan_of(const Arguments& arguments, const EngineNeeds& needs,
                           const ModelOnMachine& machine) {
  return plan_on_machine(TRY(memory_request(arguments, needs, machine)), machine);
}

/// The loss to a plan by an MTP layer that nobody asked for, which is loaded.
Result<std::string> lost_to_layer(const Arguments& arguments, const EngineNeeds& needs,
                                  const LoadedModel& model, ModelOnMachine machine) {
  const auto with = plan_of(arguments, needs, machine);
  if (!with.ok() && with.error().code != ErrorCode::no_memory) return with.error();
  if (!with.ok()) return std::string(kDraftsDoNotFit);
  ModelConfig config = model.config;
  config.draft_layers = 0;
  const ModelOnMachine without = without_draft_layer(machine, config, model.draft_bytes);
  return lost_to_drafts(TRY(plan_of(arguments, needs, without)), with.value());
}

/// Loads the model, with its MTP layer if that is asked for or, by default, likely to pay and no
/// loss to the plan. Returns why nothing is drafted, if nothing is.
Result<std::string> load_with_drafts(const Arguments& arguments, const EngineNeeds& needs,
                                     ModelRequest model, EngineSetup& setup) {
  const auto asked = TRY(read_speculation(arguments));
  const bool by_default =
      needs.drafts == DefaultDrafts::where_it_pays && speculates_by_default(arguments);
  if (by_default) model.draft_layer = DraftLayer::by_default;
  if (asked && asked->method == DraftMethod::mtp) model.draft_layer = DraftLayer::wanted;
  setup.model = TRY(load_watched(model, needs.terminal));
  if (!arguments.enabled(kSpeculationOption.name)) return std::string("by --no-speculation");
  if (!by_default)
    return std::string(asked ? "the checkpoint gives no MTP layer" : "nothing asks for it");
  if (!setup.model.backend->drafts()) return setup.model.no_drafts;
  std::string lost = TRY(lost_to_layer(arguments, needs, setup.model, loaded_model(setup.model)));
  if (lost.empty()) return lost;
  setup.model = {};  // its memory first
  model.draft_layer = DraftLayer::unused;
  setup.model = TRY(load_watched(model, needs.terminal));
  return lost;
}

/// The tower to load where the verb takes images. Its flags are read before anything is loaded.
Result<TowerUse> tower_use(const Arguments& arguments, const EngineNeeds& needs) {
  TRY(read_images(arguments));
  if (needs.tower == TowerUse::unused || arguments.enabled(kNoVisionOption.name))
    return TowerUse::unused;
  return arguments.text(kImageTokensOption.name) ? TowerUse::wanted : TowerUse::wanted_on_cpu;
}

}  // namespace

Result<EngineSetup> set_up_engine(const Arguments& arguments, const std::filesystem::path& folder,
                                  const EngineNeeds& needs) {
  EngineSetup setup;
  MemoryRequest unused;
  if (needs.use == EngineUse::serving) TRY(read_serving(arguments, unused, setup));
  ModelRequest model = TRY(model_request(arguments, folder));
  setup.sampling_threads = model.options.threads;
  model.tower = TRY(tower_use(arguments, needs));
  model.draft_weights = TRY(read_draft_weights(arguments));
  const std::string why_not = TRY(load_with_drafts(arguments, needs, std::move(model), setup));
  Backend& backend = *setup.model.backend;
  const auto speculation = TRY(speculation_of(arguments, setup.model.config));
  if (speculation && speculation->method == DraftMethod::ngram)
    setup.drafter = std::make_shared<NgramDrafter>(speculation->lookup);
  else if (speculation)
    setup.model_drafts = speculation->tokens, setup.repeat_match = speculation->repeat_match;
  if (speculation) setup.synthetic_acceptance = speculation->synthetic_acceptance;
  setup.speculation = speculation_line(arguments, speculation, why_not, setup.model.config);
  setup.step_deadline = TRY(read_step_deadline(arguments, backend));
  setup.plan = TRY(plan_of(arguments, needs, loaded_model(setup.model)));
  return setup;
}

}  // namespace nibble
