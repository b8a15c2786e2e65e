// Drafts: how many tokens are proposed for which sequence, by a Drafter from the text or by the
// model's own layer for all sequences at once. What becomes of them: engine_tokens.cc.
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

void EngineCore::draft() {
  drafting_ms_ = 0.0;
  if (settings_.drafter) {
    for (const auto& s : live_) draft_from_text(*s);
  } else if (settings_.model_drafts > 0) {
    draft_by_model();
  }
}

void EngineCore::draft_from_text(Sequence& s) {
  s.drafts.clear();
  const int32_t room = draft_room(s);
  if (room > 0) settings_.drafter->propose(s, room, s.drafts);
  CHECK(static_cast<int32_t>(s.drafts.size()) <= room, "drafts ", s.drafts.size(), " of at most ",
        room);
}

/// Returns how many tokens the model is to draft now. Those of an earlier step stay until their
/// sequence has run. No page is taken for drafts: their entries lie in that of the newest token.
int32_t EngineCore::drafts_wanted(Sequence& s, int32_t decoding) {
  const int32_t room = draft_room(s);
  if (room > 0 && s.drafted_after == s.generated_size()) return 0;
  s.drafts.clear();
  s.drafted_after = room > 0 ? s.generated_size() : -1;
  if (room == 0 || s.drafts_ended) return 0;
  if (KvPool::pages_for(s.cached + 1) > static_cast<int32_t>(s.pages.size())) return 0;
  const int32_t worth =
      scheduler_.drafts_worth(std::min(room, settings_.model_drafts), s.draft_odds, decoding);
  if (worth == 0) s.draft_odds += kOddsRecovery * std::max(kEvenOdds - s.draft_odds, 0.0);
  return worth;
}

void EngineCore::draft_by_model() {
  const auto decoding = static_cast<int32_t>(
      std::ranges::count_if(live_, [](const auto& s) { return s->phase == Phase::decode; }));
  struct Wanted {
    Sequence* sequence;
    int32_t count;
  };
  std::vector<Wanted> wanted;
  for (const auto& s : live_)
    if (const int32_t count = drafts_wanted(*s, decoding); count > 0)
      wanted.push_back({s.get(), count});
  if (wanted.empty()) return;
  std::ranges::stable_sort(wanted, std::greater(), &Wanted::count);
  DraftBatch batch;
  for (const auto& [s, count] : wanted) append_draft(batch, *s, count);
  const double begin_ms = now_ms();
  const DraftOutput output = backend_.draft(batch);
  const auto most = static_cast<size_t>(wanted.front().count);
  for (size_t i = 0; i < wanted.size(); ++i)
    take_drafts(*wanted[i].sequence,
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

/// A draft that is no number ends those of its sequence, and nothing else.
void EngineCore::take_drafts(Sequence& s, std::span<const int32_t> tokens) {
  const auto end = std::ranges::find(tokens, -1);
  s.drafts.assign(tokens.begin(), end);
  if (end == tokens.end()) return;
  s.drafts_ended = true;
  ++counters_.drafts_ended;
}

EngineCore::Drafts EngineCore::drafts(uint64_t id) const {
  for (const auto& s : live_)
    if (s->request.id == id) return {s->drafted_after, s->drafts};
  CHECK(false, "sequence ", id, " is not live");
}

}  // namespace nibble
