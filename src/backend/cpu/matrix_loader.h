// MatrixLoader: the large part of loading, piece by piece on all threads. Matrices whose files are
// mapped (TensorSource::mapping) are looked through and stay where they are, if kernels can read
// them there; for all others there is one block of memory, where their rows are interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/cpu/weight_arena.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/weights/weights.h"

namespace nibble::cpu {

/// The rows of an embedding that is not the head too, as its file stores them.
struct EmbeddingRows {
  LinearWeight own;   // without values where they are mapped
  TensorView mapped;  // the values; a plain embedding alone is mapped
  bool is_mapped() const { return mapped.data != nullptr; }
  int64_t bytes() const {
    return own.values.bytes() + own.scales.bytes() + (is_mapped() ? mapped.bytes() : 0);
  }
};

/// A token reads a matrix each time, or as the router says.
enum class Reading : uint8_t { always, routed };
/// True if a matrix is to stay in its file, where kernels can read it there.
bool stays_mapped(WeightPlace place, Reading reading);

struct LoadLimits {
  int64_t memory_bytes = 0;  // that the weights may take; 0: no limit
  WeightPlace place = WeightPlace::automatic;
  BeyondMemory beyond = BeyondMemory::refused;
  LoadingReport report;  // may be empty
};

class MatrixLoader {
 public:
  /// `weights` and all that is added must outlive it.
  MatrixLoader(const Weights& weights, const LoadLimits& limits)
      : weights_(weights), limits_(limits) {}

  /// An absent source adds nothing.
  void add(const LinearSource& source, PackedLinear& target, Reading reading = Reading::always) {
    if (source.present())
      jobs_.push_back({.source = &source, .target = &target, .reading = reading});
  }
  /// The embedding, as its file stores it. A quantized one is small and read at once.
  Result<void> add_embedding(EmbeddingRows& target);
  /// Memory for all that was added. Errors: no_memory, with the numbers, if it is more than the
  /// limit, mapped files counted unless they may be streamed.
  Result<WeightArena> place();
  /// The bytes that stay in mapped files, and whether they are more than the memory; after place().
  HostWeights stored() const { return stored_; }
  /// Errors: those of reading and of PackedLinear::pack_rows; the first one.
  Result<void> load(ThreadPool& pool);

 private:
  struct Job {
    const LinearSource* source;
    PackedLinear* target;
    Reading reading = Reading::always;
    MappedBytes values = {};  // of a matrix that stays in its file
    MappedBytes block_scales = {};
  };
  /// Whole panels of one matrix, or rows of the embedding, which has the number after the last job.
  struct Piece {
    size_t job;
    int64_t row_begin, row_end;
  };
  const LinearSource& source_of(const Piece& piece) const {
    return piece.job == jobs_.size() ? weights_.embedding() : *jobs_[piece.job].source;
  }
  int64_t row_bytes(const LinearSource& source) const {
    return weights_.values_of(source).bytes / source.rows;
  }
  int64_t bytes_of(const Piece& piece) const {
    return (piece.row_end - piece.row_begin) * row_bytes(source_of(piece));
  }
  void cut(const LinearSource& source, size_t job);
  MappedBytes mapped(const StoredBytes& stored) const;
  void find_stored(Job& job);
  Result<void> check_memory(int64_t own, int64_t all);
  void place_embedding();
  Result<void> load_embedding(const Piece& piece) const;
  Result<void> look_through(const Job& job, const Piece& piece) const;
  Result<void> load_piece(const Piece& piece) const;

  const Weights& weights_;
  const LoadLimits& limits_;
  EmbeddingRows* embedding_ = nullptr;  // whose values are read in pieces
  MappedBytes embedding_mapped_;
  HostWeights stored_;
  std::vector<Job> jobs_;
  std::vector<Piece> pieces_;
};

}  // namespace nibble::cpu
