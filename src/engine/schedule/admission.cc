// Growth first, then candidates in order of urgency. The rules are stated in docs/scheduling.md.
#include "engine/schedule/admission.h"

#include <algorithm>
#include <tuple>

#include "base/planted_bug.h"
#include "engine/cache/kv_pool.h"

namespace nibble {

namespace {

constexpr double kEarmarkMs = 2000.0;   // a blocked head waits this long before none overtakes
constexpr int kSkipMax = 64;            // waiting ones that may be considered after a blocked head
constexpr double kNewcomerMs = 250.0;   // a tenant's first waits so long for a seat to get free
constexpr int32_t kResumeTokens = 512;  // room to grow for a sequence that resumes decoding
constexpr int32_t kSwapsUnprotected = 2;   // swapped out this often, a sequence is spared
constexpr double kSwapSparedMs = 10000.0;  // for so long, if another can give way

int32_t whole_pages(const SequenceView& s) { return KvPool::pages_for(s.tokens_max); }

bool runs(const SequenceView& s) { return s.phase == Phase::prefill || s.phase == Phase::decode; }

bool may_grow(const SequenceView& s) { return s.pages_held < whole_pages(s); }

/// The next row of one that runs has no page.
bool needs_page(const SequenceView& s) { return int64_t{s.pages_held} * kPageTokens <= s.cached; }

Standing ready(const SequenceView& s) {
  return s.cached < s.prompt_size ? Standing::prefill : Standing::decode;
}

}  // namespace

std::span<const Standing> Admission::place(std::span<const SequenceView> sequences,
                                           const FreeResources& free, double now_ms,
                                           Schedule& schedule) {
  sequences_ = sequences;
  counts_ = {.free = free};
  now_ms_ = now_ms;
  schedule.swapped_out.clear();
  schedule.resumed.clear();
  schedule.admitted.clear();
  count_running();
  grow(schedule);
  // While somebody lacks a page nobody takes one to start; nor what was swapped out to grow: that
  // would go in circles.
  const bool settled = schedule.swapped_out.empty() && counts_.stalled == 0;
  if (settled && !seat_newcomer(schedule)) place_candidates(schedule);
  return standing_;
}

bool Admission::has_seat() const {
  const bool seat = counts_.running < limits_.sequences_max || planted(kBugIgnoresSeats);
  return seat && counts_.free.state_slots > 0;
}

/// Has a long prompt to compute.
bool Admission::is_long(const SequenceView& s) const {
  return s.cached < s.prompt_size && size_class(s, limits_.long_tokens) == SizeClass::long_prompt;
}

void Admission::count_running() {
  standing_.assign(sequences_.size(), Standing::out);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const SequenceView& s = sequences_[i];
    if (!runs(s)) continue;
    standing_[i] = needs_page(s) ? Standing::stalled : ready(s);
    ++counts_.running;
    if (needs_page(s)) ++counts_.stalled;
    if (is_long(s)) ++counts_.long_prefills;
    if (may_grow(s)) ++counts_.growing;
  }
}

void Admission::grow(Schedule& schedule) {
  if (counts_.stalled == 0) return;
  candidates_.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(sequences_.size()); ++i)
    if (standing(i) == Standing::stalled) candidates_.push_back({i, 0});
  std::ranges::stable_sort(candidates_, {},
                           [&](const Candidate& c) { return view(c.sequence).priority; });
  for (const Candidate& c : candidates_) {
    if (standing(c.sequence) != Standing::stalled) continue;  // gave way to another
    if (counts_.free.pages < 1 && !planted(kBugGrowsWithoutPage)) {
      const int32_t victim = victim_for(c.sequence, Host::has_room);
      if (victim >= 0) swap_out(victim, schedule);
    }
    grant(c.sequence);
  }
  if (counts_.stalled > 0 && counts_.stalled == counts_.running) unblock(schedule);
}

