// VisionConfig: the typed facts of vision_config, the tower that turns images and frames of videos
// into rows of the text model. Source: transformers' modeling_qwen3_5.py (Qwen3_5VisionModel).
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct VisionConfig {
  static constexpr int kChannels = 3;        // red, green, blue
  static constexpr float kNormEps = 1e-6F;   // of every LayerNorm
  static constexpr double kRopeTheta = 1e4;  // of the two-axis rotary positions

  int depth = 0;   // blocks
  int hidden = 0;  // width of a patch's row
  int inner = 0;   // width inside a block's MLP
  int heads = 0;
  int patch = 0;           // edge of a patch, in pixels
  int temporal_patch = 0;  // frames of a patch
  int merge = 0;           // merge x merge patches become one row of the text model
  int table_side = 0;      // the position table is table_side x table_side rows
  int out = 0;             // width of the text model

  // Ids that stand for media in a prompt.
  int32_t image_token = 0;
  int32_t video_token = 0;

  int head_dim() const { return hidden / heads; }
  /// Numbers of one patch: (channel, frame, row, column), row-major.
  int patch_values() const { return kChannels * temporal_patch * patch * patch; }
  /// Patches of one row of the text model.
  int merged_patches() const { return merge * merge; }
  /// Numbers of the patches that are merged into one row.
  int merged_width() const { return hidden * merged_patches(); }

  /// The tower that a config.json describes, for a text model of `text_hidden` columns and
  /// `vocab_rows` ids; nothing if it has none. Errors: unsupported, corrupt; each names the key.
  static Result<std::optional<VisionConfig>> parse(const Json& config, int text_hidden,
                                                   int vocab_rows);
};

}  // namespace nibble
