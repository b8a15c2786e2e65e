// TeacherForced: one sequence at a time through a backend in chunks, every row with its logits.
// Owns the backend's pools while it lives; text only (rotary position = index).
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble {

class TeacherForced {
 public:
  /// Reserves pools for one sequence of `tokens_max`. Errors: no_memory; invalid_argument beyond
  /// the model's positions. Both references must outlive the result.
  static Result<TeacherForced> create(Backend& backend, const ModelConfig& config,
                                      int64_t tokens_max,
                                      Arithmetic arithmetic = Arithmetic::prompt);

  /// Rows of one pass: a multiple of 64 whose logits take at most about 64 MB.
  static int chunk_rows(const ModelConfig& config);

  /// Forgets the sequence.
  void begin();
  /// The next ids of the sequence (at most chunk_rows; each below vocab_rows) -> logits
  /// [ids.size(), vocab_rows], valid until the next call. Errors: corrupt when one is not finite.
  Result<std::span<const float>> next(std::span<const int32_t> ids);

 private:
  TeacherForced(Backend& backend, const ModelConfig& config, const PoolSizes& sizes,
                Arithmetic arithmetic)
      : backend_(&backend), config_(&config), sizes_(sizes), arithmetic_(arithmetic) {}

  Backend* backend_;
  const ModelConfig* config_;
  PoolSizes sizes_;
  Arithmetic arithmetic_;
  int32_t tokens_ = 0;  // in the cache
};

}  // namespace nibble