void Admission::grant(int32_t sequence) {
  if (counts_.free.pages < 1 && !planted(kBugGrowsWithoutPage)) return;
  --counts_.free.pages;
  --counts_.stalled;
  standing(sequence) = ready(view(sequence));
}

/// Nobody can advance and the host is full: the most urgent one takes from the others, whatever it
/// costs them. With all of them out, every page but its own is free.
void Admission::unblock(Schedule& schedule) {
  int32_t first = -1;
  for (const Candidate& c : candidates_)
    if (first < 0 && standing(c.sequence) == Standing::stalled) first = c.sequence;
  while (standing(first) == Standing::stalled) {
    const int32_t victim = victim_for(first, Host::any);
    if (victim < 0) return;
    swap_out(victim, schedule);
    grant(first);
  }
}

int32_t Admission::victim_for(int32_t sequence, Host host) const {
  // Only the less urgent give way, so the oldest of the best priority never does.
  const auto key = [&](int32_t i) {
    const SequenceView& s = view(i);
    const bool spared =
        s.times_swapped >= kSwapsUnprotected && now_ms_ - s.swapped_ms < kSwapSparedMs;
    return std::tuple(s.priority, !spared, s.tokens_max - s.cached, i);
  };
  int32_t worst = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(sequences_.size()); ++i) {
    const SequenceView& s = view(i);
    const bool later = std::tuple(s.priority, i) > std::tuple(view(sequence).priority, sequence);
    if (!later || !runs(s) || standing_[static_cast<size_t>(i)] == Standing::out) continue;
    if (host == Host::has_room && (s.pages_private < 1 || !host_has_room(s))) continue;
    if (worst < 0 || key(i) > key(worst)) worst = i;
  }
  return worst;
}

bool Admission::host_has_room(const SequenceView& s) const {
  return counts_.free.host_pages >= KvPool::pages_for(s.cached) && counts_.free.host_slots >= 1;
}

void Admission::swap_out(int32_t sequence, Schedule& schedule) {
  const SequenceView& s = view(sequence);
  if (standing(sequence) == Standing::stalled)
    --counts_.stalled;
  else if (needs_page(s))
    ++counts_.free.pages;  // granted in this pass
  counts_.free.pages += s.pages_private;
  ++counts_.free.state_slots;
  if (host_has_room(s)) {
    counts_.free.host_pages -= KvPool::pages_for(s.cached);
    --counts_.free.host_slots;
  }
  --counts_.running;
  if (is_long(s)) --counts_.long_prefills;
  if (may_grow(s)) --counts_.growing;
  if (!planted(kBugVictimStillRuns)) standing(sequence) = Standing::out;
  schedule.swapped_out.push_back(sequence);
}

void Admission::order_candidates() {
  int32_t worst_running = INT32_MIN;
  for (size_t i = 0; i < sequences_.size(); ++i)
    if (standing_[i] != Standing::out)
      worst_running = std::max(worst_running, sequences_[i].priority);
  candidates_.clear();
  for (size_t i = 0; i < sequences_.size(); ++i)
    if (standing_[i] == Standing::out && (has_seat() || sequences_[i].priority < worst_running))
      candidates_.push_back({static_cast<int32_t>(i), 0.0});
  count_turns();
  const auto key = [&](const Candidate& c) {
    const SequenceView& s = view(c.sequence);
    return std::tuple(s.priority, s.phase != Phase::swapped, c.turn, c.sequence);
  };
  if (!std::ranges::is_sorted(candidates_, {}, key)) std::ranges::sort(candidates_, {}, key);
}

