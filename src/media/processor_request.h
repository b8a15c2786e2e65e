// The settings that one request may change of the checkpoint's image processor: the bounds on the
// area.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "media/image_processor.h"

namespace nibble {

/// `processor` with what a request's `mm_processor_kwargs` says: min_pixels, max_pixels, or size
/// with shortest_edge and longest_edge (areas).
/// Errors: invalid_argument for unknown keys and for values out of range.
Result<ImageProcessor> with_request_settings(const ImageProcessor& processor, const Json& kwargs);

/// `processor` with these bounds on the area, where they are given. Nobody gets more than
/// processor.max_pixels, but for images so narrow that one edge is factor(): where transformers
/// rounds up beyond the largest area, these round down (keep_max).
/// Errors: invalid_argument unless factor()^2 <= max <= processor.max_pixels and 1 <= min <= max.
Result<ImageProcessor> with_pixels(const ImageProcessor& processor,
                                   std::optional<int64_t> min_pixels,
                                   std::optional<int64_t> max_pixels);

}  // namespace nibble
