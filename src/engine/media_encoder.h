// MediaEncoder: turns the media of running prompts into rows of the text model, one job at a time,
// in pieces between passes; keeps the rows for later prompts, those that must make room for others
// in host memory. A sequence holds the rows that its next prompt rows read, and its prefill waits
// where they are not there yet. Who waits may take rows from one that has held them for long and
// did not go on (its pages may be what others hold); the media of that one are encoded again later.
// So no two wait for each other for ever.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/media_cache.h"
#include "engine/cache/media_host_tier.h"
#include "engine/sequence.h"
#include "model/backend.h"
#include "model/vision.h"

namespace nibble {

struct MediaCounters {
  int64_t encoded = 0;       // media that went through the tower
  int64_t encoded_rows = 0;  // rows of the text model that they became
  int64_t found = 0;         // media whose rows were there already
  int64_t evicted = 0;       // media that had to make room for others
  int64_t restored = 0;      // media whose rows came back from host memory
  int64_t abandoned = 0;     // jobs whose request ended
  double encode_ms = 0.0;    // time in the tower
};

class MediaEncoder {
 public:
  MediaEncoder(const MediaEncoder&) = delete;  // its cache calls it
  MediaEncoder& operator=(const MediaEncoder&) = delete;

  /// The content of rows that are given out anew; poisoned: NaN.
  enum class Freed : uint8_t { as_it_is, poisoned };
  /// Nothing is encoded if the model has no tower or `sizes` no rows for it.
  MediaEncoder(Backend& backend, const ModelConfig& config, const PoolSizes& sizes, Freed freed);

  bool enabled() const { return cache_.size() > 0; }
  /// Succeeds if the media of a request could ever be held together where its prompt needs that.
  /// Errors: invalid_argument, no_memory.
  Result<void> admissible(const SequenceRequest& request) const;

  using Live = std::span<const std::unique_ptr<Sequence>>;
  /// Before a pass: holds what is there for the next rows of each prompt, and begins a job for the
  /// first that lacks something, by priority and arrival. `live` in order of arrival.
  void prepare(Live live);
  /// Prompt tokens from the first on whose rows may be computed, if `cached` are.
  int32_t ready(const Sequence& sequence, int32_t cached) const;
  /// The place of each row of a medium that is held.
  std::span<const int32_t> places(const Sequence& sequence, size_t medium) const;

  bool busy() const { return job_.has_value(); }
  /// The time that the tower took for a tenant.
  struct Worked {
    uint64_t tenant = 0;
    double ms = 0.0;
    std::optional<uint64_t> failed;  // a sequence whose media gave numbers that are not finite
  };
  /// Pieces of the job for about so long.
  Worked work(double budget_ms, const std::function<double()>& clock_ms);
  /// A sequence ends: a job for it ends too.
  void forget(Sequence& sequence);

  /// Without live sequences: forgets what is encoded, since the backend gives its memory back.
  void clear();
  MediaCounters counters() const;
  const MediaCache& cache() const { return cache_; }
  /// CHECKs that rows are owned and held by exactly the live sequences and the job.
  void check_integrity(Live live) const;

 private:
  struct Job {
    uint64_t sequence = 0;  // its id
    uint64_t tenant = 0;
    std::vector<int32_t> entries;
    VisionWalk walk;
  };
  /// Lets go of all media of a sequence.
  void release(Sequence& sequence) { release_beyond(sequence, 0); }
  /// Lets go of the media that begin there or later.
  void release_beyond(Sequence& sequence, int32_t begin);
  static MediaKey key_of(const SequenceRequest& request, const MediaRows& media);
  void hold_ready(Sequence& sequence);
  /// Media of [begin, end) of the prompt that are not held.
  static std::vector<size_t> missing(const Sequence& sequence, int32_t begin, int32_t end);
  enum class Taking : uint8_t { idle_rows, held_rows };
  bool begin_job(size_t at, const std::vector<size_t>& media, Taking taking);
  /// Rows for all of these media, each once. The media that have some now; nothing, with the rows
  /// so far in `job`, if there are too few. What is in host memory of them is pinned there.
  std::optional<std::vector<size_t>> take_all(size_t at, const std::vector<size_t>& media,
                                              Taking taking, Job& job);
  std::optional<int32_t> take_rows(size_t at, const MediaRows& media, Taking taking);
  void start_walk(const Sequence& sequence, const std::vector<size_t>& media);
  /// Fills entries of `job` from host memory and has the sequence hold them. The media, of those
  /// that the job is for, whose rows were not there; the job keeps their entries.
  std::vector<size_t> restore(Sequence& sequence, const std::vector<size_t>& media, Job& job);
  std::optional<uint64_t> finish_job();
  void drop_job();

  Backend& backend_;
  std::optional<VisionConfig> vision_;
  int64_t workspace_rows_;
  int32_t look_ahead_;  // prompt tokens beyond the cached ones for which rows are held
  Freed freed_;
  MediaHostTier on_host_;
  MediaCache cache_;
  std::vector<Sequence*> order_;  // live sequences in the order in which they go in this step
  std::optional<Job> job_;
  std::optional<uint64_t> encoded_for_;  // the sequence of a job that ended since prepare()
  double ms_per_work_ = 0.0;
  MediaCounters counters_;
};

}  // namespace nibble
