// Batches of one sequence over a whole page table and one state slot.
#include "eval/teacher_forced.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/forward.h"
#include "model/vision.h"

namespace nibble {
namespace {

constexpr int64_t kChunkLogitBytes = 64 << 20;
constexpr int64_t kChunkRowsMax = 512;

}  // namespace

int TeacherForced::chunk_rows(const ModelConfig& config) {
  const int64_t row_bytes = int64_t{config.vocab_rows} * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::min(kChunkLogitBytes / row_bytes, kChunkRowsMax);
  return static_cast<int>(std::max(rows / kPageTokens, int64_t{1}) * kPageTokens);
}

Result<TeacherForced> TeacherForced::create(Backend& backend, const ModelConfig& config,
                                            const SequenceRoom& room, Arithmetic arithmetic) {
  if (room.tokens > config.max_positions)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "sequence",
         .expected = concat("at most max_position_embeddings ", config.max_positions, " ids"),
         .found = concat(room.tokens)});
  const PoolSizes sizes = {
      .pages = static_cast<int32_t>((room.tokens + kPageTokens - 1) / kPageTokens),
      .state_slots = 1,
      .rows_max = static_cast<int32_t>(std::min<int64_t>(chunk_rows(config), room.tokens)),
      .media_rows = room.media_rows,
      .vision_rows = room.vision_rows};
  TRY(backend.reserve(sizes));
  return TeacherForced(backend, config, sizes, arithmetic);
}

Result<void> TeacherForced::begin(int64_t tokens, std::span<const PlacedImage> images) {
  tokens_ = 0;
  backend_->zero_state(0);
  places_.assign(static_cast<size_t>(tokens), -1);
  if (!images.empty()) TRY(encode(images));
  std::vector<PlacedGrid> grids;
  for (const PlacedImage& image : images) grids.push_back({image.begin, image.patches->grid});
  positions_ = media_positions(static_cast<int32_t>(tokens), grids,
                               images.empty() ? 1 : config_->vision->merge);
  return {};
}

Result<void> TeacherForced::encode(std::span<const PlacedImage> images) {
  CHECK(backend_->has_vision(), "images without a vision tower");
  const VisionConfig& vision = *config_->vision;
  std::vector<int32_t> places(static_cast<size_t>(sizes_.media_rows));
  std::iota(places.begin(), places.end(), 0);
  std::span<const int32_t> free = places;
  std::vector<VisionFrame> frames;
  for (const PlacedImage& image : images) {
    const auto rows = static_cast<size_t>(image.patches->grid.rows(vision.merge));
    TRY(check_patches(*image.patches, vision, static_cast<int32_t>(rows)));
    CHECK(rows <= free.size(), "an image of ", rows, " rows, with room for ", free.size());
    std::ranges::copy(free.first(rows), places_.begin() + image.begin);
    frames.push_back({.media = image.patches.get(), .places = free.first(rows)});
    free = free.subspan(rows);
  }
  VisionWalk walk(vision, frames, sizes_.vision_rows);
  while (!walk.done()) walk.advance(*backend_, walk.left());
  for (size_t i = 0; i < frames.size(); ++i)
    if (!backend_->finite_media(frames[i].places))
      return make_error(ErrorCode::corrupt, {.what = concat("rows of image ", i + 1),
                                             .expected = "finite numbers",
                                             .found = "others",
                                             .advice = "`nibble verify` looks for broken weights"});
  return {};
}

Result<std::span<const float>> TeacherForced::next(std::span<const int32_t> ids) {
  const auto rows = static_cast<int32_t>(ids.size());
  Batch batch{.tokens = {ids.begin(), ids.end()}};
  const auto at = static_cast<size_t>(tokens_);
  for (size_t axis = 0; axis < 3; ++axis)
    for (size_t i = 0; i < ids.size(); ++i) batch.positions.push_back(positions_[at + i][axis]);
  for (size_t i = 0; i < ids.size(); ++i)
    if (places_[at + i] >= 0)
      batch.embeddings.push_back({.row = static_cast<int32_t>(i), .place = places_[at + i]});
  for (int32_t page = 0; page < sizes_.pages; ++page) batch.pages.push_back(page);
  for (int32_t i = 0; i < rows; ++i) batch.logit_rows.push_back(i);
  batch.sequences = {{.row_count = rows,
                      .kv_begin = tokens_,
                      .page_count = sizes_.pages,
                      .arithmetic = arithmetic_}};
  validate_batch(batch, *config_, sizes_);
  const HeadOutput output = forward(*backend_, *config_, batch);
  for (size_t i = 0; i < output.logits.size(); ++i) {
    if (std::isfinite(output.logits[i])) continue;
    const auto row = static_cast<int64_t>(i) / config_->vocab_rows;
    return make_error(ErrorCode::corrupt, {.what = concat("logits of position ", tokens_ + row),
                                           .expected = "finite numbers",
                                           .found = concat(output.logits[i]),
                                           .advice = "`nibble verify` looks for broken weights"});
  }
  tokens_ += rows;
  return output.logits;
}

}  // namespace nibble
