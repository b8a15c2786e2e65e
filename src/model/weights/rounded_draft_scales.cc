// The scales of what is rounded: the largest magnitude of each group of fused linears, found by all
// threads.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <optional>

#include "model/weights/rounded_draft.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

/// Magnitudes order as their bits do, and a NaN is above all of them.
uint32_t largest_bits(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(value)));
  return largest;
}

void raise(std::atomic<uint32_t>& largest, uint32_t bits) {
  uint32_t seen = largest;
  while (seen < bits && !largest.compare_exchange_weak(seen, bits)) {
  }
}

}  // namespace

/// The linears that are plain now; the others keep what scales they have.
std::vector<RoundedDraft::Piece> RoundedDraft::pieces_to_round() const {
  std::vector<Piece> pieces;
  for (const Made& made : made_) {
    if (made.from->scheme.weights != WeightFormat::plain) continue;
    const int64_t step = piece_rows(*made.to);
    for (int64_t row = 0; row < made.to->rows; row += step)
      pieces.push_back({&made, row, std::min(step, made.to->rows - row)});
  }
  return pieces;
}

/// The bits of the largest magnitude in a piece.
Result<uint32_t> RoundedDraft::magnitude_of(const Piece& piece, std::vector<float>& rows) const {
  rows.resize(static_cast<size_t>(piece.rows * piece.made->to->cols));
  TRY(wide_rows(*piece.made, piece.begin, rows));
  const uint32_t bits = largest_bits(rows);
  if (std::isfinite(std::bit_cast<float>(bits))) return bits;
  return make_error(ErrorCode::corrupt, {.what = piece.made->from->module,
                                         .expected = "finite weights",
                                         .found = "NaN or infinity",
                                         .advice = "run nibble verify on the checkpoint"});
}

Result<void> RoundedDraft::scale_groups(ThreadPool& pool, size_t groups) {
  const std::vector<Piece> pieces = pieces_to_round();
  std::vector<std::atomic<uint32_t>> largest(groups);
  std::mutex mutex;
  std::optional<Error> first_error;
  pool.parallel_for(pieces.size(), 1, [&](size_t begin, size_t end) {
    std::vector<float> rows;
    for (size_t i = begin; i < end; ++i) {
      const Result<uint32_t> bits = magnitude_of(pieces[i], rows);
      if (bits.ok()) {
        raise(largest[pieces[i].made->group], bits.value());
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = bits.error();
    }
  });
  if (first_error) return *std::move(first_error);
  for (Made& made : made_) {
    const float amax = std::bit_cast<float>(largest[made.group].load());
    made.scale = fp8_scale(amax);
    made.global = nvfp4_global_scale(amax, GlobalScale::Direction::divide, made.source);
  }
  return {};
}

}  // namespace nibble
