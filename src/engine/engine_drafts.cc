// Drafts: which tokens are proposed for which sequence, by its grammar, by a Drafter from the text
// or by the model's own layer (engine_model_drafts.cc). engine_tokens.cc has what becomes of them.
#include <algorithm>

#include "base/planted_bug.h"
#include "engine/engine_core.h"
#include "engine/sample/constraint_chain.h"

namespace nibble {

/// The most tokens that may be drafted for a sequence, after `unread` tokens that are being chosen:
/// none unless it feeds its newest token next. Rows that complete a page are never drafted: its
/// state is wanted, and only committed rows write theirs.
int32_t EngineCore::draft_room(const Sequence& s, int32_t unread) const {
  if (settings_.pools.replay_rows == 0 || s.phase != Phase::decode) return 0;
  const int32_t known = s.prompt_size() + s.generated_size();
  if (s.cached != known - 1) return 0;  // it computes its cache again
  if (s.request.constraint && drafts_of(*s.request.constraint) == SlowConstraint::Drafts::alone)
    return 0;
  return std::max(std::min({settings_.pools.replay_rows - 1,
                            kPageTokens - 2 - (s.cached + unread) % kPageTokens,
                            s.request.max_tokens - s.generated_size() - unread - 1}),
                  0);
}

/// A sequence is drafted for once after each of its tokens: those of an earlier step stay until it
/// has run.
bool EngineCore::drafts_due(const Sequence& s, int32_t room) {
  return room > 0 && s.drafted_after != s.generated_size();
}

void EngineCore::forget_drafts(Sequence& s) {
  s.drafts.clear();
  s.drafts_found = s.draft_refused = s.trials.running = false;
  s.drafted_after = -1;
}

int32_t EngineCore::count_decoding() const {
  return static_cast<int32_t>(
      std::ranges::count_if(live_, [](const auto& s) { return s->phase == Phase::decode; }));
}

void EngineCore::draft() {
  drafting_ms_ = 0.0;
  if (!settings_.drafter && settings_.model_drafts == 0) return;
  std::vector<int32_t> rooms;
  for (const auto& s : live_) {  // all are begun before one is waited for
    rooms.push_back(draft_room(*s, 0));
    if (s->request.constraint && drafts_due(*s, rooms.back()))
      find_forced_of(*s->request.constraint, static_cast<size_t>(rooms.back()));
  }
  const int32_t decoding = count_decoding();
  std::vector<WantedDrafts> wanted;
  for (size_t i = 0; i < live_.size(); ++i) {
    Sequence& s = *live_[i];
    const bool due = drafts_due(s, rooms[i]);
    if (!due && rooms[i] > 0) continue;
    forget_drafts(s);
    if (!due || !finds_forced(s, rooms[i])) continue;
    s.drafted_after = s.generated_size();
    draft_from_grammar(s, rooms[i]);
    draft_from_text(s, rooms[i]);
    if (may_draft_by_model(s, 0)) wanted.push_back({&s, drafts_wanted(s, rooms[i], decoding)});
  }
  cut_steps(wanted, decoding);
  add_trials(wanted, decoding);
  std::erase_if(wanted, [](const WantedDrafts& one) { return one.count == 0; });
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
  } else {
    tokens = repeated(s, room);
  }
  CHECK(std::ssize(tokens) <= room, "drafts ", tokens.size(), " of at most ", room);
  take_drafts(s, Proposer::text, fitting(s, before_stop(s, tokens)));
}

/// Returns at most `room` tokens that came after an earlier place where the text ended as it does.
std::vector<int32_t> EngineCore::repeated(Sequence& s, int32_t room) const {
  if (settings_.repeat_match == 0) return {};
  if (!s.repeats) s.repeats.emplace(settings_.repeat_match);
  s.repeats->follow(s.request.prompt, s.generated);
  return s.repeats->next(s.request.prompt, s.generated, room);
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
