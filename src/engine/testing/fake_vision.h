// FakeVision, for tests: a "tower" that turns each window of patches into one number, a hash of its
// own levels and of all levels of its frame in order. Pieces out of order, of another frame, or
// left out change the number; it is the same for every right cut.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "base/check.h"
#include "model/backend.h"
#include "model/vision.h"

namespace nibble {

class FakeVision {
 public:
  static VisionConfig config() {
    return {.depth = 2,
            .hidden = 4,
            .inner = 4,
            .heads = 1,
            .patch = 1,
            .temporal_patch = 1,
            .merge = 2,
            .table_side = 2,
            .out = 1};
  }

  void reserve(const PoolSizes& sizes) {
    x_.assign(static_cast<size_t>(sizes.vision_rows), kNan);
    keys_.assign(x_.size(), kNan);
    stage_.assign(x_.size(), -1);
    rows_.assign(static_cast<size_t>(sizes.media_rows), std::numeric_limits<float>::quiet_NaN());
  }
  bool reserved() const { return !rows_.empty(); }

  void embed(const VisionPiece& piece) {
    for (int64_t p = piece.begin; p < piece.end; ++p) {
      x_[at(piece, p)] = level_hash(*piece.frame->media, piece.frame->t, p);
      stage_[at(piece, p)] = 0;
    }
    patches += piece.end - piece.begin;
  }
  void project(int block, const VisionPiece& piece) {
    for (int64_t p = piece.begin; p < piece.end; ++p) {
      advance(piece, p, 2 * block);
      keys_[at(piece, p)] = mix(x_[at(piece, p)], static_cast<uint64_t>(block));
    }
  }
  void attend(int block, const VisionPiece& piece) {
    uint64_t frame = 11;
    for (int64_t p = 0; p < piece.frame->patches(); ++p) {
      CHECK(stage_[at(piece, p)] >= 2 * block + 1, "attention before all keys are there");
      frame = mix(frame, keys_[at(piece, p)]);
    }
    for (int64_t p = piece.begin; p < piece.end; ++p) {
      advance(piece, p, 2 * block + 1);
      x_[at(piece, p)] = mix(x_[at(piece, p)], frame);
    }
  }
  void merge(const VisionPiece& piece) {
    CHECK(piece.begin % 4 == 0 && piece.end % 4 == 0, "patches ", piece.begin);
    for (int64_t p = piece.begin; p < piece.end; p += 4) {
      uint64_t row = 13;
      for (int64_t i = p; i < p + 4; ++i) {
        advance(piece, i, 2 * config().depth);
        row = mix(row, x_[at(piece, i)]);
      }
      rows_[static_cast<size_t>(piece.frame->places[static_cast<size_t>(p / 4)])] = number(row);
    }
    const MediaPatches& media = *piece.frame->media;
    if (piece.frame->t + 1 == media.grid.t && piece.end == piece.frame->patches())
      ++encoded_[level_hash(media, 0, 0)];
  }
  /// Returns how often a medium was encoded to its end. Media are told apart by their first patch.
  int64_t encodings_of(const MediaPatches& media) const {
    const auto found = encoded_.find(level_hash(media, 0, 0));
    return found == encoded_.end() ? 0 : found->second;
  }
  const float* row(int32_t place) const { return &rows_[static_cast<size_t>(place)]; }
  float* row(int32_t place) { return &rows_[static_cast<size_t>(place)]; }
  bool finite(std::span<const int32_t> places) const {
    for (const int32_t place : places)
      if (std::isnan(*row(place))) return false;
    return true;
  }
  void poison(std::span<const int32_t> places) {
    for (const int32_t place : places)
      rows_[static_cast<size_t>(place)] = std::numeric_limits<float>::quiet_NaN();
  }

  /// The rows of a medium, without pieces or places.
  static std::vector<float> rows_of(const MediaPatches& media) {
    std::vector<float> rows;
    for (int32_t t = 0; t < media.grid.t; ++t) {
      const int64_t count = media.grid.frame_patches();
      std::vector<uint64_t> x;
      for (int64_t p = 0; p < count; ++p) x.push_back(level_hash(media, t, p));
      for (uint64_t block = 0; block < static_cast<uint64_t>(config().depth); ++block) {
        uint64_t frame = 11;
        for (const uint64_t one : x) frame = mix(frame, mix(one, block));
        for (uint64_t& one : x) one = mix(one, frame);
      }
      for (size_t p = 0; p < x.size(); p += 4) {
        uint64_t row = 13;
        for (size_t i = p; i < p + 4; ++i) row = mix(row, x[i]);
        rows.push_back(number(row));
      }
    }
    return rows;
  }

  int64_t patches = 0;  // embedded so far

 private:
  static constexpr uint64_t kNan = ~uint64_t{0};
  static uint64_t mix(uint64_t hash, uint64_t value) {
    if (hash == kNan || value == kNan) return kNan;
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    return (hash ^ (hash >> 29)) >> 1;
  }
  static float number(uint64_t hash) {
    return hash == kNan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(hash >> 40);
  }
  static uint64_t level_hash(const MediaPatches& media, int32_t t, int64_t patch) {
    uint64_t hash = 17;
    const auto first = static_cast<size_t>((t * media.grid.frame_patches() + patch) * 3);
    for (size_t channel = 0; channel < 3; ++channel) {
      const float value = media.values[channel][media.levels[first + channel]];
      hash = std::isnan(value) ? kNan : mix(hash, std::bit_cast<uint32_t>(value));
      if (hash == kNan) return kNan;
    }
    return hash;
  }
  static size_t at(const VisionPiece& piece, int64_t patch) {
    return static_cast<size_t>(piece.frame->row_begin + patch);
  }
  /// Each patch goes through the stages one by one.
  void advance(const VisionPiece& piece, int64_t patch, int from) {
    int& stage = stage_[at(piece, patch)];
    CHECK(stage == from, "stage ", from, " of a patch at stage ", stage);
    ++stage;
  }

  std::vector<uint64_t> x_, keys_;
  std::vector<int> stage_;
  std::vector<float> rows_;
  std::map<uint64_t, int64_t> encoded_;  // by the hash of the first patch
};

}  // namespace nibble
