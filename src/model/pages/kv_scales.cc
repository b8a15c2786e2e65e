// Names first, then one number each.
#include "model/pages/kv_scales.h"

#include <array>

#include "base/concat.h"
#include "model/config/target_patterns.h"
#include "tensor/fp8.h"

namespace nibble {

namespace {

/// The module of attention of a layer, as its name ends; that of an MTP layer begins otherwise.
bool is_of_layer(std::string_view name, int layer) {
  return !is_mtp(name) &&
         name.find(concat(".layers.", layer, ".self_attn.")) != std::string_view::npos;
}

Result<float> read_scale(const Checkpoint& checkpoint, int layer, std::string_view ending) {
  const TensorEntry* found = nullptr;
  for (const TensorEntry& entry : checkpoint.entries())
    if (entry.name.ends_with(ending) && is_of_layer(entry.name, layer)) found = &entry;
  if (found == nullptr)
    return make_error(ErrorCode::not_found, {.what = "--kv-scales checkpoint",
                                             .expected = concat("a tensor that ends with ", ending,
                                                                " of each attention layer"),
                                             .found = concat("none of layer ", layer),
                                             .advice = "use --kv-scales unit"});
  if (found->shape.count() != 1 || !is_plain_float(found->dtype))
    return make_error(ErrorCode::unsupported, {.what = found->name,
                                               .expected = "one floating point number",
                                               .found = found->shape.text(),
                                               .advice = "use --kv-scales unit"});
  const Tensor raw = TRY(checkpoint.read(*found));
  float value = 0.0F;
  decode_plain(raw.view().data, found->dtype, 1, &value);
  if (value >= kKvScaleLeast && value <= kKvScaleMost) return value;
  return make_error(ErrorCode::corrupt,
                    {.what = found->name,
                     .expected = concat("a cache scale from ", kKvScaleLeast, " to ", kKvScaleMost),
                     .found = concat(value),
                     .advice = "use --kv-scales unit"});
}

}  // namespace

Result<std::vector<KvScale>> read_kv_scales(const Checkpoint& checkpoint,
                                            const ModelConfig& config) {
  std::vector<KvScale> scales;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer] != LayerKind::attention) continue;
    const int index = static_cast<int>(layer);
    KvScale& scale = scales.emplace_back();
    scale.keys = TRY(read_scale(checkpoint, index, ".k_scale"));
    scale.values = TRY(read_scale(checkpoint, index, ".v_scale"));
  }
  return scales;
}

}  // namespace nibble
