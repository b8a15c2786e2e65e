// EngineCore: the serving loop without its thread: one step = admit, one forward pass, sample,
// publish. Deterministic: the same calls in the same order give the same events.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/kv_pool.h"
#include "engine/messages.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/state_pool.h"
#include "model/backend.h"
#include "model/config.h"

namespace nibble {

/// every_step: pools are checked after each step, and freed pages and slots are filled with NaN.
enum class IntegrityChecks : uint8_t { off, every_step };

struct EngineSettings {
  PoolSizes pools;            // what the backend has reserved
  int32_t sequences_max = 1;  // running at once
  int32_t context_max = 0;    // prompt + generated tokens of one sequence
  int32_t waiting_max = 1024;
  IntegrityChecks integrity = IntegrityChecks::off;
};

class EngineCore {
 public:
  /// `backend` must have reserved settings.pools and must outlive the core.
  EngineCore(Backend& backend, ModelConfig config, Sampler sampler, const EngineSettings& settings);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  /// Whether a request could ever run. Errors: invalid_argument (empty prompt, an id outside the
  /// vocabulary, max_tokens < 1, longer than the context), no_memory (more pages than exist).
  Result<void> admissible(const SequenceRequest& request) const;

  /// Queues an admissible request whose id is not live.
  void submit(SequenceRequest request);
  /// Ends a live sequence, whatever its phase; an unknown id is ignored (it may just have ended).
  void cancel(uint64_t id);
  void cancel_all();

  bool idle() const { return live_.empty(); }
  int32_t live_count() const { return static_cast<int32_t>(live_.size()); }

  /// One pass over what the scheduler chose; nothing if idle. Returns every event since the last.
  std::vector<EngineEvent> step();

  const KvPool& kv_pool() const { return kv_pool_; }
  const StatePool& state_pool() const { return state_pool_; }
  /// CHECKs that pages and slots of the live sequences are exactly the taken ones.
  void check_integrity() const;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;  // in order of arrival

  Schedule plan() const;
  void admit(Sequence& sequence);
  Batch build_batch(const Schedule& schedule) const;
  void absorb(const Schedule& schedule, const HeadOutput& output);
  /// Samples, applies constraint and stops, publishes; ends the sequence when it is over.
  void advance(Sequence& sequence, std::span<const float> logits);
  std::span<const uint32_t> next_mask(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason, Finished details = {});
  void release(Sequence& sequence);
  void drop_finished();

  Backend& backend_;
  ModelConfig config_;
  Sampler sampler_;
  EngineSettings settings_;
  KvPool kv_pool_;
  StatePool state_pool_;
  Sequences live_;
  std::vector<uint64_t> finished_;
  std::vector<EngineEvent> events_;
  std::vector<uint32_t> mask_;
};

}  // namespace nibble
