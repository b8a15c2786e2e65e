// The table of the kernels that a model gets on a card: the plans of a pass, printed by `serve` and
// part of the fingerprint of stored prefixes; and the lines that describe the backend.
#pragma once

#include <string>

#include "backend/cuda/context.h"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {

/// A backend whose passes are to be planned.
struct PlannedBackend {
  const ModelConfig& config;
  const WeightStore& weights;
  KvFormat kv = KvFormat::bf16;
  StateFormat state = StateFormat::f32;
  Activations activations = Activations::bf16;
  Launcher launcher;
  bool has_kv_scales = false;  // those of the checkpoint, not 1
};

/// The launches of a pass of so many rows of one arithmetic, each of a sequence of its own when
/// generated, all of one sequence when of a prompt. Nothing is launched and no memory is taken.
LaunchLog planned_launches(const PlannedBackend& backend, int32_t rows, Arithmetic arithmetic);

/// The plans of passes of 1 and 32 generated rows and of a prompt of 512. It depends on the model,
/// the formats and the card alone, so that the same backend gives the same text at any time.
std::string kernel_table(const PlannedBackend& backend);

/// The texts of BackendFacts::description() and arithmetic(). The launcher has a device.
std::string description(const PlannedBackend& backend);
std::string arithmetic(const PlannedBackend& backend);

}  // namespace nibble::cuda
