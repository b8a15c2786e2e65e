// The scales of what is rounded follow from the largest magnitudes of each group of fused linears,
// and of each block, which all threads look for.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "model/weights/rounded_draft.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

/// Magnitudes order as their bits do, and a NaN is above all of them. Returns the largest; `maxima`
/// gets that of each 16 numbers.
template <typename Bits>
Bits largest_bits(std::span<const std::byte> numbers, std::byte* maxima) {
  constexpr size_t kBlockBytes = kNvfp4Group * sizeof(Bits);
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;
  for (size_t at = 0; at < numbers.size(); at += kBlockBytes, maxima += sizeof(Bits)) {
    std::array<Bits, kNvfp4Group> block = {};
    std::memcpy(block.data(), &numbers[at], std::min(kBlockBytes, numbers.size() - at));
    Bits most = 0;
    for (const Bits bits : block) most = std::max<Bits>(most, bits & kMagnitude);
    std::memcpy(maxima, &most, sizeof most);
    largest = std::max(largest, most);
  }
  return largest;
}

template <typename Bits>
float largest_of(std::span<const std::byte> numbers, DType type, std::byte* maxima) {
  const Bits bits = largest_bits<Bits>(numbers, maxima);
  float value = 0.0F;
  decode_plain(reinterpret_cast<const std::byte*>(&bits), type, 1, &value);
  return value;
}

float largest_magnitude(std::span<const std::byte> numbers, DType type, std::byte* maxima) {
  switch (dtype_bytes(type, 1)) {
    case 2:
      return largest_of<uint16_t>(numbers, type, maxima);
    case 4:
      return largest_of<uint32_t>(numbers, type, maxima);
    default:
      return largest_of<uint64_t>(numbers, type, maxima);
  }
}

size_t maxima_bytes(int64_t numbers, DType type) {
  return static_cast<size_t>(dtype_bytes(type, (numbers + kNvfp4Group - 1) / kNvfp4Group));
}

void raise(std::atomic<uint32_t>& largest, uint32_t bits) {
  uint32_t seen = largest;
  while (seen < bits && !largest.compare_exchange_weak(seen, bits)) {
  }
}

}  // namespace

/// Pieces of the linears that become codes; those that are codes keep what scales they have.
std::vector<RoundedDraft::Piece> RoundedDraft::pieces_to_round() {
  std::vector<Piece> pieces;
  for (Made& made : made_) {
    if (!made.rounds()) continue;
    if (made.to->scheme.weights == WeightFormat::nvfp4)
      made.maxima.resize(maxima_bytes(made.to->rows * made.to->cols, made.stored));
    const int64_t step = piece_rows(*made.to);
    for (int64_t row = 0; row < made.to->rows; row += step)
      pieces.push_back({&made, row, std::min(step, made.to->rows - row)});
  }
  return pieces;
}

/// The largest magnitude in a piece; those of its blocks go to their place, if they have one.
Result<float> RoundedDraft::magnitude_of(const Piece& piece, Scratch& scratch) const {
  Made& made = *piece.made;
  const StoredBytes stored = base_.values_of(*made.from);
  scratch.rows.resize(static_cast<size_t>(piece.rows * (stored.bytes / made.from->rows)));
  TRY(copy_rows(made, stored, piece.begin, scratch.rows));
  scratch.maxima.resize(maxima_bytes(piece.rows * made.to->cols, made.stored));
  std::byte* maxima = made.maxima.empty()
                          ? scratch.maxima.data()
                          : &made.maxima[maxima_bytes(piece.begin * made.to->cols, made.stored)];
  const float largest = largest_magnitude(scratch.rows, made.stored, maxima);
  if (std::isfinite(largest)) return largest;
  return make_error(ErrorCode::corrupt, {.what = made.from->module,
                                         .expected = "finite weights",
                                         .found = "NaN or infinity",
                                         .advice = "run nibble verify on the checkpoint"});
}

/// Puts the block scales in place of the maxima.
void RoundedDraft::scale_blocks(Made& made) {
  const int64_t blocks = made.to->rows * made.to->cols / kNvfp4Group;
  constexpr int64_t kStep = 1024;
  std::array<float, kStep> amax = {};
  made.scales.resize(static_cast<size_t>(blocks));
  for (int64_t at = 0; at < blocks; at += kStep) {
    const int64_t count = std::min(kStep, blocks - at);
    decode_plain(&made.maxima[static_cast<size_t>(dtype_bytes(made.stored, at))], made.stored,
                 count, amax.data());
    for (int64_t i = 0; i < count; ++i)
      made.scales[static_cast<size_t>(at + i)] = static_cast<std::byte>(
          nvfp4_amax_scale(amax[static_cast<size_t>(i)], made.global, made.source));
  }
  made.maxima = {};
}

Result<void> RoundedDraft::scale_groups(ThreadPool& pool, size_t groups) {
  const std::vector<Piece> pieces = pieces_to_round();
  std::vector<std::atomic<uint32_t>> largest(groups);
  std::mutex mutex;
  std::optional<Error> first_error;
  pool.parallel_for(pieces.size(), 1, [&](size_t begin, size_t end) {
    Scratch scratch;
    for (size_t i = begin; i < end; ++i) {
      const Result<float> found = magnitude_of(pieces[i], scratch);
      if (found.ok()) {
        raise(largest[pieces[i].made->group], std::bit_cast<uint32_t>(found.value()));
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = found.error();
    }
  });
  if (first_error) return *std::move(first_error);
  for (Made& made : made_) {
    const float amax = std::bit_cast<float>(largest[made.group].load());
    made.scale = fp8_scale(amax);
    made.global = nvfp4_global_scale(amax, GlobalScale::Direction::divide, made.source);
  }
  pool.parallel_for(made_.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      if (!made_[i].maxima.empty()) scale_blocks(made_[i]);
  });
  return {};
}

}  // namespace nibble
