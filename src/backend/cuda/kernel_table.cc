// A walk over the blocks whose launches are skipped. Addresses decide nothing but which optional
// inputs exist, so the workspace begins at an address that nobody reads.
#include "backend/cuda/kernel_table.h"

#include <algorithm>

#include "backend/cuda/runtime/device_context.h"
#include "base/concat.h"
#include "model/draft.h"
#include "model/kv_codec.h"

namespace nibble::cuda {
namespace {

constexpr int32_t kGeneratedRows[] = {1, 32};
constexpr int32_t kPromptRows = 512;

WorkspaceNeeds needs_of(const PlannedBackend& backend, int32_t rows) {
  const PoolSizes sizes{.rows_max = rows, .sequences_max = rows};
  return workspace_needs(backend.config, sizes, backend.activations);
}

std::string words_of(Activations activations, InputScales scales, const Architecture& card) {
  if (activations == Activations::f32) return "f32 (slow, for tests)";
  if (activations != Activations::declared) return "bf16";
  const std::string name = activations_words(activations, scales);
  switch (card.fp4) {
    case Architecture::Fp4::machine:
      return name + " (products of codes)";
    case Architecture::Fp4::software:
    case Architecture::Fp4::blocks:
      return name + " (products of codes, 4-bit ones emulated)";
    default:
      return name + " (emulated)";
  }
}

void walk(const Context& context) {
  embed_block(context);
  for (int layer = 0; layer < context.config.layer_count(); ++layer) {
    const bool attends = context.config.layers[static_cast<size_t>(layer)] == LayerKind::attention;
    attends ? attention_block(context, layer) : delta_net_block(context, layer);
    context.config.moe ? moe_block(context, layer) : dense_mlp_block(context, layer);
  }
  const int32_t rows = context.batch.rows;
  if (rows > 0) head_block(context, nullptr, std::min(rows, kRowBlock));
}

const char* state_name(StateFormat state) { return state == StateFormat::bf16 ? "bf16" : "f32"; }

}  // namespace

LaunchLog planned_launches(const PlannedBackend& backend, int32_t rows, Arithmetic arithmetic) {
  constexpr uintptr_t kNobodyReads = 256;
  const WorkspaceNeeds needs = needs_of(backend, rows);
  const Workspace work =
      Workspace::cut(backend.config, needs, reinterpret_cast<std::byte*>(kNobodyReads));
  DevicePools pools;
  pools.lay_out(backend.config, backend.kv, backend.state, 0);
  const RopeView rope;
  PromptPlan lists;
  lists.lay_out(work);
  LaunchLog log;
  Context context{.config = backend.config,
                  .weights = backend.weights,
                  .rope = rope,
                  .pools = pools,
                  .work = work,
                  .plan = lists,
                  .splits_max = needs.splits_max,
                  .launcher = backend.launcher};
  context.launcher.skipped = ~0U;
  context.launcher.log = &log;
  const bool generated = arithmetic == Arithmetic::generation;
  context.all = {.rows = rows, .sequences = generated ? rows : 1};
  (generated ? context.batch : context.prompts) = context.all;
  walk(context);
  return log;
}

std::string kernel_table(const PlannedBackend& backend) {
  const Architecture& card = backend.launcher.card;
  std::string table = concat("kernels of ", card.code.name(), ", ", card.multiprocessors, " SMs, ",
                             card.shared_bytes >> 10, " KiB of shared memory a block");
  switch (backend.activations) {
    case Activations::f32:
      table += concat(" (activations f32: nothing is rounded, each input is three in bf16, KV ",
                      kv_traits(backend.kv).name, "; slow, for tests)");
      break;
    case Activations::declared:
      table += card.fp4 == Architecture::Fp4::off
                   ? " (activations declared: a kernel before each product emulates them)"
                   : " (activations declared: a kernel before each product rounds them)";
      break;
    default:
      table +=
          " (weights of 4 and 8 bits are widened to bf16, exactly; docs/kernels has the share "
          "of its bound that each reaches)";
  }
  table += ":\n";
  for (const int32_t rows : kGeneratedRows)
    table +=
        planned_launches(backend, rows, Arithmetic::generation)
            .table(concat("a pass of ", rows, rows == 1 ? " generated row" : " generated rows"));
  if (needs_of(backend, kPromptRows).prompts)
    table += planned_launches(backend, kPromptRows, Arithmetic::prompt)
                 .table(concat("a pass of ", kPromptRows, " prompt rows"));
  return table;
}

std::string description(const PlannedBackend& backend) {
  const Device& device = backend.launcher.device->facts();
  const std::string_view compiled =
      device.code.kind == CodeTarget::Kind::ptx ? " compiled by the driver" : "";
  return concat("cuda, ", device.name, " (", device.compute_major, ".", device.compute_minor,
                ", runs ", device.code.name(), compiled, ", ", device.multiprocessors,
                " multiprocessors), ", backend.weights.bytes() >> 20,
                " MiB of weights, activations ",
                words_of(backend.activations, backend.weights.input_scales, backend.launcher.card),
                backend.weights.choice.empty() ? "" : concat(" (", backend.weights.choice, ")"),
                ", KV ", kv_traits(backend.kv).name, ", state ", state_name(backend.state));
}

std::string arithmetic(const PlannedBackend& backend) {
  return concat("cuda ", backend.launcher.device->facts().code.name(), ", activations ",
                activations_words(backend.activations, backend.weights.input_scales), ", KV ",
                kv_traits(backend.kv).name,
                backend.has_kv_scales ? " of the checkpoint's scales" : " of scale 1", ", state ",
                state_name(backend.state), draft_entry_words(backend.config), "\n",
                kernel_table(backend));
}

}  // namespace nibble::cuda
