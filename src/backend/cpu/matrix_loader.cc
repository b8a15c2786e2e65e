// Pieces are taken in the order of the files, each by the next free thread.
#include "backend/cpu/matrix_loader.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <tuple>

#include "model/weights/sound_weights.h"

namespace nibble::cpu {
namespace {

/// Matrices are read in pieces of about this many bytes: small enough to stay in a core's cache
/// between the read and the interleaving, large enough for few system calls.
constexpr int64_t kPieceBytes = int64_t{256} << 10;

Error too_large(int64_t bytes, int64_t memory, std::string_view advice) {
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
                     .advice = advice});
}

}  // namespace

bool stays_mapped(WeightPlace place, Reading reading) {
  return place == WeightPlace::mapped ||
         (place == WeightPlace::automatic && reading == Reading::routed);
}

Result<void> MatrixLoader::add_embedding(EmbeddingRows& target) {
  const LinearSource& source = weights_.embedding();
  if (source.scheme.weights != WeightFormat::plain) {
    target.own = TRY(weights_.load(source));
    return {};
  }
  target.own = TRY(weights_.load_factors(source));
  embedding_ = &target;
  return {};
}

MappedBytes MatrixLoader::mapped(const StoredBytes& stored) const {
  const MappedBytes all = weights_.tensors().mapped(*stored.entry);
  return all.present() ? all.part(stored.begin, stored.bytes) : all;
}

void MatrixLoader::find_stored(Job& job) {
  if (!stays_mapped(limits_.place, job.reading) || !job.target->reads_stored_rows()) return;
  MappedBytes scales;
  if (job.target->format() == PanelFormat::nvfp4) {
    scales = mapped(weights_.block_scales_of(*job.source));
    if (!scales.present()) return;
  }
  job.values = mapped(weights_.values_of(*job.source));
  job.block_scales = scales;
  if (!job.values.present()) return;
  stored_.mapped += job.target->stored_bytes();
  if (job.reading == Reading::routed) stored_.routed_mapped += job.target->stored_bytes();
}

void MatrixLoader::cut(const LinearSource& source, size_t job) {
  const int64_t panel_bytes = std::max<int64_t>(1, row_bytes(source) * kPanelRows);
  const int64_t step = std::max<int64_t>(1, kPieceBytes / panel_bytes) * kPanelRows;
  for (int64_t row = 0; row < source.rows; row += step)
    pieces_.push_back({job, row, std::min(source.rows, row + step)});
}

/// Memory must hold what is copied. What is mapped need not be there all at once, but then it is
/// slow, which nobody shall get unasked.
Result<void> MatrixLoader::check_memory(int64_t own, int64_t all) {
  const int64_t memory = limits_.memory_bytes;
  if (memory == 0 || all <= memory) return {};
  if (own > memory || stored_.mapped == 0)
    return too_large(all, memory, "free memory, or quantize the model further (nibble plan)");
  stored_.streamed = limits_.beyond == BeyondMemory::streamed;
  if (stored_.streamed) return {};
  return too_large(
      all, memory,
      "free memory, quantize the model further (nibble plan), or read experts from the "
      "disk as they are wanted, slowly (--stream-weights)");
}

Result<WeightArena> MatrixLoader::place() {
  int64_t bytes = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    *job.target = PackedLinear(*job.source, weights_.values_of(*job.source).entry->dtype);
    bytes += job.target->room();
    find_stored(job);
    cut(*job.source, i);
  }
  const int64_t own = bytes - stored_.mapped;
  const int64_t rows = embedding_ == nullptr ? 0 : weights_.values_of(weights_.embedding()).bytes;
  if (embedding_ != nullptr) place_embedding();
  TRY(check_memory(bytes + rows - stored_.mapped, bytes + rows));
  if (embedding_ != nullptr && !embedding_mapped_.present())
    embedding_->own.values = Tensor(embedding_->mapped.dtype, embedding_->mapped.shape);
  WeightArena arena = TRY(WeightArena::reserve(own));
  for (const Job& job : jobs_) {
    if (job.values.present())
      job.target->place_stored(job.values.data(), job.block_scales.data(), arena);
    else
      job.target->place(arena);
  }
  return arena;
}

void MatrixLoader::place_embedding() {
  const LinearSource& embedding = weights_.embedding();
  const StoredBytes stored = weights_.values_of(embedding);
  if (limits_.place != WeightPlace::copied) embedding_mapped_ = mapped(stored);
  embedding_->mapped = {.data = embedding_mapped_.data(),
                        .dtype = stored.entry->dtype,
                        .shape = {embedding.rows, embedding.cols}};
  if (embedding_mapped_.present()) stored_.mapped += stored.bytes;
  cut(embedding, jobs_.size());
}

Result<void> MatrixLoader::load_embedding(const Piece& piece) const {
  const StoredBytes stored = weights_.values_of(weights_.embedding());
  const int64_t begin = piece.row_begin * row_bytes(weights_.embedding());
  const int64_t count = bytes_of(piece);
  if (embedding_mapped_.present())
    return stored_.streamed ? Result<void>() : embedding_mapped_.part(begin, count).fetch();
  return weights_.read(stored, begin,
                       embedding_->own.values.span().subspan(static_cast<size_t>(begin),
                                                             static_cast<size_t>(count)));
}

/// Brings rows to memory and refuses those that are not sound.
Result<void> MatrixLoader::look_through(const Job& job, const Piece& piece) const {
  const int64_t rows = piece.row_end - piece.row_begin;
  const int64_t bytes = row_bytes(*job.source);
  const MappedBytes values = job.values.part(piece.row_begin * bytes, rows * bytes);
  // Codes of 4 bits are sound whatever they are, so streamed ones are not read yet.
  if (!stored_.streamed || !job.block_scales.present()) TRY(values.fetch());
  const StoredBytes stored = weights_.values_of(*job.source);
  const int64_t cols = job.source->cols;
  LinearView view = {
      .module = job.source->module,
      .weights = job.source->scheme.weights,
      .values = {.data = values.data(), .dtype = stored.entry->dtype, .shape = {rows, cols}},
      .scales = {}};
  if (job.block_scales.present()) {
    const int64_t groups = cols / kNvfp4Group;
    const MappedBytes scales = job.block_scales.part(piece.row_begin * groups, rows * groups);
    TRY(scales.fetch());
    view.values.shape = {rows, cols / 2};
    view.scales = {.data = scales.data(), .dtype = DType::f8_e4m3, .shape = {rows, groups}};
  }
  return check_sound(view);
}

Result<void> MatrixLoader::load_piece(const Piece& piece) const {
  if (piece.job == jobs_.size()) return load_embedding(piece);
  const Job& job = jobs_[piece.job];
  if (piece.row_begin == 0) {
    const LinearWeight factors = TRY(weights_.load_factors(*job.source));
    TRY(job.target->set_factors(factors));
  }
  if (job.values.present()) return look_through(job, piece);
  const LinearWeight rows = TRY(weights_.load_rows(*job.source, piece.row_begin, piece.row_end));
  return job.target->pack_rows(rows, piece.row_begin);
}

Result<void> MatrixLoader::load(ThreadPool& pool) {
  const LoadingReport& report = limits_.report;
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
