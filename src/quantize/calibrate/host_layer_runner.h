// The layer runner over any backend that calibrates: a backend per layer, hidden states in host
// memory, rows handed over in F32.
#pragma once

#include <functional>
#include <memory>

#include "model/backend.h"
#include "model/layer_runner.h"
#include "model/weights/weights.h"

namespace nibble {

/// Makes the backend that runs a layer. It must calibrate().
using BackendFactory =
    std::function<Result<std::unique_ptr<Backend>>(const Weights&, const ModelConfig&)>;

/// Weights and config must outlive the result. Errors of run_layer() also: unsupported (a backend
/// that does not calibrate).
std::unique_ptr<LayerRunner> make_host_layer_runner(const Weights& weights,
                                                    const ModelConfig& config,
                                                    BackendFactory make_backend);

}  // namespace nibble
