// The facts of a loaded model, by its backend.
#include "cli/serving/model_on_machine.h"

#include <algorithm>

namespace nibble {

namespace {

/// Nothing for a backend that allocates as it computes.
std::function<int64_t(const PoolSizes&)> workspace_of(const Backend& backend) {
  if (!backend.reserved_bytes()) return {};
  return [&backend](const PoolSizes& sizes) { return backend.workspace_bytes(sizes); };
}

}  // namespace

ModelOnMachine loaded_model(const LoadedModel& model) {
  Backend& backend = *model.backend;
  return {.config = model.config,
          .weight_bytes = model.weight_bytes,
          .table_bytes = model.table_bytes,
          .page_bytes = backend.page_bytes(),
          .slot_bytes = backend.state_slot_bytes(),
          .replay_row_bytes = backend.replay_row_bytes(),
          .card = backend.device_memory(),
          .workspace_bytes = workspace_of(backend),
          .recorded_bytes =
              [&backend](const PoolSizes& sizes) { return backend.recorded_bytes(sizes); },
          // Kernels' code, rounding of small buffers.
          .driver_growth =
              [&backend] {
                const DeviceMemory now = backend.device_memory().value();
                return std::max<int64_t>(now.card - now.free - now.driver - now.allocated, 0);
              },
          .vision = model.config.vision,
          .media_bytes = [&backend](const PoolSizes& sizes) { return backend.media_bytes(sizes); },
          .mapped_bytes = model.host_weights.mapped,
          .held_bytes = model.host_weights.copied +
                        (model.host_weights.streamed ? model.host_weights.mapped : 0)};
}

ModelOnMachine without_draft_layer(const ModelOnMachine& machine, const ModelConfig& config,
                                   int64_t draft_bytes) {
  const int64_t layers = config.kv_layers();
  return {.config = config,
          .weight_bytes = machine.weight_bytes - draft_bytes,
          .table_bytes = machine.table_bytes,
          .page_bytes = machine.page_bytes * layers / machine.config.kv_layers(),
          .slot_bytes = machine.slot_bytes,
          .replay_row_bytes = 0,
          .card = machine.card,
          .workspace_bytes = machine.workspace_bytes,
          .recorded_bytes = machine.recorded_bytes,
          .driver_growth = machine.driver_growth,
          .vision = machine.vision,
          .media_bytes = machine.media_bytes,
          .mapped_bytes = machine.mapped_bytes,
          .held_bytes = std::max<int64_t>(machine.held_bytes - draft_bytes, 0)};
}

}  // namespace nibble
