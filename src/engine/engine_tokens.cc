// Turns logits into tokens: masks, sampled rows, accepted drafts, ends. The other half of
// EngineCore.
#include <algorithm>

#include "base/hash.h"
#include "base/planted_bug.h"
#include "engine/engine_core.h"
#include "engine/sample/constraint_chain.h"

namespace nibble {

namespace {

constexpr double kOddsDecay = 0.9;         // weight of the outcomes of earlier drafts
constexpr double kSharedOddsDecay = 0.98;  // the same for the odds of all sequences
constexpr double kOddsMin = 0.05;          // one that was always wrong is tried again now and then
constexpr double kModelOddsMin = 0.01;     // the model's are, by DraftTrials

}  // namespace

/// The number of last rows of a chunk whose logits are wanted: those from the newest token on (one,
/// and the drafts); all of them for prompt logprobs. A sequence that computes its cache again feeds
/// its known tokens first.
int32_t EngineCore::wanted_logits(const Sequence& s, int32_t rows) const {
  const bool in_prompt = s.cached < s.prompt_size();
  if (in_prompt && s.request.prompt_logprobs >= 0 && s.generated.empty()) return rows;
  const int32_t known = s.prompt_size() + (planted(kBugReplaySamples) ? 0 : s.generated_size());
  return std::max(s.cached + rows - known + 1, 0);
}

/// The choice of the token after the newest one and `drafted` drafts. Its mask comes later.
TokenChoice EngineCore::choice_of(const Sequence& s, size_t drafted) {
  const TokenHistory history{.prompt = s.request.prompt,
                             .generated = s.generated,
                             .drafted = std::span(s.drafts).first(drafted),
                             .serial = s.serial};
  return Sampler::choice_of(s.request.sampling, history, s.next_index() + drafted);
}

void EngineCore::absorb(const Pass& pass, const HeadOutput& output, double now_ms) {
  rows_.clear();
  sampled_.clear();
  const auto vocab = static_cast<size_t>(config_.vocab_rows);
  size_t logit_row = 0;
  for (const Part& part : pass.parts) {
    const auto rows = static_cast<size_t>(part.logit_rows);
    const size_t row_begin = logit_row;
    logit_row += rows;
    if (part.sequence == nullptr) {
      ++counters_.rows_in_vain;
      continue;
    }
    Sequence& s = *part.sequence;
    const int32_t begin = s.cached;
    if (!part.drafted) s.cached += part.rows, s.replay = 0;
    if (s.cached >= s.prompt_size()) s.phase = Phase::decode;
    if (s.request.tells_progress && begin < s.prompt_size()) tell_progress(s, now_ms);
    if (memory_.publish(s, part.snapshots, now_ms) == SequenceMemory::Published::not_finite) {
      end_not_finite(s, "the model computed a value that is not finite");
      continue;
    }
    if (rows == 0) continue;
    if (begin < s.prompt_size() && s.request.prompt_logprobs >= 0) {
      const auto logits = output.logits.subspan(row_begin * vocab, rows * vocab);
      if (const auto published = publish_prompt_logprobs(s, begin, logits); !published.ok()) {
        end_not_finite(s, published.error().message);
        continue;
      }
    }
    if (!part.drafted &&
        s.cached < s.prompt_size() + (planted(kBugReplaySamples) ? 0 : s.generated_size()))
      continue;
    add_sample_rows(part, output, row_begin + rows - part.choices.size());
  }
}

/// Logit rows of the newest token and of the drafts after it.
void EngineCore::add_sample_rows(const Part& part, const HeadOutput& output, size_t row_begin) {
  const auto vocab = static_cast<size_t>(config_.vocab_rows);
  const size_t count = part.choices.size();
  sampled_.push_back({.sequence = part.sequence, .row_begin = rows_.size(), .row_count = count});
  for (size_t i = 0; i < count; ++i) {
    SampleRow row{.choice = part.choices[i]};
    if (output.chosen.empty()) {
      row.logits = output.logits.subspan((row_begin + i) * vocab, vocab);
      ++counters_.sampled_here;
    } else {
      row.sampled = Sampler::result_of(output.chosen[row_begin + i], row.choice.rule);
      ++counters_.sampled_there;
    }
    rows_.push_back(std::move(row));
  }
}

/// Row i of the chunk is about prompt token row_begin + i + 1. What was published before a restart
/// is not published again.
Result<void> EngineCore::publish_prompt_logprobs(Sequence& s, int32_t row_begin,
                                                 std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(config_.vocab_rows);
  PromptLogprobs event{.id = s.request.id, .begin = s.prompt_logprobs_end, .positions = {}};
  for (size_t i = 0; i * vocab < logits.size(); ++i) {
    const int32_t next = row_begin + static_cast<int32_t>(i) + 1;
    if (next < s.prompt_logprobs_end || next >= s.prompt_size()) continue;
    auto position = sampler_.sampler().logprobs(logits.subspan(i * vocab, vocab),
                                                s.request.prompt[static_cast<size_t>(next)],
                                                s.request.prompt_logprobs);
    if (!position.ok()) return Error(position.error());
    event.positions.push_back(std::move(position).value());
  }
  s.prompt_logprobs_end += static_cast<int32_t>(event.positions.size());
  if (!event.positions.empty()) events_.emplace_back(std::move(event));
  return {};
}

/// First what the prefix cache had, then what each pass has added. What was told before a restart
/// is not told again.
void EngineCore::tell_progress(Sequence& s, double pass_begin_ms) {
  if (s.prefill_begin_ms == 0.0) s.prefill_begin_ms = pass_begin_ms;
  const auto tell = [&](int32_t processed, double elapsed_ms) {
    if (processed <= s.progress_told) return;
    s.progress_told = processed;
    events_.emplace_back(PromptProgress{.id = s.request.id,
                                        .total = s.prompt_size(),
                                        .cached = s.hit_tokens,
                                        .processed = processed,
                                        .elapsed_ms = elapsed_ms});
  };
  if (s.progress_told < 0) tell(s.hit_tokens, 0.0);
  tell(std::min(s.cached, s.prompt_size()), now_ms() - s.prefill_begin_ms);
}

/// Token after token while the drafts agree with what is sampled. A token does not depend on how
/// many rows were drafted: each is sampled from the logits, history, mask and draw of its position.
void EngineCore::accept(const Sampled& sampled) {
  Sequence& s = *sampled.sequence;
  const size_t drafts = sampled.row_count - 1;
  const int32_t generated = s.generated_size();
  size_t right = 0;
  for (size_t i = 0; i < sampled.row_count; ++i) {
    if (advance(s, *rows_[sampled.row_begin + i].sampled) == Life::over) return;
    if (i == drafts) break;
    const bool agrees = draft_is_right(s, i, generated);
    if (!agrees && !(planted(kBugAcceptsWrongDraft) && i > 0)) break;
    ++right;
  }
  if (drafts == 0) return;
  s.replay = static_cast<int32_t>(planted(kBugReplaysRejected) ? drafts + 1 : right + 1);
  s.cached += static_cast<int32_t>(right) + 1;
  count_drafts(s, drafts, right);
  for (size_t i = 0; i < std::min(right + 1, drafts); ++i)
    learn(s, s.proposer, i < right ? DraftWas::right : DraftWas::wrong);
  if (right == s.drafts.size() && s.draft_refused) learn(s, s.proposer, DraftWas::wrong);
  if (s.proposer == Proposer::model) end_trial(s, right > 0 ? DraftWas::right : DraftWas::wrong);
}

/// The odds of texts are those of a sequence, unless only long repeats count.
void EngineCore::learn(Sequence& s, Proposer by, DraftWas was) {
  const auto move = [&](double& odds, double decay) {
    odds = std::max(decay * odds + (was == DraftWas::right ? 1.0 - decay : 0.0),
                    by == Proposer::model ? kModelOddsMin : kOddsMin);
  };
  move(s.odds_of(by), kOddsDecay);
  if (by != Proposer::text || settings_.model_drafts > 0)
    move(shared_odds_[static_cast<size_t>(by)], kSharedOddsDecay);
}

bool EngineCore::draft_is_right(const Sequence& s, size_t index, int32_t generated) const {
  const std::vector<double>& shares = settings_.synthetic_acceptance;
  if (shares.empty()) return s.generated.back() == s.drafts[index];
  const uint64_t round =
      mixed_hash(mixed_hash(kFnvBasis, s.serial), static_cast<uint64_t>(generated));
  const double draw = 0x1p-32 * static_cast<double>(round >> 32);
  return index < shares.size() && draw < shares[index];
}

void EngineCore::count_drafts(Sequence& s, size_t drafted, size_t right) {
  ++counters_.draft_rounds;
  counters_.drafted += static_cast<int64_t>(drafted);
  counters_.drafts_right += static_cast<int64_t>(right);
  for (size_t i = 0; i < std::min(right, counters_.right_at.size()); ++i) ++counters_.right_at[i];
  scheduler_.charge_rejected(s.request.urgency.tenant, s.proposer,
                             static_cast<int32_t>(drafted - right));
  counters_.drafted_by[static_cast<size_t>(s.proposer)] += static_cast<int64_t>(drafted);
  counters_.right_by[static_cast<size_t>(s.proposer)] += static_cast<int64_t>(right);
  s.drafted += static_cast<int32_t>(drafted);
  s.drafts_right += static_cast<int32_t>(right);
}

EngineCore::Life EngineCore::advance(Sequence& sequence, Result<SampledToken>& sampled) {
  const SequenceRequest& request = sequence.request;
  if (!sampled.ok()) {
    const Error& error = sampled.error();
    if (error.code == ErrorCode::corrupt)
      end_not_finite(sequence, error.message);
    else
      finish(sequence, FinishReason::error, {.error = error.message});
    return Life::over;
  }
  SampledToken& next = sampled.value();
  const int32_t token = next.token;
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
    finish(sequence, FinishReason::stop,
           {.stop_token = token, .stop_logprobs = std::move(next.logprobs)});
    return Life::over;
  }
  const std::vector<int32_t>& anchors = request.cache.anchor_ids;
  if (std::ranges::find(anchors, token) != anchors.end()) memory_.attach_tail(sequence, now_ms());
  const auto stop = request.constraint ? request.constraint->accept({&token, 1}) : std::nullopt;
  if (stop != size_t{0}) {
    sequence.generated.push_back(token);
    NewTokens event{.id = request.id, .tokens = {token}, .logprobs = {}};
    if (next.logprobs) event.logprobs.push_back(std::move(*next.logprobs));
    events_.emplace_back(std::move(event));
  }
  const bool full = sequence.generated_size() >= request.max_tokens;
  if (!stop && !full) return Life::goes_on;
  finish(sequence, stop ? finish_reason_of(*request.constraint) : FinishReason::length);
  return Life::over;
}

