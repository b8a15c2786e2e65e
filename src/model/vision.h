// The vision tower's work as plain arrays, cut into pieces that run between passes of the text
// model. What a piece computes: VisionTower in model/backend.h; formulas: model.md 4.2.
// All rows are independent of each other but for attention, which sees the patches of one frame, so
// a cut changes no bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/config/vision_config.h"
#include "model/media_patches.h"

namespace nibble {

/// Rows of a frame begin at multiples of this in the tower's workspace: keys lie in pages of it.
inline constexpr int32_t kVisionPage = 64;
/// Patches of one piece at most.
inline constexpr int32_t kVisionPieceRows = 256;

/// Patches that the workspace of a tower must hold for a frame of so many.
inline int64_t vision_rows_of(int64_t frame_patches) {
  return (frame_patches + kVisionPage - 1) / kVisionPage * kVisionPage;
}

/// The patches of one step in time, which attend to each other and to nothing else.
struct VisionFrame {
  const MediaPatches* media = nullptr;
  int32_t t = 0;  // its step in media->grid
  /// Places of its rows [h * w / merge^2] in the backend's media rows.
  std::span<const int32_t> places;
  int64_t row_begin = 0;  // its first patch in the workspace, a multiple of kVisionPage

  int64_t patches() const { return media->grid.frame_patches(); }
  /// The workspace that it takes.
  int64_t rows() const { return vision_rows_of(patches()); }
};

/// Patches [begin, end) of a frame.
struct VisionPiece {
  const VisionFrame* frame = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Row and column of a patch of a frame, in merge order.
struct PatchPlace {
  int32_t row = 0;
  int32_t column = 0;
};
PatchPlace patch_place(int64_t patch, int32_t grid_width, int merge);

/// The rows of a position table and their weights whose sum is the position of a patch: bilinear,
/// the corners of the grid on those of the table.
struct TableTaps {
  std::array<int32_t, 4> rows = {};
  std::array<float, 4> weights = {};
};
TableTaps table_taps(PatchPlace place, const MediaGrid& grid, int table_side);

class VisionTower;

/// Frames through the whole tower, piece by piece.
class VisionWalk {
 public:
  /// An idle walk.
  VisionWalk() = default;
  /// Frames in order; as many at once as fit `workspace_rows`, which the largest must. Their media
  /// and places must outlive the walk.
  VisionWalk(const VisionConfig& config, std::vector<VisionFrame> frames, int64_t workspace_rows);

  bool done() const { return group_begin_ == frames_.size(); }
  /// Multiplications and additions that are left, in 1e9.
  double left() const { return left_; }
  /// Runs pieces worth about `work` (as left()), at least one; returns the work that they were.
  double advance(VisionTower& tower, double work);

 private:
  enum class Stage : uint8_t { embed, project, attend, merge };
  static double row_work(const VisionConfig& config, Stage stage, const VisionFrame& frame);
  static double frame_work(const VisionConfig& config, const VisionFrame& frame);
  void run(VisionTower& tower, const VisionPiece& piece) const;
  void place_group();
  void next_stage();

  VisionConfig config_;
  std::vector<VisionFrame> frames_;
  int64_t workspace_rows_ = 0;
  size_t group_begin_ = 0;  // frames that are in the workspace together
  size_t group_end_ = 0;
  // The next piece.
  Stage stage_ = Stage::embed;
  int block_ = 0;
  size_t frame_ = 0;
  int64_t row_ = 0;
  double left_ = 0.0;
};

}  // namespace nibble
