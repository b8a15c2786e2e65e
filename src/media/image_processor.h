// ImageProcessor: the settings of transformers' Qwen2VLImageProcessor (its PIL backend), read from
// a checkpoint's preprocessor_config.json, and the arithmetic of sizes. It touches no pixels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "media/image_decoder.h"

namespace nibble {

/// The shape of one image or video, in patches: t temporal patches of h x w.
struct ImageGrid {
  int t = 1;
  int h = 0;
  int w = 0;
  int64_t patches() const { return int64_t{t} * h * w; }
  bool operator==(const ImageGrid&) const = default;
};

struct ImageProcessor {
  int patch = 14;                  // pixels along an edge of a patch
  int temporal = 2;                // frames in a patch; a still image is repeated
  int merge = 2;                   // patches along an edge of what becomes one token
  int64_t min_pixels = 3136;       // size.shortest_edge: an area, in spite of its name
  int64_t max_pixels = 1'003'520;  // size.longest_edge, likewise
  /// Where min_pixels, rounded up, exceeds max_pixels: rounds down to max_pixels; transformers does
  /// not. Bounds that lie far apart never meet.
  bool keep_max = false;
  bool rescale = true;
  bool normalize = true;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation = {0.26862954, 0.26130258, 0.27577711};

  /// Edges of a resized image are multiples of this.
  int factor() const { return patch * merge; }
  /// Numbers of one patch: 3 channels x temporal x patch x patch.
  int patch_values() const { return 3 * temporal * patch * patch; }
  /// Placeholder tokens of an image or video of this grid.
  int64_t tokens(const ImageGrid& grid) const { return grid.patches() / (merge * merge); }
};

/// Reads preprocessor_config.json, or the member "image_processor" of a processor_config.json;
/// what is left out has the default of transformers' class.
/// Errors: unsupported for another class and for settings that are not implemented (another filter
/// than bicubic, no resizing, cropping, padding); corrupt for values of the wrong kind or range.
Result<ImageProcessor> parse_image_processor(const Json& config, std::string_view source);

/// The processor of a checkpoint's folder: "image_processor" of processor_config.json if it is
/// there, else preprocessor_config.json, as transformers chooses. Empty if there is neither.
Result<std::optional<ImageProcessor>> load_image_processor(const std::string& folder);

/// transformers' smart_resize: the size that an image is resized to, multiples of factor().
/// Errors: invalid_argument for an edge below 1 or an aspect ratio over 200.
Result<ImageSize> resized_size(const ImageSize& size, const ImageProcessor& processor);

/// The same for a frame of a video: `frames` of this size have the bounds on the area together,
/// `even_frames` of the rounded size.
Result<ImageSize> resized_frame(const ImageSize& size, int64_t frames, int64_t even_frames,
                                const ImageProcessor& processor);

/// The patches of an image of this size; tokens(grid) is what it adds to a prompt.
Result<ImageGrid> grid_of(const ImageSize& size, const ImageProcessor& processor);

}  // namespace nibble
