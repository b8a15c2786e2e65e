// Passes that begin before the tokens of the pass before are read. While all that runs decodes, the
// next pass needs nothing of these tokens but to have them as inputs, and the backend carries them
// over. The host reads them while the next pass computes, so histories, masks and draws of its
// choices are as complete as ever: only its layers are ahead, its head is begun afterwards.
//
// A sequence that is found ended has a row in the pass that computes. The row is void: nobody takes
// its token, and what it wrote lies behind the tokens that the sequence counts, in pages and a slot
// that go back to their pools; whatever the next owner does with them comes later on the device.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/planted_bug.h"
#include "engine/engine_core.h"
#include "engine/sample/constraint_chain.h"
#include "model/forward.h"

namespace nibble {

namespace {

/// Passes that may begin, while sequences wait, before the scheduler is asked about them again.
constexpr int32_t kPassesUnasked = 8;

}  // namespace

/// True if its tokens may be read late: each row is the newest token of a sequence that decodes,
/// and nobody looks in that token for drafts.
bool EngineCore::may_stay_under_way(const Pass& pass) const {
  if (settings_.drafter || media_.busy()) return false;
  const bool decodes = std::ranges::all_of(pass.parts, [&](const Part& part) {
    const Sequence* const s = part.sequence;
    return part.rows == 1 && part.logit_rows == 1 && part.snapshots.empty() &&
           (s == nullptr || (s->phase == Phase::decode && !may_be_forced(*s)));
  });
  return decodes && nobody_else_can_run(pass);
}

/// A grammar forces tokens every now and then. To draft them a token late would cost more than
/// passes that do not overlap.
bool EngineCore::may_be_forced(const Sequence& s) const {
  return settings_.model_drafts > 0 && s.request.constraint && is_slow(*s.request.constraint);
}

/// Those that wait for memory or a seat get none until one of these has ended.
bool EngineCore::nobody_else_can_run(const Pass& pass) const {
  const auto running = static_cast<size_t>(
      std::ranges::count_if(pass.parts, [](const Part& part) { return part.sequence != nullptr; }));
  if (running == live_.size()) return true;
  const auto waits = std::ranges::count_if(live_, [](const auto& s) {
    return s->phase == Phase::waiting || s->phase == Phase::swapped;
  });
  return running == pass.parts.size() && running + static_cast<size_t>(waits) == live_.size() &&
         scheduled_ == submitted_ && pass.ahead < kPassesUnasked;
}

bool EngineCore::step_ahead(double begin_ms) {
  const Pass pass = *std::exchange(under_way_, {});
  std::optional<Pass> next = pass_after(pass, begin_ms);
  Residual h;
  if (next) h = run_layers(backend_, config_, next->batch);  // behind the pass under way
  const HeadOutput output = backend_.end_head();             // waits
  if (next && planted(kBugChoosesBeforeTokens)) make_choices(*next);
  under_way_ = std::move(next);  // so that it learns who ends
  if (!take_tokens(pass, output, begin_ms)) return false;
  drop_finished();
  if (views_.size() > live_.size()) show_live();
  if (!under_way_) return true;
  find_drafts_late();
  Pass begun = *std::exchange(under_way_, {});
  begun.begin_ms = now_ms();
  ++counters_.passes_ahead;
  await_masks(begun, begin_ms);
  const bool all_void =
      std::ranges::all_of(begun.parts, [](const Part& part) { return part.sequence == nullptr; });
  if (all_void) {
    counters_.rows_in_vain += std::ssize(begun.parts);
    return true;
  }
  if (!planted(kBugChoosesBeforeTokens)) make_choices(begun);
  const bool alive = finish_pass(std::move(begun), h, begin_ms);
  if (alive) drop_finished();
  return alive;
}

/// Predictions see no sequence that has ended, though the scheduler is not asked.
void EngineCore::show_live() {
  views_.clear();
  for (const auto& s : live_) views_.push_back(view_of(*s));
}

/// The pass after one whose tokens are not known: one more row of each sequence that these tokens
/// do not end by their number. Nothing if anybody else may run or may be drafted for, or if a row
/// has no page.
std::optional<EngineCore::Pass> EngineCore::pass_after(const Pass& pass, double now_ms) {
  if (!to_preempt_.empty() || !nobody_else_can_run(pass) || drafts_follow(pass))
    return std::nullopt;
  Pass next;
  next.ahead = pass.ahead + 1;
  for (size_t row = 0; row < pass.parts.size(); ++row) {
    Sequence* const s = pass.parts[row].sequence;
    if (s == nullptr || s->generated_size() + 1 == s->request.max_tokens) continue;
    if (!is_followed(*s)) return std::nullopt;
    if (memory_.grow(*s, s->cached + 2, now_ms) == Attempt::no_room) return std::nullopt;
    append_carried(next, *s, planted(kBugCarriesByPlace) ? next.parts.size() : row);
  }
  const bool others_wait = live_.size() > pass.parts.size();  // for an end, which this would be
  if (next.parts.empty() || (others_wait && next.parts.size() < pass.parts.size()))
    return std::nullopt;
  set_positions(next);
  for (const Part& part : next.parts) {
    forget_drafts(*part.sequence);
    ++part.sequence->trials.tokens;
  }
  return next;
}

/// False: its masks take long, or one came late, or fast mode keeps the state after its next row.
bool EngineCore::is_followed(const Sequence& s) const {
  if (s.mask_was_late) return false;
  if (settings_.cache == CacheMode::fast && (s.cached + 2) % kPageTokens == 0) return false;
  return !s.request.constraint || drafts_of(*s.request.constraint) != SlowConstraint::Drafts::alone;
}

/// One row more than those under way. Its token is the one that is chosen for logit row `row`.
void EngineCore::append_carried(Pass& pass, Sequence& s, size_t row) {
  Batch& batch = pass.batch;
  const int32_t begin = s.cached + 1;
  append_sequence(batch, s, begin, begin + 1).arithmetic = Arithmetic::generation;
  batch.logit_rows.push_back(batch.rows());
  batch.tokens.push_back(0);
  batch.carried.push_back(static_cast<int32_t>(row));
  ++pass.shape.decode_rows;
  pass.parts.push_back({.sequence = &s, .begin = begin, .rows = 1, .logit_rows = 1});
}

/// Waits for the masks of a pass whose layers compute. Without its mask a sequence begins again,
/// with the same tokens, since its state has gone on; that is dear, so no pass of it begins ahead
/// from then on.
void EngineCore::await_masks(Pass& pass, double now_ms) {
  const std::chrono::duration<double, std::milli> patience(settings_.mask_patience_ms);
  const auto due = std::chrono::steady_clock::now() + patience;
  for (const Part& part : pass.parts)  // all are begun before one is waited for
    if (part.sequence != nullptr) ask_for_masks(*part.sequence);
  for (Part& part : pass.parts) {
    if (part.sequence == nullptr) continue;
    const auto ask = [&] { return ask_for_masks(*part.sequence); };
    SlowConstraint::Next next = ask_patiently(ask);
    while (next != SlowConstraint::Next::ready && std::chrono::steady_clock::now() < due) {
      std::this_thread::sleep_for(kMaskWait);  // a core that those who make it may need
      next = ask();
    }
    if (next == SlowConstraint::Next::ready) continue;
    part.sequence->mask_was_late = true;
    if (!planted(kBugLateMaskKeepsState)) restart(*part.sequence, now_ms);
    part.sequence = nullptr;
    ++counters_.masks_late;
  }
}

}  // namespace nibble
