// Makes the batch of a pass from what the scheduler chose: tokens, positions, pages, snapshots.
#include <algorithm>

#include "base/planted_bug.h"
#include "engine/engine_core.h"

namespace nibble {

EngineCore::Pass EngineCore::build_pass(const Schedule& schedule, double now_ms) {
  Pass pass;
  pass.begin_ms = now_ms + drafting_ms_;
  for (const ScheduledRows& piece : schedule.rows)  // all are begun before one is waited for
    ask_for_masks(*candidates_[static_cast<size_t>(piece.sequence)]);
  for (const ScheduledRows& piece : schedule.rows) {
    Sequence& s = *candidates_[static_cast<size_t>(piece.sequence)];
    if (s.phase != Phase::prefill && s.phase != Phase::decode) continue;
    if (waits_for_mask(s)) continue;  // it was admitted just now
    if (memory_.grow(s, s.cached + piece.rows, now_ms) == Attempt::no_room) {
      ++counters_.sat_out;
      continue;
    }
    append(pass, s, piece, now_ms);
  }
  set_positions(pass);
  return pass;
}

void EngineCore::append(Pass& pass, Sequence& s, const ScheduledRows& piece, double now_ms) {
  // The scheduler saw an estimate of what the cache holds: the chunk is cut to what is left.
  int32_t end = s.cached + piece.rows;
  if (s.phase == Phase::prefill) end = std::min(end, media_.ready(s, s.cached));
  if (end < s.prompt_size()) end = end / kPageTokens * kPageTokens;
  const int32_t rows = end - s.cached;
  if (rows <= 0) return;
  const bool drafted = s.phase == Phase::decode && rows > 1;
  Batch& batch = pass.batch;
  BatchSequence& place = append_sequence(batch, s, s.cached, end);
  place.arithmetic = piece.arithmetic;
  place.replay = planted(kBugForgetsReplay) ? 0 : s.replay;
  place.write = drafted ? StateWrite::replayed : StateWrite::rows;
  Part part{.sequence = &s, .begin = s.cached, .rows = rows, .snapshots = {}};
  part.logit_rows = wanted_logits(s, rows);
  part.drafted = drafted;
  if (!drafted) part.snapshots = memory_.begin_snapshots(s, end, now_ms);
  const int32_t early = planted(kBugSnapshotEarly) && rows > 1 ? 1 : 0;
  for (const TakenSnapshot& snapshot : part.snapshots)
    batch.snapshots.push_back(
        {.row = batch.rows() + snapshot.tokens - s.cached - 1 - early, .slot = snapshot.slot});
  append_tokens(batch, s, end);
  for (int32_t i = 0; i < part.logit_rows; ++i)
    batch.logit_rows.push_back(batch.rows() - part.logit_rows + i);
  if (piece.arithmetic == Arithmetic::generation)
    ++pass.shape.decode_rows, pass.shape.drafted_rows += rows - 1;
  else
    pass.shape.add_piece(s.cached, rows);
  pass.parts.push_back(std::move(part));
}

BatchSequence& EngineCore::append_sequence(Batch& batch, const Sequence& s, int32_t begin,
                                           int32_t end) {
  const int32_t pages = KvPool::pages_for(end);
  const auto page_begin = static_cast<int32_t>(batch.pages.size());
  batch.pages.insert(batch.pages.end(), s.pages.begin(), s.pages.begin() + pages);
  return batch.sequences.emplace_back(BatchSequence{
      .row_begin = batch.rows(),
      .row_count = end - begin,
      .kv_begin = begin,
      .page_begin = page_begin,
      .page_count = pages,
      .state_in = s.state_slot,
      .state_out = s.state_slot,
      .position_before = begin > 0 ? s.position(begin - 1) : std::array<int32_t, 3>{}});
}

/// Tokens [cached, end) of prompt, generated ones and drafts.
void EngineCore::append_tokens(Batch& batch, const Sequence& s, int32_t end) {
  const auto at = [](const std::vector<int32_t>& tokens, int32_t i) {
    return tokens[static_cast<size_t>(i)];
  };
  for (int32_t i = s.cached; i < end; ++i) {
    const int32_t said = i - s.prompt_size();
    batch.tokens.push_back(said < 0                    ? at(s.request.prompt, i)
                           : said < s.generated_size() ? at(s.generated, said)
                                                       : at(s.drafts, said - s.generated_size()));
  }
  for (size_t i = 0; i < s.request.media.size(); ++i) append_media(batch, s, i, end);
}

/// The rows of a medium among the tokens [cached, end) of a sequence, which are the batch's last.
void EngineCore::append_media(Batch& batch, const Sequence& s, size_t medium, int32_t end) const {
  const MediaRows& media = s.request.media[medium];
  const int32_t first = std::max(media.span.begin, s.cached);
  const int32_t last = std::min(media.span.begin + media.span.count, end);
  if (first >= last) return;
  const int32_t row_begin = batch.rows() - (end - s.cached);
  for (int32_t i = first; i < last; ++i) {
    auto place = static_cast<size_t>(i - media.span.begin);
    if (planted(kBugMediaOffByOne) && i + 1 < last) ++place;
    batch.embeddings.push_back(
        {.row = row_begin + i - s.cached, .place = media_.places(s, medium)[place]});
  }
}

/// [3, T], from the rows of all parts.
void EngineCore::set_positions(Pass& pass) {
  const auto rows = static_cast<size_t>(pass.batch.rows());
  pass.batch.positions.resize(3 * rows);
  size_t row = 0;
  for (const Part& part : pass.parts)
    for (int32_t i = 0; i < part.rows; ++i, ++row) {
      const auto position = part.sequence->position(part.begin + i);
      for (size_t axis = 0; axis < 3; ++axis)
        pass.batch.positions[axis * rows + row] = position[axis];
    }
}

}  // namespace nibble