/// Needs what was said before this pass only, so it can run while a device computes the pass. The
/// backend learns the choices, unless some row must have all its logits: of a prompt whose
/// log-probabilities are wanted.
void EngineCore::make_choices(Pass& pass) {
  bool wants_logits = false;
  for (Part& part : pass.parts) {
    if (part.logit_rows == 0) continue;
    if (part.sequence == nullptr) {
      part.choices.emplace_back();
      continue;
    }
    const Sequence& s = *part.sequence;
    wants_logits |= s.cached < s.prompt_size() && s.request.prompt_logprobs >= 0;
    const size_t rows = part.drafted ? static_cast<size_t>(part.rows) : 1;
    for (size_t i = 0; i < rows; ++i) part.choices.push_back(choice_of(s, i));
    if (!s.request.constraint && s.request.min_tokens == 0) continue;
    part.masks.reserve(rows);
    for (size_t i = 0; i < rows; ++i)
      part.choices[i].mask = part.masks.emplace_back(
          next_mask(s, std::span(s.drafts).first(planted(kBugMasksForgetDrafts) ? 0 : i)));
  }
  if (wants_logits) return;
  for (const Part& part : pass.parts)
    pass.batch.choices.insert(pass.batch.choices.end(), part.choices.begin(), part.choices.end());
}

