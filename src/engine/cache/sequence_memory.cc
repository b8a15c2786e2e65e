// Transactions over the four pools and the prefix cache.
#include "engine/cache/sequence_memory.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "engine/cache/snapshot_plan.h"

namespace nibble {
namespace {

/// The first `count` ids of each.
std::vector<IdPair> pairs(std::span<const int32_t> from, std::span<const int32_t> to,
                          size_t count) {
  std::vector<IdPair> out;
  for (size_t i = 0; i < count; ++i) out.push_back({.from = from[i], .to = to[i]});
  return out;
}

}  // namespace

SequenceMemory::SequenceMemory(CacheStore& backend, const PoolSizes& sizes, CacheMode mode)
    : backend_(backend),
      mode_(mode),
      pools_(sizes),
      cache_(pools_, backend, PrefillCost{}),
      pages_clean_(static_cast<size_t>(sizes.pages)),
      slots_clean_(static_cast<size_t>(sizes.state_slots)) {}

std::optional<std::vector<int32_t>> SequenceMemory::allocate_pages(int64_t count, double now_ms) {
  if (count <= 0) return std::vector<int32_t>();
  if (fails()) return std::nullopt;
  return cache_.allocate_pages(static_cast<int32_t>(count), now_ms);
}

std::optional<int32_t> SequenceMemory::allocate_slot(double now_ms) {
  if (fails()) return std::nullopt;
  return cache_.allocate_slot(now_ms);
}

void SequenceMemory::look_up(Sequence& sequence) const {
  sequence.match = {};
  const bool whole_prompt = sequence.request.prompt_logprobs >= 0;  // needs every row's logits
  if (mode_ == CacheMode::off || whole_prompt) return;
  // At least one prompt token is computed: its logits choose the first generated one.
  sequence.match = cache_.match(sequence.prompt_key(), sequence.prompt_size() - 1);
}

Attempt SequenceMemory::admit(Sequence& sequence, int32_t pages_wanted, double now_ms) {
  CHECK(sequence.phase == Phase::waiting && sequence.pages.empty(), "sequence ",
        sequence.request.id, " is admitted twice");
  const auto slot = allocate_slot(now_ms);
  if (!slot) return Attempt::no_room;
  look_up(sequence);  // after the slot, whose eviction may have taken the snapshot
  const PrefixCache::Match& match = sequence.match;
  if (pages_wanted - match.device_pages > cache_.available_pages() - match.idle_pages) {
    pools_.slots.release(*slot);
    return Attempt::no_room;
  }
  std::optional<PrefixCache::Hit> hit;
  if (sequence.match.tokens > 0)
    hit = cache_.acquire(sequence.prompt_key(), sequence.match.tokens, *slot, now_ms);
  std::vector<int32_t> pages = hit ? std::move(hit->pages) : std::vector<int32_t>();
  const auto fresh = allocate_pages(pages_wanted - static_cast<int64_t>(pages.size()), now_ms);
  if (!fresh) {
    if (!planted(kBugAdmissionLeaksHit)) pools_.pages.release(pages);
    pools_.slots.release(*slot);
    return Attempt::no_room;
  }
  pages.insert(pages.end(), fresh->begin(), fresh->end());
  sequence.pages = std::move(pages);
  sequence.state_slot = *slot;
  sequence.phase = Phase::prefill;
  sequence.cached = hit ? sequence.match.tokens : 0;
  if (sequence.times_swapped == 0) sequence.hit_tokens = sequence.cached;
  if (!hit && !planted(kBugStateNotZeroed)) backend_.zero_state(*slot);
  if (mode_ == CacheMode::off) return Attempt::done;
  sequence.cursor = hit ? std::move(hit->cursor) : cache_.root(sequence.request.cache.salt);
  sequence.snapshots = plan_snapshots(sequence.request.cache, sequence.prompt_size(),
                                      sequence.cached, sequence.match.matched_tokens);
  return Attempt::done;
}

Attempt SequenceMemory::grow(Sequence& sequence, int64_t tokens, double now_ms) {
  const auto held = static_cast<int64_t>(sequence.pages.size());
  const auto fresh = allocate_pages(KvPool::pages_for(tokens) - held, now_ms);
  if (!fresh) return Attempt::no_room;
  sequence.pages.insert(sequence.pages.end(), fresh->begin(), fresh->end());
  return Attempt::done;
}

void SequenceMemory::give_back_device(Sequence& sequence) {
  pools_.pages.release(sequence.pages);
  sequence.pages.clear();
  const bool kept = planted(kBugCancelKeepsSlot) && sequence.phase == Phase::prefill;
  if (sequence.state_slot >= 0 && !kept) pools_.slots.release(sequence.state_slot);
  sequence.state_slot = -1;
  sequence.cursor = {};
  sequence.snapshots.clear();
}

void SequenceMemory::give_back_host(Sequence& sequence) {
  pools_.host_pages.release(sequence.host_pages);
  sequence.host_pages.clear();
  if (sequence.host_slot >= 0) pools_.host_slots.release(sequence.host_slot);
  sequence.host_slot = -1;
}

Attempt SequenceMemory::swap_out(Sequence& sequence, double now_ms) {
  CHECK(sequence.state_slot >= 0, "sequence ", sequence.request.id, " holds no device memory");
  const auto host_slot = fails() ? std::nullopt : cache_.allocate_host_slot(now_ms);
  if (!host_slot) return Attempt::no_room;
  const int32_t used = KvPool::pages_for(sequence.cached);
  auto host_pages = used == 0 ? std::vector<int32_t>() : cache_.allocate_host_pages(used, now_ms);
  if (!host_pages) {
    pools_.host_slots.release(*host_slot);
    return Attempt::no_room;
  }
  backend_.move_pages(CacheMove::store, pairs(sequence.pages, *host_pages, host_pages->size()));
  if (!planted(kBugSwapForgetsState)) backend_.store_state(sequence.state_slot, *host_slot);
  attach_tail(sequence, now_ms);
  give_back_device(sequence);
  sequence.host_pages = std::move(*host_pages);
  sequence.host_slot = *host_slot;
  sequence.resumes_as = sequence.phase;
  sequence.phase = Phase::swapped;
  sequence.swapped_ms = now_ms;
  ++sequence.times_swapped;
  return Attempt::done;
}

Attempt SequenceMemory::swap_in(Sequence& sequence, int32_t pages_wanted, double now_ms) {
  CHECK(sequence.phase == Phase::swapped, "sequence ", sequence.request.id, " is not swapped");
  const auto slot = allocate_slot(now_ms);
  if (!slot) return Attempt::no_room;
  const auto stored = static_cast<int32_t>(sequence.host_pages.size());
  auto pages = allocate_pages(std::max(pages_wanted, stored), now_ms);
  if (!pages) {
    pools_.slots.release(*slot);
    return Attempt::no_room;
  }
  const size_t loaded = sequence.host_pages.size() - (planted(kBugSwapLosesLastPage) ? 1 : 0);
  backend_.move_pages(CacheMove::load, pairs(sequence.host_pages, *pages, loaded));
  backend_.load_state(sequence.host_slot, *slot);
  give_back_host(sequence);
  sequence.pages = std::move(*pages);
  sequence.state_slot = *slot;
  sequence.phase = sequence.resumes_as;
  return Attempt::done;
}

void SequenceMemory::release(Sequence& sequence, double now_ms) {
  const bool holds_state = sequence.state_slot >= 0 && sequence.cursor;
  if (holds_state && sequence.phase == Phase::prefill && sequence.cached > 0 &&
      cache_.tokens(sequence.cursor) == sequence.cached && !cache_.has_snapshot(sequence.cursor) &&
      backend_.finite_state(sequence.state_slot)) {
    cache_.attach(sequence.cursor, sequence.state_slot, SnapshotPlace::interval, now_ms);
    sequence.state_slot = -1;
  }
  attach_tail(sequence, now_ms);
  give_back_device(sequence);
  give_back_host(sequence);
}

void SequenceMemory::attach_tail(Sequence& sequence, double now_ms) {
  if (sequence.tail_slot < 0) return;
  if (sequence.cursor)
    cache_.attach(sequence.cursor, sequence.tail_slot, SnapshotPlace::generation, now_ms);
  else
    pools_.slots.release(sequence.tail_slot);
  sequence.tail_slot = -1;
}

std::vector<TakenSnapshot> SequenceMemory::begin_snapshots(Sequence& sequence, int32_t end,
                                                           double now_ms) {
  std::vector<TakenSnapshot> taken;
  if (!sequence.cursor) return taken;
  const auto take = [&](int32_t tokens, SnapshotPlace place) {
    if (const auto slot = allocate_slot(now_ms)) taken.push_back({tokens, *slot, place});
  };
  size_t due = 0;
  while (due < sequence.snapshots.size() && sequence.snapshots[due].tokens <= end)
    take(sequence.snapshots[due].tokens, sequence.snapshots[due].place), ++due;
  sequence.snapshots.erase(sequence.snapshots.begin(),
                           sequence.snapshots.begin() + static_cast<ptrdiff_t>(due));
  const bool generated = sequence.phase == Phase::decode && end > sequence.prompt_size();
  if (mode_ == CacheMode::fast && generated && end % kPageTokens == 0)
    take(end, SnapshotPlace::generation);
  return taken;
}

bool SequenceMemory::finite(const Sequence& sequence, int32_t page_begin, int32_t page_end,
                            std::span<const TakenSnapshot> taken) {
  std::vector<int32_t> slots;
  for (const TakenSnapshot& snapshot : taken) slots.push_back(snapshot.slot);
  return backend_.finite(std::span(sequence.pages)
                             .subspan(static_cast<size_t>(page_begin),
                                      static_cast<size_t>(std::max(page_end - page_begin, 0))),
                         slots);
}

SequenceMemory::Published SequenceMemory::publish(Sequence& sequence,
                                                  std::span<const TakenSnapshot> taken,
                                                  double now_ms) {
  if (!sequence.cursor) return Published::ok;
  const bool with_generated = mode_ == CacheMode::fast || planted(kBugPublishesGenerated);
  const int32_t known = sequence.prompt_size() + (with_generated ? sequence.generated_size() : 0);
  const int32_t begin = cache_.tokens(sequence.cursor) / kPageTokens;
  const int32_t end = std::min(sequence.cached, known) / kPageTokens;
  if (begin >= end) return Published::ok;
  if (!planted(kBugPublishesNan) && !finite(sequence, begin, end, taken)) {
    for (const TakenSnapshot& snapshot : taken) pools_.slots.release(snapshot.slot);
    condemn(sequence);
    return Published::not_finite;
  }
  // The cursor moves on: the state of its present place is replaced by a later one, or stays there.
  const bool later = !taken.empty() && taken.back().place == SnapshotPlace::generation;
  if (!later) attach_tail(sequence, now_ms);
  PrefixKey key = sequence.prompt_key();
  std::vector<int32_t> tokens;
  if (end * kPageTokens > sequence.prompt_size()) {
    tokens = sequence.request.prompt;
    tokens.insert(tokens.end(), sequence.generated.begin(), sequence.generated.end());
    key.tokens = tokens;
  }
  size_t next = 0;
  for (int32_t i = begin; i < end; ++i) {
    int32_t& page = sequence.pages[static_cast<size_t>(i)];
    page = cache_.extend(sequence.cursor, key, page, now_ms);
    const int32_t reached = (i + 1) * kPageTokens;
    for (; next < taken.size() && taken[next].tokens == reached; ++next) {
      if (taken[next].place == SnapshotPlace::generation) {
        if (sequence.tail_slot >= 0) pools_.slots.release(sequence.tail_slot);
        sequence.tail_slot = taken[next].slot;
      } else {
        cache_.attach(sequence.cursor, taken[next].slot, taken[next].place, now_ms);
        if (taken[next].place == SnapshotPlace::pinned) pin(sequence, now_ms);
      }
    }
  }
  CHECK(next == taken.size(), "snapshot at ", taken[next].tokens, " tokens is not on the path");
  return Published::ok;
}

void SequenceMemory::pin(const Sequence& sequence, double now_ms) {
  if (cache_.pin(sequence.cursor, now_ms) != PrefixCache::Pin::done || !on_pinned_) return;
  if (auto bytes = cache_.read(sequence.cursor, now_ms)) on_pinned_(std::move(*bytes));
}

void SequenceMemory::condemn(Sequence& sequence) {
  if (!sequence.cursor) return;
  if (sequence.tail_slot >= 0) pools_.slots.release(sequence.tail_slot);
  sequence.tail_slot = -1;
  cache_.condemn(sequence.cursor);
  sequence.cursor = {};  // without it no snapshot that is still planned will be taken
}

int32_t SequenceMemory::private_pages(const Sequence& sequence) const {
  const int32_t published = sequence.cursor ? cache_.tokens(sequence.cursor) / kPageTokens : 0;
  int32_t count = 0;
  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    const int32_t own = static_cast<int32_t>(i) < published ? 2 : 1;  // the cache's, and ours
    count += pools_.pages.references(sequence.pages[i]) <= own ? 1 : 0;
  }
  return count;
}