/// A tenant's next one comes after those of tenants that have fewer running for their weight.
void Admission::count_turns() {
  const auto other = [&](const SequenceView& s) { return s.tenant != sequences_[0].tenant; };
  if (candidates_.empty() || std::ranges::none_of(sequences_, other)) return;
  tenants_.clear();
  for (const SequenceView& s : sequences_) tenants_.emplace_back(s.tenant, 0);
  std::ranges::sort(tenants_);
  tenants_.erase(std::ranges::unique(tenants_).begin(), tenants_.end());
  const auto count = [&](const SequenceView& s) -> int32_t& {
    const auto tenant = &std::pair<uint64_t, int32_t>::first;
    return std::ranges::lower_bound(tenants_, s.tenant, {}, tenant)->second;
  };
  for (const SequenceView& s : sequences_)
    if (s.phase != Phase::waiting) ++count(s);
  for (Candidate& c : candidates_)
    if (view(c.sequence).phase == Phase::waiting)
      c.turn = count(view(c.sequence))++ / view(c.sequence).weight;
}

void Admission::place_candidates(Schedule& schedule) {
  order_candidates();
  int passed = 0;
  for (const Candidate& c : candidates_) {
    const SequenceView& s = view(c.sequence);
    const bool waiting = s.phase == Phase::waiting;
    if (planted(kBugNeverResumes) && !waiting) continue;
    if (waiting && is_long(s) && counts_.long_prefills >= kLongPrefillsMax) continue;
    if (place_one(c.sequence, schedule)) continue;
    if (passed == 0 && make_room(c.sequence, schedule) && place_one(c.sequence, schedule)) continue;
    if (counts_.running == 0) continue;  // then one must start, whichever it is
    if (!waiting) return;                // nobody starts before those that started already
    if (passed == 0 && head_waited_long(s)) return;
    if (++passed > kSkipMax) return;
  }
  if (passed == 0 && !candidates_.empty()) head_arrival_ms_ = -1.0;
}

void Admission::count_tenants() {
  tenants_.clear();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].phase == Phase::waiting) continue;
    const auto tenant = &std::pair<uint64_t, int32_t>::first;
    const auto at = std::ranges::lower_bound(tenants_, sequences_[i].tenant, {}, tenant);
    if (at != tenants_.end() && at->first == sequences_[i].tenant)
      ++at->second;
    else
      tenants_.insert(at, {sequences_[i].tenant, 1});
  }
}

int32_t Admission::running_of(uint64_t tenant) const {
  const auto first = &std::pair<uint64_t, int32_t>::first;
  const auto at = std::ranges::lower_bound(tenants_, tenant, {}, first);
  return at != tenants_.end() && at->first == tenant ? at->second : 0;
}

int32_t Admission::newcomer() const {
  int32_t best = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(sequences_.size()); ++i) {
    const SequenceView& s = view(i);
    const bool due = s.phase == Phase::waiting && now_ms_ - s.arrival_ms >= kNewcomerMs;
    if (!due || running_of(s.tenant) > 0) continue;
    if (is_long(s) && counts_.long_prefills >= kLongPrefillsMax) continue;
    if (best < 0 || s.priority < view(best).priority) best = i;
  }
  return best;
}

/// The least urgent one; never the most urgent of its tenant, nor one that gave way twice just now.
int32_t Admission::victim_of_the_many(int32_t newcomer) const {
  const auto urgency = [&](int32_t i) { return std::pair(view(i).priority, i); };
  const auto more_urgent = [&](int32_t i) {
    for (int32_t j = 0; j < static_cast<int32_t>(sequences_.size()); ++j)
      if (standing_[static_cast<size_t>(j)] != Standing::out && view(j).tenant == view(i).tenant &&
          urgency(j) < urgency(i))
        return true;
    return false;
  };
  int32_t victim = -1;
  double most = 0.0;
  for (int32_t i = 0; i < static_cast<int32_t>(sequences_.size()); ++i) {
    const SequenceView& s = view(i);
    const int32_t running = running_of(s.tenant);
    const bool spared =
        s.times_swapped >= kSwapsUnprotected && now_ms_ - s.swapped_ms < kSwapSparedMs;
    if (!runs(s) || standing_[static_cast<size_t>(i)] == Standing::out || spared || running < 2 ||
        s.priority < view(newcomer).priority || s.pages_private < 1 || !host_has_room(s))
      continue;
    const double share = running / s.weight;
    const bool less_urgent = victim < 0 || urgency(i) > urgency(victim);
    if (share < most || (share == most && !less_urgent) || !more_urgent(i)) continue;
    most = share, victim = i;
  }
  return victim;
}

