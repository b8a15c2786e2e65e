// Places of patches, and the walk of frames through the tower.
#include "model/vision.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/backend.h"

namespace nibble {
namespace {

struct AxisTaps {
  std::array<int32_t, 2> index = {};
  std::array<float, 2> weight = {};
};

/// Index `at` of `size` on a table of `side`; in F32, as transformers has it.
AxisTaps axis_taps(int32_t at, int32_t size, int side) {
  const float source = static_cast<float>(at) * static_cast<float>(side - 1) /
                       static_cast<float>(std::max(size - 1, 1));
  const float floor = std::floor(source);
  const auto low = static_cast<int32_t>(floor);
  return {.index = {low, std::min(low + 1, side - 1)},
          .weight = {1.0F - (source - floor), source - floor}};
}

/// Pieces are cut at multiples of this: whole merged rows, and enough of them for vectors.
int64_t granule(const VisionConfig& config) {
  const int64_t merged = config.merged_patches();
  return merged * ((16 + merged - 1) / merged);
}

}  // namespace

PatchPlace patch_place(int64_t patch, int32_t grid_width, int merge) {
  const int64_t window = patch / (int64_t{merge} * merge);
  const int64_t windows = grid_width / merge;
  return {.row = static_cast<int32_t>(window / windows * merge + patch / merge % merge),
          .column = static_cast<int32_t>(window % windows * merge + patch % merge)};
}

TableTaps table_taps(PatchPlace place, const MediaGrid& grid, int table_side) {
  const AxisTaps down = axis_taps(place.row, grid.h, table_side);
  const AxisTaps across = axis_taps(place.column, grid.w, table_side);
  TableTaps taps;
  for (size_t i = 0; i < 4; ++i) {
    taps.rows[i] = down.index[i / 2] * table_side + across.index[i % 2];
    taps.weights[i] = down.weight[i / 2] * across.weight[i % 2];
  }
  return taps;
}

VisionWalk::VisionWalk(const VisionConfig& config, std::vector<VisionFrame> frames,
                       int64_t workspace_rows)
    : config_(config), frames_(std::move(frames)), workspace_rows_(workspace_rows) {
  for (const VisionFrame& frame : frames_) {
    CHECK(frame.rows() <= workspace_rows_, "a frame of ", frame.patches(), " patches, room for ",
          workspace_rows_);
    CHECK(std::ssize(frame.places) * config_.merged_patches() == frame.patches(),
          frame.places.size(), " places for ", frame.patches(), " patches");
    left_ += frame_work(config_, frame);
  }
  place_group();
}

/// Gives the next frames their rows.
void VisionWalk::place_group() {
  int64_t rows = 0;
  group_end_ = group_begin_;
  while (group_end_ < frames_.size() && rows + frames_[group_end_].rows() <= workspace_rows_) {
    frames_[group_end_].row_begin = rows;
    rows += frames_[group_end_++].rows();
  }
  stage_ = Stage::embed;
  block_ = 0;
  frame_ = group_begin_;
  row_ = 0;
}

/// Work of one patch in a stage, in 1e9 operations.
double VisionWalk::row_work(const VisionConfig& config, Stage stage, const VisionFrame& frame) {
  const double width = config.hidden;
  const double merged = config.merged_width();
  switch (stage) {
    case Stage::embed:
      return 2e-9 * width * config.patch_values();
    case Stage::project:
      return 2e-9 * 3 * width * width;
    case Stage::attend:
      return 2e-9 * width * (2 * static_cast<double>(frame.patches()) + width + 2.0 * config.inner);
    case Stage::merge:
      return 2e-9 * merged * (merged + config.out) / config.merged_patches();
  }
  CHECK(false, "stage ", static_cast<int>(stage));
}

double VisionWalk::frame_work(const VisionConfig& config, const VisionFrame& frame) {
  double work = 0.0;
  for (const Stage stage : {Stage::embed, Stage::project, Stage::attend, Stage::merge}) {
    const bool in_blocks = stage == Stage::project || stage == Stage::attend;
    work += row_work(config, stage, frame) * (in_blocks ? config.depth : 1);
  }
  return work * static_cast<double>(frame.patches());
}

void VisionWalk::run(VisionTower& tower, const VisionPiece& piece) const {
  switch (stage_) {
    case Stage::embed:
      return tower.embed_patches(piece);
    case Stage::project:
      return tower.project_patches(block_, piece);
    case Stage::attend:
      return tower.attend_patches(block_, piece);
    case Stage::merge:
      return tower.merge_patches(piece);
  }
}

/// After the last frame of the group: its next stage, or the next group.
void VisionWalk::next_stage() {
  frame_ = group_begin_;
  if (stage_ == Stage::embed) {
    stage_ = Stage::project;
  } else if (stage_ == Stage::project) {
    stage_ = Stage::attend;
  } else if (stage_ == Stage::attend) {
    stage_ = ++block_ < config_.depth ? Stage::project : Stage::merge;
  } else {
    group_begin_ = group_end_;
    place_group();
    if (done()) left_ = 0.0;
  }
}

double VisionWalk::advance(VisionTower& tower, double work) {
  double spent = 0.0;
  const int64_t step = granule(config_);
  while (!done() && (spent == 0.0 || spent < work)) {
    const VisionFrame& frame = frames_[frame_];
    const double each = row_work(config_, stage_, frame);
    const double affordable =
        std::min((work - spent) / each, static_cast<double>(tower.vision_piece_rows()));
    const int64_t rows = std::max(static_cast<int64_t>(affordable) / step, int64_t{1}) * step;
    const VisionPiece piece{
        .frame = &frame, .begin = row_, .end = std::min(row_ + rows, frame.patches())};
    run(tower, piece);
    const double done_work = each * static_cast<double>(piece.end - piece.begin);
    spent += done_work;
    left_ -= done_work;
    row_ = piece.end;
    if (row_ < frame.patches()) continue;
    row_ = 0;
    if (++frame_ == group_end_) next_stage();
  }
  return spent;
}

}  // namespace nibble
