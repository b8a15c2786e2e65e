// Drafts: how many tokens are proposed for which sequence, by its grammar, by a Drafter from the
// text or by the model's own layer for all sequences at once. What becomes of them:
// engine_tokens.cc.
#include <algorithm>

#include "engine/engine_core.h"
#include "engine/planted_bug.h"
#include "engine/sample/constraint_chain.h"

namespace nibble {

namespace {

/// A sequence whose drafts do not pay is tried again: with each token that is not drafted its odds
/// go so much of the way to even ones.
constexpr double kOddsRecovery = 0.003;
constexpr double kEvenOdds = 0.5;
constexpr double kFoundOdds = 0.9;  // for those of a text or a grammar, beside the model's

}  // namespace

/// The most tokens that may be drafted for a sequence: none unless it feeds its newest token next.
/// Rows that complete a page are never drafted: its state is wanted, and only committed rows write
/// theirs.
int32_t EngineCore::draft_room(const Sequence& s) const {
  if (settings_.pools.replay_rows == 0 || s.phase != Phase::decode) return 0;
  const int32_t known = s.prompt_size() + s.generated_size();
  if (s.cached != known - 1) return 0;  // it computes its cache again
  if (s.request.constraint && drafts_of(*s.request.constraint) == SlowConstraint::Drafts::alone)
    return 0;
  return std::max(
      std::min({settings_.pools.replay_rows - 1, kPageTokens - 2 - s.cached % kPageTokens,
                s.request.max_tokens - s.generated_size() - 1}),
      0);
}

/// A sequence is drafted for once after each of its tokens: those of an earlier step stay until it
/// has run.
bool EngineCore::drafts_due(const Sequence& s, int32_t room) {
  return room > 0 && s.drafted_after != s.generated_size();
}

void EngineCore::draft() {
  drafting_ms_ = 0.0;
  if (!settings_.drafter && settings_.model_drafts == 0) return;
  std::vector<int32_t> rooms;
  for (const auto& s : live_) {  // all are begun before one is waited for
    rooms.push_back(draft_room(*s));
    if (s->request.constraint && drafts_due(*s, rooms.back()))
      find_forced_of(*s->request.constraint, static_cast<size_t>(rooms.back()));
  }
  const auto decoding = static_cast<int32_t>(
      std::ranges::count_if(live_, [](const auto& s) { return s->phase == Phase::decode; }));
  std::vector<WantedDrafts> wanted;
  for (size_t i = 0; i < live_.size(); ++i) {
    Sequence& s = *live_[i];
    const bool due = drafts_due(s, rooms[i]);
    if (!due && rooms[i] > 0) continue;
    s.drafts.clear();
    s.draft_refused = false;
    s.drafted_after = -1;
    if (!due || !finds_forced(s, rooms[i])) continue;
    s.drafted_after = s.generated_size();
    draft_from_grammar(s, rooms[i]);
    draft_from_text(s, rooms[i]);
    if (const int32_t count = drafts_wanted(s, rooms[i], decoding); count > 0)
      wanted.push_back({&s, count});
  }
  if (!wanted.empty()) draft_by_model(wanted, decoding);
}

/// Without them it will sit out the pass, since its masks are made by the same threads.
bool EngineCore::finds_forced(const Sequence& s, int32_t room) {
  if (!s.request.constraint) return true;
  const auto most = static_cast<size_t>(room);
  return ask_patiently([&] { return find_forced_of(*s.request.constraint, most); }) ==
         SlowConstraint::Next::ready;
}

void EngineCore::draft_from_grammar(Sequence& s, int32_t room) {
  if (!s.request.constraint) return;
  std::vector<int32_t> tokens = s.request.constraint->forced(static_cast<size_t>(room));
  if (planted(kBugForcedOnePlaceLate) && !tokens.empty()) tokens.erase(tokens.begin());
  take_drafts(s, Proposer::grammar, before_stop(s, tokens));
}

void EngineCore::draft_from_text(Sequence& s, int32_t room) {
  std::vector<int32_t> tokens;
  if (settings_.drafter) {
    settings_.drafter->propose(s, room, tokens);
  } else if (settings_.repeat_match > 0) {
    if (!s.repeats) s.repeats.emplace(settings_.repeat_match);
    s.repeats->follow(s.request.prompt, s.generated);
    tokens = s.repeats->next(s.request.prompt, s.generated, room);
  }
  CHECK(std::ssize(tokens) <= room, "drafts ", tokens.size(), " of at most ", room);
  take_drafts(s, Proposer::text, fitting(s, before_stop(s, tokens)));
}

/// Returns how many tokens the model is to draft now: none where what is drafted already saves more
/// time. No page is taken for drafts: their entries lie in that of the newest token.
int32_t EngineCore::drafts_wanted(Sequence& s, int32_t room, int32_t decoding) {
  if (settings_.model_drafts == 0 || s.drafts_ended) return 0;
  if (KvPool::pages_for(s.cached + 1) > static_cast<int32_t>(s.pages.size())) return 0;
  const int32_t most = std::min(room, settings_.model_drafts);
  const auto recover = [&](Proposer by, double odds) {
    s.odds_of(by) += kOddsRecovery * std::max(odds - s.odds_of(by), 0.0);
  };
  const auto own =
      scheduler_.drafts_worth(Proposer::model, most, s.odds_of(Proposer::model), decoding);
  if (own.count == 0) recover(Proposer::model, kEvenOdds);
  if (s.drafts.empty()) return own.count;
  const auto drafted = static_cast<int32_t>(s.drafts.size());
  const auto found = scheduler_.drafts_worth(s.proposer, drafted, s.odds_of(s.proposer), decoding);
  if (found.gain_ms >= own.gain_ms) return 0;
  recover(s.proposer, kFoundOdds);
  return own.count;
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
  scheduler_.draft_costs().observe_drafts(decoding, wanted.front().count, drafting_ms_);
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
  take_drafts(s, Proposer::model, fit);
  s.draft_refused = refused && s.proposer == Proposer::model && !s.drafts.empty();
}

/// Others take the place of forced tokens if they are more and agree with all but the last of them,
/// which may have been a part of a longer token. No drafts take the place of none.
void EngineCore::take_drafts(Sequence& s, Proposer by, std::span<const int32_t> fit) {
  if (fit.empty()) return;
  if (s.proposer == Proposer::grammar && !s.drafts.empty()) {
    const auto sure = std::span(s.drafts).first(s.drafts.size() - 1);
    if (fit.size() <= s.drafts.size() || !std::ranges::equal(sure, fit.first(sure.size()))) return;
  }
  s.drafts.assign(fit.begin(), fit.end());
  s.proposer = by;
}

/// A token that ends the sequence needs no row after it, so none is drafted.
std::span<const int32_t> EngineCore::before_stop(const Sequence& s,
                                                 std::span<const int32_t> tokens) {
  return {tokens.begin(), std::ranges::find_first_of(tokens, s.request.stop_ids)};
}

/// The first drafts that the constraint lets follow.
std::span<const int32_t> EngineCore::fitting(const Sequence& s, std::span<const int32_t> tokens) {
  if (!s.request.constraint || planted(kBugKeepsRefusedDrafts)) return tokens;
  const size_t count = s.request.constraint->fitting(tokens);
  counters_.drafts_refused += static_cast<int64_t>(tokens.size() - count);
  return tokens.first(count);
}

EngineCore::Drafts EngineCore::drafts(uint64_t id) const {
  for (const auto& s : live_)
    if (s->request.id == id) return {s->drafted_after, s->drafts, s->proposer};
  CHECK(false, "sequence ", id, " is not live");
}

}  // namespace nibble
