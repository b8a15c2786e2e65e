// For tests: the sequences of a golden as samples of a layer runner, embedded.
#pragma once

#include "model/layer_runner.h"
#include "tensor/float_formats.h"
#include "testing/golden.h"

namespace nibble::test {

inline LayerSamples golden_samples(const Golden& model) {
  LayerSamples samples;
  const LinearWeight table = model.weights.load(model.weights.embedding()).value();
  std::vector<float> row(static_cast<size_t>(model.config.hidden));
  for (const GoldenSequence& sequence : model.sequences) {
    samples.lengths.push_back(static_cast<int64_t>(sequence.ids.size()));
    for (const int32_t id : sequence.ids) {
      dequantize_rows(table, id, id + 1, row.data());
      for (const float x : row) samples.hidden.push_back(float_to_bf16(x));
    }
  }
  return samples;
}

}  // namespace nibble::test
