// Facts of a card by arithmetic, of the CPU backend by its own functions.
#include "cli/plan/plan_machine.h"

#include "backend/cpu/pass_memory.h"
#include "backend/cpu/pools.h"
#include "backend/cpu/vision_memory.h"
#include "backend/cpu/weight_bytes.h"
#include "backend/cuda/recorded_plan.h"
#include "backend/cuda/runtime/slot_layout.h"
#include "backend/cuda/vision/vision_memory.h"
#include "backend/cuda/workspace.h"
#include "cli/options/image_options.h"
#include "model/kv_codec.h"

namespace nibble {
namespace {

int64_t page_bytes(const ModelConfig& config, const BackendOptions& options, KvFormat usual) {
  return kv_format_page_bytes(config, kv_format_of(options.kv_cache, usual));
}

/// Bytes of the weights in rows, without a tower that is not loaded.
int64_t loaded_bytes(const std::vector<WeightRow>& rows,
                     const std::optional<VisionConfig>& vision) {
  int64_t bytes = total_bytes(rows);
  for (const WeightRow& row : rows)
    if (row.kind == WeightKind::vision && !vision) bytes -= row.bytes;
  return bytes;
}

/// The activations that the workspace is for: on a card that multiplies 4-bit codes, those that the
/// rule would choose once it has shown that it does.
Activations workspace_mode(const ServedModelSizes& model, const PlannedCard& card,
                           Activations asked) {
  constexpr int32_t kFirst = 120;
  constexpr int32_t kLast = 121;
  const bool codes = model.declares_codes && card.capability >= kFirst && card.capability <= kLast;
  return codes && asked == Activations::automatic ? Activations::declared : asked;
}

/// `vision`: the tower that is loaded.
ModelOnMachine on_card(const ServedModelSizes& model, const PlannedCard& card,
                       const BackendOptions& options, const std::optional<VisionConfig>& vision) {
  const ModelConfig& config = model.config;
  const int64_t context = card_context_bytes(card.capability);
  const int64_t weights = loaded_bytes(model.on_card, vision);
  DeviceMemory memory{.card = card.memory_bytes};
  memory.weights = weights;
  memory.driver = context;
  memory.context = context;
  return {.config = config,
          .weight_bytes = weights,
          .table_bytes = cuda::table_bytes(config),
          .page_bytes =
              page_bytes(config, options,
                         options.activations == Activations::f32 ? KvFormat::f32 : KvFormat::bf16),
          .slot_bytes = cuda::state_slot_bytes(config, options.state == StateCache::bf16
                                                           ? cuda::StateFormat::bf16
                                                           : cuda::StateFormat::f32),
          .replay_row_bytes = cuda::saved_row_bytes(config),
          .card = memory,
          .workspace_bytes =
              [&config,
               mode = workspace_mode(model, card, options.activations)](const PoolSizes& sizes) {
                const auto needs = cuda::workspace_needs(config, sizes, mode);
                return cuda::Workspace::cut(config, needs, nullptr).bytes;
              },
          .recorded_bytes =
              [&config](const PoolSizes& sizes) { return cuda::recorded_bytes(config, sizes); },
          .driver_growth = [] { return int64_t{0}; },
          .vision = vision,
          .media_bytes =
              [vision](const PoolSizes& sizes) {
                return vision ? cuda::VisionMemory::cut(*vision, sizes, nullptr).bytes : 0;
              }};
}

ModelConfig with_tower(ModelConfig config, const std::optional<VisionConfig>& vision) {
  config.vision = vision;
  return config;
}

/// `vision`: the tower that is loaded.
ModelOnMachine on_cpu(const ServedModelSizes& model, const BackendOptions& options,
                      const std::optional<VisionConfig>& vision) {
  constexpr auto kFloat = int64_t{sizeof(float)};
  const ModelConfig& config = model.config;
  const bool turns = config.kv_layers() > 0;
  const int64_t tables = turns ? cpu::table_bytes(make_rope_table(config.attention.rope)) : 0;
  return {.config = config,
          .weight_bytes = loaded_bytes(model.on_cpu, vision),
          .table_bytes = tables,
          .page_bytes = page_bytes(config, options, KvFormat::f32),
          .slot_bytes = cpu::Pools::state_floats(config) * kFloat,
          .replay_row_bytes = cpu::Pools::saved_row_floats(config) * kFloat,
          .card = {},
          .workspace_bytes =
              [config = with_tower(config, vision), mode = options.activations](
                  const PoolSizes& sizes) { return cpu::pass_memory_bytes(config, sizes, mode); },
          .recorded_bytes = {},
          .driver_growth = {},
          .vision = vision,
          .media_bytes =
              [vision](const PoolSizes& sizes) {
                return vision ? cpu::VisionMemory::bytes_of(*vision, sizes) : 0;
              },
          .mapped_bytes = loaded_bytes(model.mapped_on_cpu, vision)};
}

/// `vision`: the tower that is loaded.
Result<PlannedRun> run_of(const Arguments& arguments, const ServedModelSizes& model,
                          const std::optional<VisionConfig>& vision,
                          const std::optional<PlannedCard>& card, const BackendOptions& options) {
  const ModelOnMachine machine =
      card ? on_card(model, *card, options, vision) : on_cpu(model, options, vision);
  EngineNeeds needs = kServingNeeds;
  needs.sequences_max = TRY(read_sequences(arguments));
  PlannedRun run;
  run.request = TRY(memory_request(arguments, needs, machine));
  run.plan = TRY(plan_on_machine(run.request, machine));
  if (!machine.card) return run;
  run.context_bytes = machine.card->context;
  run.recorded_bytes = run.request.driver_bytes - run.context_bytes;
  return run;
}

}  // namespace

std::optional<VisionConfig> loaded_tower(const Arguments& arguments, const PlanModel& model,
                                         Place::Kind kind) {
  if (!model.vision || arguments.enabled(kNoVisionOption.name) ||
      !takes_media(arguments).value())  // read_plan_model() has read it
    return std::nullopt;
  if (kind == Place::Kind::host) return model.vision;
  const bool asked = arguments.text(kImageTokensOption.name).has_value();
  return asked && cuda::vision_fits_card(*model.vision) ? model.vision : std::nullopt;
}

Result<PlannedRun> plan_run(const Arguments& arguments, const PlanModel& model,
                            const std::optional<PlannedCard>& card) {
  const ModelRequest request = TRY(model_request(arguments, {}));
  TRY(check_kv_head_dim(kv_format_of(request.options.kv_cache, KvFormat::f32), model.config));
  const auto vision = loaded_tower(arguments, model, card ? Place::Kind::card : Place::Kind::host);
  PlannedRun run = TRY(run_of(arguments, model.served, vision, card, request.options));
  auto drafts = TRY(speculation_of(arguments, model.served.config));
  std::string why_not = arguments.enabled(kSpeculationOption.name)
                            ? "the checkpoint gives no MTP layer"
                            : "by --no-speculation";
  if (speculates_by_default(arguments))
    why_not = card ? model.no_drafts : no_default_drafts(request, "cpu", model.config);
  if (card && model.drafting && speculates_by_default(arguments)) {
    auto drafting = run_of(arguments, *model.drafting, vision, card, request.options);
    if (!drafting.ok() && drafting.error().code != ErrorCode::no_memory) return drafting.error();
    why_not = drafting.ok() ? lost_to_drafts(run.plan, drafting.value().plan)
                            : std::string(kDraftsDoNotFit);
    if (why_not.empty()) {
      run = std::move(drafting).value();
      run.drafts_by_default = true;
      drafts = default_speculation();
    }
  }
  const ModelConfig& loaded = run.drafts_by_default ? model.drafting->config : model.served.config;
  run.speculation = speculation_line(arguments, drafts, why_not, loaded);
  return run;
}

SpeedRow speed_row(const PlanModel& model, const MemoryRequest& request,
                   const std::optional<PlannedCard>& card, int64_t streams, int64_t context) {
  SpeedRow row;
  row.load = {.streams = streams,
              .context = context,
              .page_bytes = request.page_bytes,
              .slot_bytes = request.slot_bytes};
  row.bytes = step_bytes(model.config, model.in_file, row.load);
  if (card && card->bandwidth_bytes > 0)
    row.tokens_per_second = tokens_per_second(row.bytes, streams, card->bandwidth_bytes);
  return row;
}

}  // namespace nibble
