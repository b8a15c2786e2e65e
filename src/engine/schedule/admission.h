// Admission: who may hold device memory in the next pass: growth of the running sequences, swapping
// out, coming back, and starting, all or nothing. Counts pages and slots; moves nothing.
// Why somebody always advances is proved in docs/scheduling.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/scheduling.h"

namespace nibble {

/// The permission of a sequence in this pass.
enum class Standing : uint8_t {
  out,      // waiting, swapped, or swapped out now
  stalled,  // keeps what it has; its next row has no page
  decode,
  prefill,
};

inline constexpr int32_t kLongPrefillsMax = 2;  // at once: their pages pile up meanwhile

class Admission {
 public:
  explicit Admission(const SchedulerLimits& limits) : limits_(limits) {}

  /// Fills all of `schedule` but its rows. The standing of each view, valid until the next call.
  std::span<const Standing> place(std::span<const SequenceView> sequences,
                                  const FreeResources& free, double now_ms, Schedule& schedule);

 private:
  struct Candidate {
    int32_t sequence;
    double turn;  // how many of its tenant run or stand before it, by its weight; 0: swapped
  };

  void count_running();
  void grow(Schedule& schedule);
  void grant(int32_t sequence);
  void place_candidates(Schedule& schedule);
  void order_candidates();
  void count_turns();
  bool place_one(int32_t sequence, Schedule& schedule);
  /// Device pages to allocate for it.
  int32_t pages_to_start(const SequenceView& s) const;
  bool fits(const SequenceView& s) const;
  bool is_long(const SequenceView& s) const;
  bool make_room(int32_t sequence, Schedule& schedule);
  /// Swaps out whom `choose` names, one after the other, until `sequence` fits. If it names nobody
  /// (-1) before, all are taken back.
  bool swap_out_until_fits(int32_t sequence, Schedule& schedule,
                           const std::function<int32_t()>& choose);
  bool head_waited_long(const SequenceView& head);
  /// Seats one waiting sequence of a tenant of whom nobody runs or is swapped out, in place of
  /// later ones of the tenant that has most running. False: nobody was swapped out.
  bool seat_newcomer(Schedule& schedule);
  int32_t newcomer() const;
  /// The one to give way to it; -1: none.
  int32_t victim_of_the_many(int32_t newcomer) const;
  void count_tenants();
  int32_t running_of(uint64_t tenant) const;

  const SequenceView& view(int32_t sequence) const {
    return sequences_[static_cast<size_t>(sequence)];
  }
  Standing& standing(int32_t sequence) { return standing_[static_cast<size_t>(sequence)]; }
  bool has_seat() const;
  bool host_has_room(const SequenceView& s) const;
  void swap_out(int32_t sequence, Schedule& schedule);
  enum class Host : uint8_t { has_room, any };
  /// The one to give way among running ones less urgent than `sequence`; -1: none.
  int32_t victim_for(int32_t sequence, Host host) const;
  void unblock(Schedule& schedule);

  SchedulerLimits limits_;
  // The first blocked one in the queue, told by its arrival, and since when.
  double head_arrival_ms_ = -1.0;
  double head_since_ms_ = 0.0;

  // The state of the present call.
  struct Counts {
    FreeResources free;
    int32_t running = 0;
    int32_t long_prefills = 0;
    int32_t growing = 0;  // running ones that may ask for pages
    int32_t stalled = 0;
  };
  std::span<const SequenceView> sequences_;
  Counts counts_;
  double now_ms_ = 0.0;
  std::vector<Standing> standing_;
  std::vector<Standing> undo_;
  std::vector<Candidate> candidates_;
  std::vector<std::pair<uint64_t, int32_t>> tenants_;  // running, by tenant, ascending
};

}  // namespace nibble
