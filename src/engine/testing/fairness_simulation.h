// A serving loop without a model: the scheduler drives pools that are only counts, and passes take
// what a cost formula says. For tests and bench/scheduler. CHECKs that every schedule can be
// carried out.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "engine/cache/kv_pool.h"
#include "engine/schedule/scheduler.h"

namespace nibble {

struct SimulatedRequest {
  int32_t prompt = 1;
  int32_t output = 1;      // tokens it will give
  int32_t max_tokens = 0;  // that it asked for; 0: output
  uint64_t tenant = 0;
  int32_t priority = 0;
  int32_t client = -1;
};

struct SimulatedSequence {
  SimulatedRequest request;
  SequenceView view;
  int32_t computed_max = 0;  // most tokens that were ever in its cache
  double first_token_ms = -1.0;
  double last_token_ms = -1.0;
};

struct SimulationCounts {
  int64_t passes = 0;
  int64_t swaps_out = 0;
  int64_t resumes = 0;
  int64_t restarts = 0;
  int64_t stalls = 0;  // a decoding sequence had no row in a pass
};

class SimulatedEngine {
 public:
  /// `true_ms` is what a pass takes; the scheduler is told after each.
  SimulatedEngine(Scheduler& scheduler, const FreeResources& pools,
                  std::function<double(const PassShape&)> true_ms)
      : scheduler_(scheduler), free_(pools), pools_(pools), true_ms_(std::move(true_ms)) {}

  void submit(const SimulatedRequest& request) {
    CHECK(request.prompt >= 1 && request.output >= 1, "prompt ", request.prompt);
    const int32_t longest = std::max(request.max_tokens, request.output);
    live_.push_back({.request = request,
                     .view = {.prompt_size = request.prompt,
                              .tokens_max = request.prompt + longest - 1,
                              .tenant = request.tenant,
                              .priority = request.priority,
                              .arrival_ms = now_ms_}});
  }

  /// One pass. `token`: a token came out, the gap to the one before (first: since arrival).
  /// `finished`: the last one did. False: there was nothing to do, or nobody could advance.
  bool step(const std::function<void(const SimulatedSequence&, double gap_ms)>& token,
            const std::function<void(const SimulatedSequence&)>& finished) {
    views_.clear();
    for (const SimulatedSequence& s : live_) views_.push_back(s.view);
    const Schedule& schedule = scheduler_.next(views_, free_, now_ms_);
    carry_out(schedule);
    if (schedule.rows.empty()) return false;
    const PassShape shape = Scheduler::shape(schedule, views_);
    const double ms = true_ms_(shape);
    scheduler_.observe(shape, ms);
    now_ms_ += ms;
    ++counts_.passes;
    advance(schedule, token);
    for (size_t i = live_.size(); i-- > 0;)
      if (live_[i].view.cached == live_[i].request.prompt + live_[i].request.output - 1 &&
          live_[i].view.phase == Phase::decode) {
        free_.pages += live_[i].view.pages_held;
        ++free_.state_slots;
        const SimulatedSequence done = live_[i];
        live_.erase(live_.begin() + static_cast<ptrdiff_t>(i));
        finished(done);
      }
    return true;
  }

  double now_ms() const { return now_ms_; }
  void wait_until(double ms) { now_ms_ = std::max(now_ms_, ms); }
  const std::vector<SimulatedSequence>& live() const { return live_; }
  const SimulationCounts& counts() const { return counts_; }

 private:
  SequenceView& view(int32_t index) { return live_[static_cast<size_t>(index)].view; }

  void take_pages(SequenceView& s, int32_t pages) {
    CHECK(pages >= 0 && pages <= free_.pages, "pages ", pages, " of ", free_.pages);
    free_.pages -= pages;
    s.pages_held += pages;
    s.pages_private = s.pages_held;
  }

