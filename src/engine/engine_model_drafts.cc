// Drafts of the model's own layer: how many for which sequence, when they are tried where they do
// not seem to pay, and the round that makes those of all sequences at once.
#include <algorithm>

#include "base/planted_bug.h"
#include "engine/engine_core.h"

namespace nibble {
namespace {

/// Drafts of a text or a grammar that the model's are preferred to are tried again: with each token
/// their odds go so much of the way to those of a new sequence.
constexpr double kOddsRecovery = 0.003;
constexpr double kFoundOdds = 0.9;

}  // namespace

/// No page is taken for drafts: their entries lie in that of the newest token, which comes after
/// `unread` others.
bool EngineCore::may_draft_by_model(const Sequence& s, int32_t unread) const {
  return settings_.model_drafts > 0 && !s.drafts_ended &&
         KvPool::pages_for(s.cached + unread + 1) <= static_cast<int32_t>(s.pages.size());
}

/// True if the pass after this one, whose tokens are not read, is one to draft for: a round of the
/// model or a trial seems to pay, or what the text or a constraint had after the token before goes
/// on, which is known a token late.
bool EngineCore::drafts_follow(const Pass& pass) const {
  if (settings_.model_drafts == 0) return false;
  const int32_t decoding = count_decoding();
  std::vector<WantedDrafts> wanted;
  for (const Part& part : pass.parts) {
    if (part.sequence == nullptr) continue;
    Sequence& s = *part.sequence;
    if (s.drafts_found) return true;
    const int32_t room = draft_room(s, 1);
    if (room == 0 || !may_draft_by_model(s, 1)) continue;
    const int32_t most = std::min(room, settings_.model_drafts);
    const double odds = s.odds_of(Proposer::model);
    const auto worth = scheduler_.drafts_worth(Proposer::model, most, odds, decoding);
    wanted.push_back({&s, worth.count});
  }
  cut_steps(wanted, decoding);
  const double cost = scheduler_.draft_cost_tokens(decoding);
  return std::ranges::any_of(wanted, [&](const WantedDrafts& one) {
    return one.count > 0 || one.sequence->trials.allowed(1) >= cost;
  });
}

/// Beside a pass that began ahead, after its tokens were read: who could be drafted for without the
/// model is not followed by another such pass.
void EngineCore::find_drafts_late() {
  if (settings_.model_drafts == 0) return;
  const int32_t decoding = count_decoding();
  for (const auto& s : live_) {
    const int32_t room = draft_room(*s, 0);
    s->drafts_found = room > 0 && finds_drafts(*s, room, decoding);
  }
}

bool EngineCore::finds_drafts(Sequence& s, int32_t room, int32_t decoding) const {
  const auto pays = [&](Proposer by, const std::vector<int32_t>& tokens) {
    const auto count = static_cast<int32_t>(tokens.size());
    return scheduler_.drafts_worth(by, count, s.odds_of(by), decoding).count > 0;
  };
  if (s.request.constraint &&
      pays(Proposer::grammar, s.request.constraint->forced(static_cast<size_t>(room))))
    return true;
  return pays(Proposer::text, repeated(s, room));
}

/// Returns how many tokens the model is to draft now: none where what is drafted already saves more
/// time.
int32_t EngineCore::drafts_wanted(Sequence& s, int32_t room, int32_t decoding) {
  const int32_t most = std::min(room, settings_.model_drafts);
  const auto own =
      scheduler_.drafts_worth(Proposer::model, most, s.odds_of(Proposer::model), decoding);
  if (s.drafts.empty()) return own.count;
  const auto drafted = static_cast<int32_t>(s.drafts.size());
  const auto found = scheduler_.drafts_worth(s.proposer, drafted, s.odds_of(s.proposer), decoding);
  if (found.gain_ms >= own.gain_ms) return 0;
  s.odds_of(s.proposer) += kOddsRecovery * std::max(kFoundOdds - s.odds_of(s.proposer), 0.0);
  return own.count;
}

/// A step of a round costs about the same for one sequence as for all: the last ones are left out
/// that save less than they cost those few that would take them.
void EngineCore::cut_steps(std::vector<WantedDrafts>& wanted, int32_t decoding) const {
  std::vector<double> odds;
  for (int32_t step = settings_.model_drafts; step > 0; --step) {
    odds.clear();
    for (const auto& [s, count] : wanted)
      if (count >= step) odds.push_back(s->odds_of(Proposer::model));
    if (odds.empty()) continue;
    if (scheduler_.step_gain_ms(odds, step, decoding) >= 0.0) return;
    for (WantedDrafts& one : wanted) one.count = std::min(one.count, step - 1);
  }
}

/// Those for whom nothing pays draft one token now and then. Who is halfway there goes along when
/// there is a round, so that sequences that are alike try together.
void EngineCore::add_trials(std::vector<WantedDrafts>& wanted, int32_t decoding) const {
  const double cost = scheduler_.draft_cost_tokens(decoding);
  const auto idle = [](const WantedDrafts& one) {
    return one.count == 0 && one.sequence->drafts.empty();
  };
  bool round = false;
  for (const WantedDrafts& one : wanted) {
    if (idle(one)) ++one.sequence->trials.tokens;
    round |= one.count > 0 || (idle(one) && one.sequence->trials.allowed(0) >= cost);
  }
  if (!round) return;
  for (WantedDrafts& one : wanted) {
    DraftTrials& trials = one.sequence->trials;
    if (!idle(one) || 2.0 * trials.allowed(0) < cost) continue;
    trials.running = true;
    one.count = 1;
  }
}

/// The next trial comes soon after a draft that was right, unless not even right ones would pay.
void EngineCore::end_trial(Sequence& s, DraftWas was) {
  DraftTrials& trials = s.trials;
  if (was == DraftWas::right && scheduler_.draft_cost_tokens(scheduler_.decoding()) <= 1.0) {
    trials.share = shared_trials_ = DraftTrials::kShareMost;
  } else if (trials.running) {
    trials.share = std::max(trials.share / 2.0, DraftTrials::kShareLeast);
    shared_trials_ = std::min(shared_trials_, trials.share);
  }
  trials.tokens = 0;
}

void EngineCore::draft_by_model(std::vector<WantedDrafts>& wanted, int32_t decoding) {
  std::ranges::stable_sort(wanted, std::greater(), &WantedDrafts::count);
  DraftBatch batch;
  for (const auto& [s, count] : wanted) append_draft(batch, *s, count);
  const double begin_ms = now_ms();
  const DraftOutput output = backend_.draft(batch);
  const auto most = static_cast<size_t>(wanted.front().count);
  for (size_t i = 0; i < wanted.size(); ++i)
    take_model_drafts(*wanted[i].sequence,
                      output.tokens.subspan(i * most, static_cast<size_t>(wanted[i].count)));
  drafting_ms_ = now_ms() - begin_ms;
  scheduler_.observe_drafts(decoding, wanted.front().count, drafting_ms_);
}

void EngineCore::append_draft(DraftBatch& batch, const Sequence& s, int32_t count) {
  const int32_t pages = KvPool::pages_for(s.cached + count);
  const int32_t beyond = planted(kBugDraftsOnePlaceLate) && s.cached % kPageTokens < 32 ? 1 : 0;
  batch.sequences.push_back({.kv_begin = s.cached + beyond,
                             .page_begin = static_cast<int32_t>(batch.pages.size()),
                             .page_count = pages,
                             .state = s.state_slot,
                             .replay = planted(kBugDraftsFromStaleHidden) ? 0 : s.replay,
                             .token = s.generated.back(),
                             .position_before = s.position(s.cached - 1),
                             .position = s.position(s.cached)[0],
                             .count = count});
  batch.pages.insert(batch.pages.end(), s.pages.begin(), s.pages.begin() + pages);
}

/// A draft that is no number ends those of its sequence, and nothing else. One that the constraint
/// refuses is wrong, where those before it are right.
void EngineCore::take_model_drafts(Sequence& s, std::span<const int32_t> tokens) {
  const auto end = std::ranges::find(tokens, -1);
  if (end != tokens.end()) {
    s.drafts_ended = true;
    ++counters_.drafts_ended;
  }
  const auto drafted = before_stop(s, {tokens.begin(), end});
  const auto fit = fitting(s, drafted);
  const bool refused = fit.size() < drafted.size();
  if (refused && fit.empty()) learn(s, Proposer::model, DraftWas::wrong);
  if (fit.empty()) end_trial(s, DraftWas::wrong);
  take_drafts(s, Proposer::model, fit);
  s.draft_refused = refused && s.proposer == Proposer::model && !s.drafts.empty();
}

}  // namespace nibble
