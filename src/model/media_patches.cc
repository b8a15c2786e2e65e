// The checks of patches, and rotary positions along three axes.
#include "model/media_patches.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

Result<void> check_patches(const MediaPatches& media, const VisionConfig& vision, int32_t rows) {
  const MediaGrid& grid = media.grid;
  const std::string shape = concat(grid.t, " x ", grid.h, " x ", grid.w, " patches");
  const auto is_edge = [](int32_t patches, int32_t multiple) {
    return 0 < patches && patches <= kMediaEdgeMax && patches % multiple == 0;
  };
  const auto refuse = [](const ErrorParts& parts) {
    return make_error(ErrorCode::invalid_argument, parts);
  };
  if (!is_edge(grid.t, 1) || !is_edge(grid.h, vision.merge) || !is_edge(grid.w, vision.merge))
    return refuse({.what = "a media grid",
                   .expected = concat("edges of 1 to ", kMediaEdgeMax,
                                      ", height and width in multiples of ", vision.merge),
                   .found = shape});
  if (grid.rows(vision.merge) != rows)
    return refuse({.what = "placeholder tokens of media",
                   .expected = concat(grid.rows(vision.merge), " for ", shape),
                   .found = concat(rows)});
  const int64_t levels = grid.patches() * vision.patch_values();
  if (std::ssize(media.levels) != levels)
    return refuse({.what = "media patches",
                   .expected = concat(levels, " levels for ", shape),
                   .found = concat(media.levels.size())});
  return {};
}

std::vector<std::array<int32_t, 3>> media_positions(int32_t tokens,
                                                    std::span<const PlacedGrid> grids, int merge) {
  std::vector<std::array<int32_t, 3>> positions;
  positions.reserve(static_cast<size_t>(tokens));
  int32_t next = 0;
  const auto add_text = [&](int32_t end) {
    CHECK(std::ssize(positions) <= end, "media at ", end, " after ", positions.size(), " tokens");
    for (; std::ssize(positions) < end; ++next) positions.push_back({next, next, next});
  };
  for (const PlacedGrid& placed : grids) {
    add_text(placed.begin);
    const int32_t height = placed.grid.h / merge;
    const int32_t width = placed.grid.w / merge;
    for (int32_t t = 0; t < placed.grid.t; ++t)
      for (int32_t y = 0; y < height; ++y)
        for (int32_t x = 0; x < width; ++x) positions.push_back({next + t, next + y, next + x});
    next += std::max(height, width);
  }
  add_text(tokens);
  return positions;
}

}  // namespace nibble
