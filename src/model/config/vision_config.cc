// config.json -> VisionConfig.
#include "model/config/vision_config.h"

#include <cmath>

#include "model/config/config_section.h"

namespace nibble {
namespace {

constexpr IntRange kDepthRange{1, 256};
constexpr IntRange kWidthRange{4, 1 << 16};
constexpr IntRange kHeadRange{1, 256};
constexpr IntRange kPatchRange{1, 64};
constexpr IntRange kSmallRange{1, 8};
constexpr IntRange kTableRange{1, 1 << 20};

Result<int> int_of(Result<int64_t> value) { return static_cast<int>(TRY(std::move(value))); }

Error unsupported(const ConfigSection& section, std::string_view key, std::string_view expected,
                  std::string_view found) {
  return make_error(ErrorCode::unsupported, {.what = section.name(key),
                                             .expected = expected,
                                             .found = found,
                                             .advice = "--no-vision serves text alone"});
}

Result<void> check_deepstack(const ConfigSection& vision) {
  const Json* deep = vision.find("deepstack_visual_indexes");
  if (deep == nullptr || (deep->is_array() && deep->as_array().empty())) return {};
  return unsupported(vision, "deepstack_visual_indexes", "[]", deep->dump());
}

/// The tower's heads turn by two axes, each of a quarter of the head's numbers.
Result<void> check_heads(const ConfigSection& vision, const VisionConfig& tower) {
  if (tower.hidden % tower.heads == 0 && tower.head_dim() % 4 == 0) return {};
  return unsupported(vision, "hidden_size",
                     concat("num_heads ", tower.heads, " times a multiple of 4"),
                     concat(tower.hidden));
}

Result<int> table_side_of(const ConfigSection& vision) {
  const auto rows = TRY(vision.integer("num_position_embeddings", kTableRange));
  const auto side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(rows))));
  if (int64_t{side} * side == rows) return side;
  return unsupported(vision, "num_position_embeddings", "a square number", concat(rows));
}

Result<VisionConfig> parse_tower(const ConfigSection& vision) {
  TRY(check_deepstack(vision));
  TRY(vision.must_equal("hidden_act", "gelu_pytorch_tanh", "no other activation is known"));
  VisionConfig tower;
  tower.depth = TRY(int_of(vision.integer("depth", kDepthRange)));
  tower.hidden = TRY(int_of(vision.integer("hidden_size", kWidthRange)));
  tower.inner = TRY(int_of(vision.integer("intermediate_size", kWidthRange)));
  tower.heads = TRY(int_of(vision.integer("num_heads", kHeadRange)));
  TRY(check_heads(vision, tower));
  TRY(vision.integer_or("in_channels", VisionConfig::kChannels,
                        {VisionConfig::kChannels, VisionConfig::kChannels}));
  tower.patch = TRY(int_of(vision.integer("patch_size", kPatchRange)));
  tower.temporal_patch = TRY(int_of(vision.integer("temporal_patch_size", kSmallRange)));
  tower.merge = TRY(int_of(vision.integer("spatial_merge_size", kSmallRange)));
  tower.table_side = TRY(table_side_of(vision));
  return tower;
}

}  // namespace

Result<std::optional<VisionConfig>> VisionConfig::parse(const Json& config, int text_hidden,
                                                        int vocab_rows) {
  const ConfigSection root(config, "config.json: ");
  if (!root.has("vision_config")) return std::optional<VisionConfig>();
  const ConfigSection vision = TRY(root.section("vision_config"));
  VisionConfig tower = TRY(parse_tower(vision));
  tower.out = TRY(int_of(vision.integer("out_hidden_size", kWidthRange)));
  if (tower.out != text_hidden)
    return make_error(ErrorCode::corrupt, {.what = vision.name("out_hidden_size"),
                                           .expected = concat("hidden_size ", text_hidden),
                                           .found = concat(tower.out)});
  const IntRange ids{0, int64_t{vocab_rows} - 1};
  tower.image_token = TRY(int_of(root.integer("image_token_id", ids)));
  tower.video_token = TRY(int_of(root.integer("video_token_id", ids)));
  return std::optional<VisionConfig>(tower);
}

}  // namespace nibble
