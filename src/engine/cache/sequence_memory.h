// SequenceMemory: what a sequence holds of the pools, from admission to its end: pages and a state
// slot on the device, their copies in host memory while it is swapped out, its place in the prefix
// cache. Every operation either happens whole or changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/cache/prefix_cache.h"
#include "engine/sequence.h"
#include "model/backend.h"

namespace nibble {

/// exact: only what prompt arithmetic made is published, so that outputs never depend on the cache.
/// fast: pages and states of generated text too.
enum class CacheMode : uint8_t { exact, fast, off };

enum class Attempt : uint8_t { done, no_room };

/// A state slot that the pass writes when the sequence has `tokens` tokens.
struct TakenSnapshot {
  int32_t tokens = 0;
  int32_t slot = 0;
  SnapshotPlace place = SnapshotPlace::boundary;
};

class SequenceMemory {
 public:
  /// `backend` must have reserved `sizes` and must outlive this.
  SequenceMemory(CacheStore& backend, const PoolSizes& sizes, CacheMode mode);

  const CachePools& pools() const { return pools_; }
  PrefixCache& cache() { return cache_; }
  const PrefixCache& cache() const { return cache_; }

  /// Looks up what the cache knows of a waiting sequence's prompt.
  void look_up(Sequence& sequence) const;
  /// A waiting sequence gets a slot and `pages` pages, those of the longest known prefix of its
  /// prompt among them, and becomes prefill.
  Attempt admit(Sequence& sequence, int32_t pages, double now_ms);
  /// Pages for `tokens` tokens in all.
  Attempt grow(Sequence& sequence, int64_t tokens, double now_ms);
  /// A running sequence gives its device memory back; shared pages are stored with it, so that what
  /// swapped sequences hold can never stand in the way of the others. no_room: the host cannot hold
  /// them; nothing changed.
  Attempt swap_out(Sequence& sequence, double now_ms);
  /// A swapped sequence is again what it was, with `pages` pages in all, or more if it had more.
  Attempt swap_in(Sequence& sequence, int32_t pages, double now_ms);
  /// Gives everything back. The state of an unfinished prefill is kept in the cache if it can be.
  void release(Sequence& sequence, double now_ms);

  /// Slots for the snapshots due when `sequence` advances to `end` tokens; as many as there is
  /// room for.
  std::vector<TakenSnapshot> begin_snapshots(Sequence& sequence, int32_t end, double now_ms);

  enum class Published : uint8_t { ok, not_finite };
  /// After a pass that advanced the sequence: whole pages and snapshots go to the cache.
  /// not_finite: none of this pass went there and the sequence's path was taken out; it must not go
  /// on.
  Published publish(Sequence& sequence, std::span<const TakenSnapshot> taken, double now_ms);
  /// The state at the last whole page of the generated text, if one is held, goes to the cache.
  void attach_tail(Sequence& sequence, double now_ms);
  /// Takes this sequence's path out of the cache, because what was computed from it was not finite.
  void condemn(Sequence& sequence);

  /// Receives the bytes of each newly pinned prefix. Empty: they are pinned in memory alone.
  void on_pinned(std::function<void(PrefixBytes)> sink) { on_pinned_ = std::move(sink); }

  /// Pages that swapping `sequence` out would make available.
  int32_t private_pages(const Sequence& sequence) const;

  /// For tests: called before every allocation; true makes it fail.
  void fail_allocations(std::function<bool()> fails) { fails_ = std::move(fails); }
  /// For tests: fills what became free since the last call with NaN.
  void poison_freed();
  /// CHECKs that every id is owned by exactly those who say so.
  void check_integrity(std::span<const Sequence* const> live) const;

 private:
  bool fails() const { return fails_ && fails_(); }
  std::optional<std::vector<int32_t>> allocate_pages(int64_t count, double now_ms);
  std::optional<int32_t> allocate_slot(double now_ms);
  void give_back_device(Sequence& sequence);
  void give_back_host(Sequence& sequence);
  /// Keeps the prefix that ends at the cursor in memory, and passes its bytes to the sink of
  /// on_pinned.
  void pin(const Sequence& sequence, double now_ms);
  bool finite(const Sequence& sequence, int32_t page_begin, int32_t page_end,
              std::span<const TakenSnapshot> taken);

  CacheStore& backend_;
  CacheMode mode_;
  CachePools pools_;
  PrefixCache cache_;
  std::function<bool()> fails_;
  std::function<void(PrefixBytes)> on_pinned_;
  std::vector<uint8_t> pages_clean_;  // poisoned since last use
  std::vector<uint8_t> slots_clean_;
};

}  // namespace nibble
