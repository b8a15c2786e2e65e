// Pieces are taken in the order of the files, each by the next free thread.
#include "backend/cpu/matrix_loader.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <tuple>

namespace nibble::cpu {
namespace {

/// Matrices are read in pieces of about this many bytes: small enough to stay in a core's cache
/// between the read and the interleaving, large enough for few system calls.
constexpr int64_t kPieceBytes = int64_t{256} << 10;

Error too_large(int64_t bytes, int64_t memory) {
  constexpr double kGiB = 1 << 30;
  const auto gib = [](int64_t n) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(n) / kGiB);
    return std::string(text);
  };
  return make_error(ErrorCode::no_memory,
                    {.what = concat("weights of ", gib(bytes)),
                     .expected = concat("at most the ", gib(memory), " of memory that are free"),
                     .found = concat(gib(bytes - memory), " too many"),
                     .advice = "free memory, or quantize the model further (nibble plan)"});
}

}  // namespace

Result<void> MatrixLoader::add_embedding(LinearWeight& target) {
  const LinearSource& source = weights_.embedding();
  if (source.scheme.weights != WeightFormat::plain) {
    target = TRY(weights_.load(source));
    return {};
  }
  target = TRY(weights_.load_factors(source));
  embedding_ = &target;
  return {};
}

void MatrixLoader::cut(const LinearSource& source, size_t job) {
  const int64_t panel_bytes = std::max<int64_t>(1, row_bytes(source) * kPanelRows);
  const int64_t step = std::max<int64_t>(1, kPieceBytes / panel_bytes) * kPanelRows;
  for (int64_t row = 0; row < source.rows; row += step)
    pieces_.push_back({job, row, std::min(source.rows, row + step)});
}

Result<WeightArena> MatrixLoader::place(int64_t memory_bytes) {
  int64_t bytes = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    *job.target = PackedLinear(*job.source, weights_.values_of(*job.source).entry->dtype);
    bytes += job.target->room();
    cut(*job.source, i);
  }
  const LinearSource& embedding = weights_.embedding();
  const int64_t embedding_bytes = embedding_ == nullptr ? 0 : weights_.values_of(embedding).bytes;
  const int64_t all = bytes + embedding_bytes;
  if (memory_bytes > 0 && all > memory_bytes) return too_large(all, memory_bytes);
  if (embedding_ != nullptr) {
    const DType stored = weights_.values_of(embedding).entry->dtype;
    embedding_->values = Tensor(stored, {embedding.rows, embedding.cols});
    cut(embedding, jobs_.size());
  }
  WeightArena arena = TRY(WeightArena::reserve(bytes));
  for (const Job& job : jobs_) job.target->place(arena);
  return arena;
}

Result<void> MatrixLoader::load_embedding(const Piece& piece) const {
  const StoredBytes stored = weights_.values_of(weights_.embedding());
  const int64_t begin = piece.row_begin * row_bytes(weights_.embedding());
  const auto count = static_cast<size_t>(bytes_of(piece));
  return weights_.read(stored, begin,
                       embedding_->values.span().subspan(static_cast<size_t>(begin), count));
}

Result<void> MatrixLoader::load_piece(const Piece& piece) const {
  if (piece.job == jobs_.size()) return load_embedding(piece);
  const Job& job = jobs_[piece.job];
  if (piece.row_begin == 0) {
    const LinearWeight factors = TRY(weights_.load_factors(*job.source));
    TRY(job.target->set_factors(factors));
  }
  const LinearWeight rows = TRY(weights_.load_rows(*job.source, piece.row_begin, piece.row_end));
  return job.target->pack_rows(rows, piece.row_begin);
}

Result<void> MatrixLoader::load(ThreadPool& pool, const LoadingReport& report) {
  std::ranges::sort(pieces_, {}, [&](const Piece& piece) {
    const StoredBytes stored = weights_.values_of(source_of(piece));
    return std::tuple(stored.entry->file, stored.entry->offset, stored.begin, piece.row_begin);
  });
  int64_t total = 0;
  for (const Piece& piece : pieces_) total += bytes_of(piece);
  std::mutex mutex;
  std::optional<Error> first_error;
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> done = 0;
  pool.parallel_for(static_cast<size_t>(pool.size()), 1, [&](size_t, size_t) {
    for (size_t i = next++; i < pieces_.size(); i = next++) {
      const Result<void> loaded = load_piece(pieces_[i]);
      done += bytes_of(pieces_[i]);
      if (loaded.ok() && !report) continue;
      const std::lock_guard lock(mutex);
      if (report) report(done, total);
      if (loaded.ok()) continue;
      if (!first_error) first_error = loaded.error();
      next = pieces_.size();
    }
  });
  if (first_error) return *std::move(first_error);
  return {};
}

}  // namespace nibble::cpu