bool Admission::seat_newcomer(Schedule& schedule) {
  const auto other = [&](const SequenceView& s) { return s.tenant != sequences_[0].tenant; };
  if (has_seat() || std::ranges::none_of(sequences_, other)) return false;
  count_tenants();
  const int32_t seated = newcomer();
  if (seated < 0) return false;
  const auto choose = [&] {
    const int32_t victim = victim_of_the_many(seated);
    const auto tenant = &std::pair<uint64_t, int32_t>::first;
    if (victim >= 0) --std::ranges::lower_bound(tenants_, view(victim).tenant, {}, tenant)->second;
    return victim;
  };
  if (!swap_out_until_fits(seated, schedule, choose)) return false;
  return place_one(seated, schedule);
}

bool Admission::head_waited_long(const SequenceView& head) {
  if (head_arrival_ms_ != head.arrival_ms) {
    head_arrival_ms_ = head.arrival_ms;
    head_since_ms_ = now_ms_;
  }
  return now_ms_ - head_since_ms_ >= kEarmarkMs;
}

int32_t Admission::pages_to_start(const SequenceView& s) const {
  const int64_t tokens = s.cached < s.prompt_size ? int64_t{s.prompt_size} + limits_.reserve_tokens
                                                  : int64_t{s.cached} + kResumeTokens;
  if (planted(kBugResumesShort) && s.phase == Phase::swapped) return s.pages_private - 1;
  const int32_t back = s.phase == Phase::swapped ? s.pages_private : 0;
  const int32_t pages = std::min(whole_pages(s), KvPool::pages_for(tokens));
  return std::max(std::max(pages, back) - s.pages_held, 0);
}

bool Admission::fits(const SequenceView& s) const {
  // Beyond its own, a page for each that will ask for one; else they would swap it out again.
  const int32_t spare = counts_.running > 0 ? counts_.growing : 0;
  if (planted(kBugAdmitsWithoutRoom)) return has_seat();
  return has_seat() && pages_to_start(s) + spare <= counts_.free.pages;
}

bool Admission::place_one(int32_t sequence, Schedule& schedule) {
  const SequenceView& s = view(sequence);
  if (!fits(s)) return false;
  const int32_t pages = pages_to_start(s);
  counts_.free.pages -= pages;
  --counts_.free.state_slots;
  ++counts_.running;
  if (is_long(s)) ++counts_.long_prefills;
  if (s.pages_held + pages < whole_pages(s)) ++counts_.growing;
  standing(sequence) = ready(s);
  (s.phase == Phase::swapped ? schedule.resumed : schedule.admitted).push_back({sequence, pages});
  return true;
}

/// Swaps out running ones of strictly worse priority until `sequence` fits; nobody if it would not.
bool Admission::make_room(int32_t sequence, Schedule& schedule) {
  return swap_out_until_fits(sequence, schedule, [&] {
    const int32_t victim = victim_for(sequence, Host::has_room);
    return victim >= 0 && view(victim).priority > view(sequence).priority ? victim : -1;
  });
}

bool Admission::swap_out_until_fits(int32_t sequence, Schedule& schedule,
                                    const std::function<int32_t()>& choose) {
  const Counts before = counts_;
  undo_.clear();
  while (!fits(view(sequence))) {
    const int32_t victim = choose();
    if (victim < 0) {
      counts_ = before;
      for (; !undo_.empty(); undo_.pop_back(), schedule.swapped_out.pop_back())
        standing(schedule.swapped_out.back()) = undo_.back();
      return false;
    }
    undo_.push_back(standing(victim));
    swap_out(victim, schedule);
  }
  return true;
}

}  // namespace nibble