std::vector<uint32_t> EngineCore::next_mask(const Sequence& sequence,
                                            std::span<const int32_t> drafted) const {
  const SequenceRequest& request = sequence.request;
  const bool too_early =
      sequence.generated_size() + static_cast<int32_t>(drafted.size()) < request.min_tokens;
  if (!request.constraint && !too_early) return {};
  std::vector<uint32_t> mask = Sampler::all_sampleable(config_.vocab_rows);
  const bool open = !request.constraint ||
                    request.constraint->mask(drafted, mask) == TokenConstraint::MaskState::open;
  if (open && !too_early) return {};
  if (!too_early) return mask;
  const std::vector<uint32_t> ruled = mask;
  for (const int32_t token : request.stop_ids)
    if (token >= 0 && token < config_.vocab_rows)
      mask[static_cast<size_t>(token) / 32] &= ~(1U << (static_cast<uint32_t>(token) % 32));
  // A structure that is complete ends the answer, however few its tokens are.
  const bool nothing_left = std::ranges::all_of(mask, [](uint32_t word) { return word == 0; });
  return nothing_left ? ruled : mask;
}

void EngineCore::end_not_finite(Sequence& sequence, std::string error) {
  memory_.condemn(sequence);
  ++counters_.not_finite;
  finish(sequence, FinishReason::error, {.error = std::move(error)});
}

}  // namespace nibble
