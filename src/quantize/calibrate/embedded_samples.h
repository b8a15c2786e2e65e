// The samples of calibration data as what the first layer sees: their embeddings.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/layer_runner.h"
#include "model/weights/weights.h"
#include "quantize/calibrate/calibration_data.h"

namespace nibble {

/// The lengths alone.
LayerSamples sample_lengths(const CalibrationData& data);

/// Lengths, and BF16 rows of the embedding. Errors: unsupported for a quantized embedding,
/// invalid_argument for an id beyond the vocabulary, io.
Result<LayerSamples> embedded_samples(const Checkpoint& checkpoint, const Weights& weights,
                                      const ModelConfig& config, const CalibrationData& data);

}  // namespace nibble
