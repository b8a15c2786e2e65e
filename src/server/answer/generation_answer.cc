// A generation tells its writer the first event, what is new of each choice, how it ended, counts
// and times.
#include <algorithm>

#include "server/answer/generation.h"

namespace nibble {

void Generation::begin_stream() {
  streaming_ = true;
  exchange_->start_stream(
      {.status = 200,
       .content_type = "text/event-stream; charset=utf-8",
       .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  pending_ += writer_->begin();
}

bool Generation::write_prompt(size_t index) {
  Choice& choice = choices_[index];
  if (choice.prompt_told) return true;
  if (!prompt_logprobs_complete(index) && !choice.finished) return false;
  choice.prompt_told = true;
  writer_->take_tokens(index, tokens_of(choice));
  pending_ += writer_->prompt(index, std::exchange(choice.prompt_logprobs, {}));
  return true;
}

void Generation::write_choice(size_t index) {
  Choice& choice = choices_[index];
  for (const PromptProgress& progress : std::exchange(choice.progress, {}))
    pending_ += writer_->progress(index, progress);
  if (!write_prompt(index)) return;
  const std::vector<OutputEvent> fresh = events_of(index);
  writer_->take_tokens(index, tokens_of(choice));
  for (const OutputEvent& event : fresh)
    if (shown(event)) pending_ += writer_->add(index, event);
  if (!choice.finished || choice.end_told || (choice.held && !choice.held->settled())) return;
  choice.end_told = true;
  pending_ += writer_->end(index, end_of(choice));
}

void Generation::finish() {
  outcome_ = end_of(choices_.front()).finish_reason;
  writer_->count(counts());
  pending_ += writer_->finish(times());
  if (response_hook_ && request_.stored_input) response_hook_(*this, writer_->whole());
}

ChoiceEnd Generation::end_of(const Choice& choice) const {
  const Finished& finished = *choice.finished;
  const FilterVerdict verdict = choice.held ? choice.held->verdict() : FilterVerdict::pass;
  if (verdict != FilterVerdict::pass)
    return {.finish_reason = "content_filter",
            .stop_reason = verdict == FilterVerdict::failed ? Json("filter_failed") : Json()};
  if (finished.reason == FinishReason::length) return {.finish_reason = "length"};
  if (request_.completion == Completion::dropped) return {.finish_reason = "length"};
  if (finished.reason == FinishReason::cancelled)
    return {.finish_reason = "abort", .stop_reason = Json("cancelled")};
  if (finished.reason == FinishReason::deadline)
    return {.finish_reason = "length", .stop_reason = Json("deadline")};
  if (finished.reason == FinishReason::repetition)
    return {.finish_reason = "repetition", .stop_reason = Json("repetition_detected")};
  const bool called = choice.decoder.complete_calls() > 0;
  ChoiceEnd end{.finish_reason = called ? "tool_calls" : "stop", .stop_reason = {}};
  const auto& stop_string = choice.decoder.stop_string();
  if (stop_string) end.stop_reason = Json(*stop_string);
  const bool extra = finished.stop_token >= 0 &&
                     !std::ranges::binary_search(served_.stop_ids, finished.stop_token);
  if (extra) end.stop_reason = Json(finished.stop_token);
  return end;
}

/// All of the text at its end, or none.
bool Generation::text_passed(const Choice& choice) const {
  return !choice.held || (choice.held->settled() && choice.held->verdict() == FilterVerdict::pass);
}

TokenFacts Generation::tokens_of(Choice& choice) const {
  if (!text_passed(choice)) return {.passed = false, .logprobs = {}, .ids = {}};
  TokenFacts facts{.logprobs = std::exchange(choice.logprobs, {}),
                   .ids = std::exchange(choice.token_ids, {})};
  if (request_.completion == Completion::dropped) return {};
  return facts;
}

Metrics::Calls Generation::calls() const {
  Metrics::Calls calls;
  for (const Choice& choice : choices_) {
    calls.complete += choice.decoder.complete_calls();
    calls.malformed += choice.decoder.malformed_calls();
  }
  return calls;
}

AnswerTimes Generation::times() const {
  AnswerTimes times;
  for (const Choice& choice : choices_) times.tokens += choice.tokens;
  if (times.tokens == 0) return times;
  const auto ms = [](Clock::time_point from, Clock::time_point to) {
    return std::max(std::chrono::duration<double, std::milli>(to - from).count(), 0.0);
  };
  times.prompt_ms = ms(submitted_, first_token_);
  times.generation_ms = ms(first_token_, last_token_);
  return times;
}

TokenCounts Generation::counts() const {
  TokenCounts counts;
  for (const auto& prompt : request_.prompts) counts.prompt += static_cast<int64_t>(prompt.size());
  const auto per_prompt = static_cast<size_t>(request_.choices);
  int64_t cached = INT64_MAX;  // a prompt is counted once; so is what none of its choices computed
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    const bool given = choice.finished && request_.completion == Completion::given;
    counts.completion += given ? choice.finished->completion_tokens : 0;
    if (request_.completion == Completion::given)
      counts.completion_so_far += given ? choice.finished->completion_tokens : choice.tokens;
    counts.reasoning += choice.decoder.reasoning_tokens();
    counts.drafted += given ? choice.finished->drafted_tokens : 0;
    counts.accepted += given ? choice.finished->accepted_tokens : 0;
    cached = std::min<int64_t>(cached, choice.finished ? choice.finished->cached_tokens : 0);
    if ((i + 1) % per_prompt == 0) counts.cached += std::exchange(cached, INT64_MAX);
  }
  return counts;
}

}  // namespace nibble
