// TeacherForced: one sequence at a time through a backend in chunks, every row with its logits.
// Owns the backend's pools while it lives; text with images between.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/media_patches.h"

namespace nibble {

/// A still image in a sequence: as many ids as it has rows stand for it there, from `begin` on.
struct PlacedImage {
  int32_t begin = 0;
  std::shared_ptr<const MediaPatches> patches;
};

/// The most that one sequence needs.
struct SequenceRoom {
  int64_t tokens = 0;
  int32_t media_rows = 0;   // rows of all its images
  int64_t vision_rows = 0;  // patches of the largest, as PoolSizes
};

class TeacherForced {
 public:
  /// Reserves pools for one sequence at a time. Errors: no_memory; invalid_argument beyond the
  /// model's positions. Both references must outlive the result.
  static Result<TeacherForced> create(Backend& backend, const ModelConfig& config,
                                      const SequenceRoom& room,
                                      Arithmetic arithmetic = Arithmetic::prompt);

  /// Rows of one pass: a multiple of 64 whose logits take at most about 64 MB.
  static int chunk_rows(const ModelConfig& config);

  /// Forgets the sequence and begins one of `tokens` ids. Its images, ascending, are encoded by the
  /// tower, which a model with images must have. Errors: invalid_argument for an image that the
  /// tower does not take; corrupt when a row of one is not finite.
  Result<void> begin(int64_t tokens, std::span<const PlacedImage> images = {});
  /// The next ids of the sequence (at most chunk_rows; each below vocab_rows) -> their logits
  /// [ids.size(), vocab_rows], valid until the next call. Errors: corrupt when one is not finite.
  Result<std::span<const float>> next(std::span<const int32_t> ids);

 private:
  TeacherForced(Backend& backend, const ModelConfig& config, const PoolSizes& sizes,
                Arithmetic arithmetic)
      : backend_(&backend), config_(&config), sizes_(sizes), arithmetic_(arithmetic) {}

  /// Encodes images into media rows, one after the other.
  Result<void> encode(std::span<const PlacedImage> images);

  Backend* backend_;
  const ModelConfig* config_;
  PoolSizes sizes_;
  Arithmetic arithmetic_;
  int32_t tokens_ = 0;                             // in the cache
  std::vector<std::array<int32_t, 3>> positions_;  // rotary, of the whole sequence
  std::vector<int32_t> places_;                    // row of each id in the media rows, or -1
};

}  // namespace nibble
