// For tests: what the weights of the published models take on a card.
#pragma once

#include <map>
#include <tuple>

#include "plan/testing/real_models.h"
#include "plan/weight_tally.h"

namespace nibble {

/// Bytes of all weights on a card in a layout. Kept by shape: a large model has 30,000 linears.
inline int64_t card_weight_bytes(const ModelConfig& config, WeightLayout layout) {
  static std::map<std::tuple<int, int, WeightLayout>, int64_t> known;
  int64_t& bytes = known[{config.hidden, config.layer_count(), layout}];
  if (bytes == 0) bytes = total_bytes(tally_on_card(synthetic_weights(config, formats_of(layout))));
  return bytes;
}

}  // namespace nibble