  void carry_out(const Schedule& schedule) {
    for (const int32_t index : schedule.swapped_out) swap_out(view(index));
    for (const Placement& place : schedule.resumed) {
      SequenceView& s = view(place.sequence);
      CHECK(s.phase == Phase::swapped && place.pages >= s.pages_private, "resumed with ",
            place.pages, " pages");
      free_.host_pages += s.pages_private;
      ++free_.host_slots;
      start(s, place.pages);
      ++counts_.resumes;
    }
    for (const Placement& place : schedule.admitted) {
      SequenceView& s = view(place.sequence);
      CHECK(s.phase == Phase::waiting, "a running sequence is admitted");
      start(s, place.pages);
    }
    int32_t running = 0;
    for (const SimulatedSequence& s : live_)
      running += s.view.phase == Phase::prefill || s.view.phase == Phase::decode ? 1 : 0;
    CHECK(running <= scheduler_.limits().sequences_max, running, " sequences run");
  }

  void start(SequenceView& s, int32_t pages) {
    take_pages(s, pages);
    --free_.state_slots;
    CHECK(free_.state_slots >= 0, "no state slot");
    s.phase = s.cached < s.prompt_size ? Phase::prefill : Phase::decode;
  }

  void swap_out(SequenceView& s) {
    CHECK(s.phase == Phase::prefill || s.phase == Phase::decode, "swapped out twice");
    const int32_t used = KvPool::pages_for(s.cached);
    free_.pages += s.pages_held;
    ++free_.state_slots;
    s.pages_held = 0;
    ++s.times_swapped;
    s.swapped_ms = now_ms_;
    const bool room = free_.host_pages >= used && free_.host_slots >= 1;
    s.pages_private = room ? used : 0;
    s.phase = room ? Phase::swapped : Phase::waiting;
    if (!room) s.cached = 0;
    free_.host_pages -= room ? used : 0;
    free_.host_slots -= room ? 1 : 0;
    ++(room ? counts_.swaps_out : counts_.restarts);
  }

  void advance(const Schedule& schedule,
               const std::function<void(const SimulatedSequence&, double)>& token) {
    int32_t rows = 0;
    int64_t decoding = 0;
    for (const SimulatedSequence& s : live_) decoding += s.view.phase == Phase::decode ? 1 : 0;
    for (const ScheduledRows& piece : schedule.rows) {
      SequenceView& s = view(piece.sequence);
      const bool decodes = s.phase == Phase::decode;
      decoding -= decodes ? 1 : 0;
      CHECK(piece.rows >= 1 && (decodes || s.phase == Phase::prefill), "rows for phase ",
            static_cast<int>(s.phase));
      CHECK(decodes == (piece.arithmetic == Arithmetic::generation), "arithmetic");
      if (s.pages_held * kPageTokens <= s.cached) take_pages(s, 1);
      s.cached += piece.rows;
      rows += piece.rows;
      CHECK(s.cached <= s.pages_held * kPageTokens, s.cached, " tokens in ", s.pages_held,
            " pages");
      if (decodes) CHECK(piece.rows == 1 && s.cached <= s.tokens_max, "decode rows ", piece.rows);
      if (!decodes)
        CHECK(s.cached == s.prompt_size || (s.cached < s.prompt_size && s.cached % 64 == 0),
              "a prompt of ", s.prompt_size, " is cut at ", s.cached);
      if (s.cached >= s.prompt_size) give_token(live_[static_cast<size_t>(piece.sequence)], token);
    }
    counts_.stalls += decoding;
    CHECK(rows <= scheduler_.limits().rows_max, rows, " rows in a pass");
  }

  void give_token(SimulatedSequence& s,
                  const std::function<void(const SimulatedSequence&, double)>& token) {
    s.view.phase = Phase::decode;
    if (s.view.cached <= s.computed_max) return;  // computed before it was started anew
    s.computed_max = s.view.cached;
    const double since = s.first_token_ms < 0.0 ? s.view.arrival_ms : s.last_token_ms;
    if (s.first_token_ms < 0.0) s.first_token_ms = now_ms_;
    s.last_token_ms = now_ms_;
    token(s, now_ms_ - since);
  }

  Scheduler& scheduler_;
  FreeResources free_;
  FreeResources pools_;
  std::function<double(const PassShape&)> true_ms_;
  double now_ms_ = 0.0;
  std::vector<SimulatedSequence> live_;  // in order of arrival
  std::vector<SequenceView> views_;
  SimulationCounts counts_;
};

}  // namespace nibble
