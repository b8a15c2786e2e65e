// The vision tower by its names and shapes; the MTP head as one more layer.
#include "model/weights/vision_sources.h"
#include "plan/weight_tally.h"

namespace nibble {

Result<OtherWeights> other_weights(const Json& json, const ModelConfig& config) {
  constexpr int64_t kBf16 = 2;
  OtherWeights others;
  if (const auto vision = TRY(VisionConfig::parse(json, config.hidden, config.vocab_rows)))
    visit_vision(
        plain_vision(*vision),
        [&](const LinearSource& linear) {
          others.vision_bytes += linear.rows * linear.cols * kBf16;
        },
        [&](const VectorSource& vector) { others.vision_bytes += vector.shape.count() * kBf16; });
  if (config.mtp_layers == 0) return others;
  // A layer of full attention and a last norm; and what joins a token to the hidden state before
  // it: fc [D, 2 D] and two norms.
  ModelConfig one = config;
  one.layers.assign(1, LayerKind::attention);
  SyntheticWeights layer = synthetic_weights(one, formats_of(WeightLayout::bf16));
  layer.embedding = {};
  layer.head = {};
  const int64_t joining = (2 * int64_t{config.hidden} + 2) * config.hidden * kBf16;
  const int64_t bytes = total_bytes(tally_in_file(layer, usual_file_bytes()));
  others.mtp_bytes = config.mtp_layers * (bytes + joining);
  return others;
}

}  // namespace nibble
