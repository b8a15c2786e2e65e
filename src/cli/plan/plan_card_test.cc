// This is what plans imagine of a card against a real one: bytes of weights, pages, states and
// recorded passes. Skipped where no card can be used.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "cli/plan/plan_machine.h"

namespace nibble {
namespace {

Arguments plan_flags(std::vector<std::string> words) {
  words.insert(words.begin(), {"model", "--no-speculation"});  // weights without the MTP layer
  return parse_arguments(kPlanVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); })
      .value();
}

TEST(PlanCard, IsWhatTheBackendHolds) {
  if (const auto device = describe_cuda_device(); !device.ok())
    GTEST_SKIP() << device.error().message;
  const PlanModel model =
      preset_model(*find_preset("qwen3.5-4b"), load_recipe("mixed").value()).value();
  struct Row {
    std::vector<std::string> flags;
    KvCache kv;
    StateCache state;
    Activations activations = Activations::automatic;
  };
  for (const Row& row :
       {Row{{}, KvCache::automatic, StateCache::f32},
        Row{{"--kv-cache-dtype", "fp8", "--state-dtype", "bf16"}, KvCache::fp8, StateCache::bf16},
        Row{{"--activations", "f32"}, KvCache::automatic, StateCache::f32, Activations::f32}}) {
    const auto backend =
        make_random_cuda_backend(
            model.config, formats_of(WeightLayout::mixed),
            {.activations = row.activations, .kv_cache = row.kv, .state = row.state})
            .value();
    const DeviceMemory memory = backend->device_memory().value();
    const PlannedCard card = find_card("h200").value();
    const PlannedRun run = plan_run(plan_flags(row.flags), model, card).value();
    EXPECT_EQ(run.request.weight_bytes, memory.weights);
    EXPECT_EQ(run.request.page_bytes, backend->page_bytes());
    EXPECT_EQ(run.request.slot_bytes, backend->state_slot_bytes());
    const PoolSizes largest = largest_pass(run.request);
    EXPECT_EQ(run.request.workspace_bytes, backend->workspace_bytes(largest));
    EXPECT_EQ(run.recorded_bytes, backend->recorded_bytes(largest));
    EXPECT_LE(memory.context, run.context_bytes);
    // Small pools, so that any card holds them: what is reserved is the plan, to the byte.
    std::vector<std::string> few = {
        "--kv-cache-memory-bytes", "256M", "--prefix-snapshots",       "3",
        "--max-num-seqs",          "6",    "--max-num-batched-tokens", "768"};
    few.insert(few.end(), row.flags.begin(), row.flags.end());
    const MemoryPlan plan = plan_run(plan_flags(few), model, card).value().plan;
    backend->reserve(plan.pools).value();
    check_reserved(plan.reserved(), backend->reserved_bytes().value(), "at start").value();
  }
}

/// A card that multiplies 4-bit codes keeps inputs in them where a model declares such, unless it
/// is told to leave them.
TEST(PlanOfCodes, HasRoomForThemWhereTheyAreMultiplied) {
  const auto workspace = [](const char* recipe, const char* card,
                            std::vector<std::string> flags = {}) {
    const PlanModel model =
        preset_model(*find_preset("qwen3.5-4b"), load_recipe(recipe).value()).value();
    return plan_run(plan_flags(std::move(flags)), model, find_card(card).value())
        .value()
        .plan.workspace_bytes;
  };
  const int64_t plain = workspace("w4a4", "rtx5090", {"--activations", "bf16"});
  EXPECT_GT(workspace("w4a4", "rtx5090"), plain);
  EXPECT_EQ(workspace("w4a4", "rtx5090", {"--activations", "declared"}),
            workspace("w4a4", "rtx5090"));
  EXPECT_EQ(workspace("mixed", "rtx5090"),
            workspace("mixed", "rtx5090", {"--activations", "bf16"}));
  EXPECT_EQ(workspace("w4a4", "h200"), workspace("w4a4", "h200", {"--activations", "bf16"}));
}

/// The layer that drafts, in every format, with a head of its own and without.
TEST(PlanCard, HasTheLayerThatDraftsToTheByte) {
  if (const auto device = describe_cuda_device(); !device.ok())
    GTEST_SKIP() << device.error().message;
  const PlannedCard card = find_card("h200").value();
  for (const char* format : {"none", "fp8", "nvfp4", "auto"})
    for (const char* map : {"", "1024", "131072"})
      for (const char* layout : {"dummy:mixed", "dummy:w4a4"}) {
        SCOPED_TRACE(concat(format, " ", map, " ", layout));
        std::vector<std::string> words = {"qwen3.5-4b",
                                          "--speculative-config",
                                          R"({"method":"mtp"})",
                                          "--load-format",
                                          layout,
                                          "--draft-quantization",
                                          format,
                                          "--kv-cache-memory-bytes",
                                          "256M",
                                          "--max-num-seqs",
                                          "6",
                                          "--max-num-batched-tokens",
                                          "768",
                                          "--prefix-snapshots",
                                          "3"};
        if (*map != 0) words.insert(words.end(), {"--speculative-token-map", map});
        const Arguments flags = parse_arguments(kPlanVerb, words, [](const std::string&) {
                                  return std::optional<std::string>();
                                }).value();
        Terminal terminal;
        const PlanModel model = read_plan_model(flags, "qwen3.5-4b", {}, terminal).value();
        EXPECT_EQ(model.served.config.draft_layers, 1);
        const auto backend =
            make_random_cuda_backend(model.served.config,
                                     formats_of(parse_weight_layout(layout + 6).value()), {})
                .value();
        const PlannedRun run = plan_run(flags, model, card).value();
        EXPECT_EQ(run.request.weight_bytes, backend->device_memory()->weights);
        backend->reserve(run.plan.pools).value();
        check_reserved(run.plan.reserved(), backend->reserved_bytes().value(), "at start").value();
      }
}

/// The flags of the server's own lines reach the plan, whatever else stands in them.
TEST(PlanCard, FlagsReachThePlan) {
  const PlanModel model =
      preset_model(*find_preset("qwen3.5-9b"), load_recipe("mixed").value()).value();
  const PlannedCard card = find_card("rtx5090").value();
  const PlannedRun run =
      plan_run(plan_flags({"--max-num-seqs", "7", "--max-num-batched-tokens", "1024",
                           "--gpu-memory-utilization", "0.5", "--prefix-snapshots", "3",
                           "--max-model-len", "9000", "--port", "8000"}),
               model, card)
          .value();
  EXPECT_EQ(run.plan.sequences_max, 7);
  EXPECT_EQ(run.plan.pools.rows_max, 1024);
  EXPECT_EQ(run.plan.snapshots, 3);
  EXPECT_EQ(run.plan.context_max, 9000);
  EXPECT_EQ(run.plan.memory_bytes, card.memory_bytes / 2);
  EXPECT_EQ(run.request.weight_bytes, total_bytes(model.served.on_card));
}

}  // namespace
}  // namespace nibble
