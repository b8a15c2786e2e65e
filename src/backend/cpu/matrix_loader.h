// MatrixLoader: the large part of loading. Makes room for all matrices of a model at once, then
// reads and interleaves them piece by piece on all threads.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/cpu/weight_arena.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/weights/weights.h"

namespace nibble::cpu {

class MatrixLoader {
 public:
  /// `weights` and all that is added must outlive it.
  explicit MatrixLoader(const Weights& weights) : weights_(weights) {}

  /// An absent source adds nothing.
  void add(const LinearSource& source, PackedLinear& target) {
    if (source.present()) jobs_.push_back({&source, &target});
  }
  /// The embedding, as its file stores it. A quantized one is small and read at once.
  Result<void> add_embedding(LinearWeight& target);
  /// Memory for all that was added. Errors: no_memory, with the numbers, if it is more than
  /// `memory_bytes`; 0 is no limit.
  Result<WeightArena> place(int64_t memory_bytes);
  /// Errors: those of reading and of PackedLinear::pack_rows; the first one.
  Result<void> load(ThreadPool& pool, const LoadingReport& report);

 private:
  struct Job {
    const LinearSource* source;
    PackedLinear* target;
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
  Result<void> load_embedding(const Piece& piece) const;
  Result<void> load_piece(const Piece& piece) const;

  const Weights& weights_;
  LinearWeight* embedding_ = nullptr;  // whose values are read in pieces
  std::vector<Job> jobs_;
  std::vector<Piece> pieces_;
};

}  // namespace nibble::cpu
