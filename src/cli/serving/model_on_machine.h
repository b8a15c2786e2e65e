// ModelOnMachine: what the memory of a model on a machine depends on beside the flags, whether it
// is loaded there or planned. The arithmetic itself is plan/memory_plan.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/serving/model_loader.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble {

/// A model on a machine, loaded or imagined: what its memory plan depends on beside the flags.
struct ModelOnMachine {
  const ModelConfig& config;
  int64_t weight_bytes = 0;  // as the backend holds them
  int64_t table_bytes = 0;
  int64_t page_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t replay_row_bytes = 0;      // bytes that each drafted row adds to a slot
  std::optional<DeviceMemory> card;  // absent: the weights lie in host memory
  /// These are the functions of BackendFacts. The reference has no workspace_bytes, since it
  /// allocates while it computes: its workspace is an estimate. recorded_bytes is of a card.
  std::function<int64_t(const PoolSizes&)> workspace_bytes;
  std::function<int64_t(const PoolSizes&)> recorded_bytes;
  /// This is of a card: what the driver has taken since, beyond its context.
  std::function<int64_t()> driver_growth;
  std::optional<VisionConfig> vision = {};  // the tower that is loaded
  std::function<int64_t(const PoolSizes&)> media_bytes = {};
  int64_t mapped_bytes = 0;  // the part of weight_bytes that is read in mapped files
  /// The part of weight_bytes that takes nothing of the memory that is free: copied already, or
  /// streamed.
  int64_t held_bytes = 0;
};

/// A model where it was loaded; it must outlive the result.
ModelOnMachine loaded_model(const LoadedModel& model);

/// The same model without its MTP layer, whose weights count as stored, its saved rows as none.
/// `config`: that of the machine without the layer. `draft_bytes`: as LoadedModel.
ModelOnMachine without_draft_layer(const ModelOnMachine& machine, const ModelConfig& config,
                                   int64_t draft_bytes);

}  // namespace nibble