void SequenceMemory::poison_freed() {
  for (size_t i = 0; i < pages_clean_.size(); ++i) {
    const auto page = static_cast<int32_t>(i);
    const bool taken = pools_.pages.references(page) > 0;
    if (!taken && pages_clean_[i] == 0) backend_.poison_page(page);
    pages_clean_[i] = taken ? 0 : 1;
  }
  for (size_t i = 0; i < slots_clean_.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    const bool taken = pools_.slots.taken(slot);
    if (!taken && slots_clean_[i] == 0) backend_.poison_state(slot);
    slots_clean_[i] = taken ? 0 : 1;
  }
}

void SequenceMemory::check_integrity(std::span<const Sequence* const> live) const {
  PrefixCache::Owned owned;
  cache_.check_integrity(owned);
  for (const int32_t page : owned.pages)
    CHECK(backend_.finite_page(page), "the cache holds page ", page, ", which is not finite");
  for (const int32_t slot : owned.slots)
    CHECK(backend_.finite_state(slot), "the cache holds state ", slot, ", which is not finite");
  for (const Sequence* s : live) {
    owned.pages.insert(owned.pages.end(), s->pages.begin(), s->pages.end());
    owned.host_pages.insert(owned.host_pages.end(), s->host_pages.begin(), s->host_pages.end());
    if (s->state_slot >= 0) owned.slots.push_back(s->state_slot);
    if (s->tail_slot >= 0) owned.slots.push_back(s->tail_slot);
    if (s->host_slot >= 0) owned.host_slots.push_back(s->host_slot);
    const bool on_device = s->phase == Phase::prefill || s->phase == Phase::decode;
    CHECK(on_device == (s->state_slot >= 0), "sequence ", s->request.id, " phase ",
          static_cast<int>(s->phase), " slot ", s->state_slot);
    const auto& pages = s->phase == Phase::swapped ? s->host_pages : s->pages;
    CHECK(s->phase == Phase::waiting ||
              static_cast<int32_t>(pages.size()) >= KvPool::pages_for(s->cached),
          "sequence ", s->request.id, " caches ", s->cached, " tokens in ", pages.size(), " pages");
  }
  pools_.pages.check_integrity(owned.pages);
  pools_.slots.check_integrity(owned.slots);
  pools_.host_pages.check_integrity(owned.host_pages);
  pools_.host_slots.check_integrity(owned.host_slots);
}

}  // namespace nibble
