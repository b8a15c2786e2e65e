// The vision tower by its names and shapes; the MTP layer by what is bound of it.
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
  ModelConfig one = config;
  one.layers.clear();
  one.draft_layers = 1;
  SyntheticWeights layer;
  layer.mtp = synthetic_weights(one, formats_of(WeightLayout::bf16)).mtp;
  others.mtp_bytes = config.mtp_layers * total_bytes(tally_in_file(layer, usual_file_bytes()));
  return others;
}

}  // namespace nibble
