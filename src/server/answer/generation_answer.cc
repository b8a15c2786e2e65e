// The answer of a generation as a whole, and what whole answers and streams share: how a choice
// ended, log-probabilities, counts.
#include <algorithm>

#include "server/answer/generation.h"

namespace nibble {

namespace {

Json list_of(std::span<const int32_t> ids) {
  Json::Array list;
  for (const int32_t id : ids) list.emplace_back(id);
  return Json(std::move(list));
}

}  // namespace

void Generation::answer_whole() {
  if (writer_) {
    const ChoiceEnd end = end_of(choices_.front());
    writer_->finish(end, counts());
    outcome_ = end.finish_reason;
    done_ = true;
    tell_response();
    return exchange_->respond({.body = writer_->whole().dump()});
  }
  Json answer = head_.object({});
  Json::Array choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(whole_choice_of(i));
    add_prompt_ids(i, choices.back(), answer);
    add_token_ids(i, choices.back());
  }
  answer.set("choices", Json(std::move(choices)));
  if (request_.api == Api::chat && request_.prompt_logprobs >= 0)
    answer.set("prompt_logprobs",
               prompt_logprobs_json(served_.tokenizer, choices_.front().prompt_logprobs));
  answer.set("usage", counts().usage());
  outcome_ = end_of(choices_.front()).finish_reason;
  done_ = true;
  exchange_->respond({.body = answer.dump()});
}

void Generation::tell_response() const {
  if (response_hook_ && request_.stored_input) response_hook_(*this, writer_->whole());
}

Json Generation::whole_logprobs(size_t index) {
  Choice& choice = choices_[index];
  if (request_.echo == Echo::none || !request_.sampling.wants_logprobs())
    return logprobs_of(choice);
  Json logprobs = echo_logprobs(token_names(), prompt_of(index).front(), choice.prompt_logprobs,
                                choice.text_offset);
  // A text that a filter rejected has none; the prompt has passed.
  if (const Json more = logprobs_of(choice); !more.is_null()) append_logprobs(logprobs, more);
  return logprobs;
}

Json Generation::whole_choice_of(size_t index) {
  Choice& choice = choices_[index];
  if (request_.completion == Completion::dropped) choice.text = {};
  if (request_.echo == Echo::prompt) choice.text.content.insert(0, echo_text(index));
  Json json = whole_choice(head_, static_cast<int32_t>(index), choice.text, end_of(choice),
                           whole_logprobs(index));
  if (request_.api == Api::completions && request_.prompt_logprobs >= 0)
    json.set("prompt_logprobs", prompt_logprobs_json(served_.tokenizer, choice.prompt_logprobs));
  return json;
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

/// Places log-probabilities as vLLM does: a completion's prompt in its choice, a chat's beside the
/// choices.
void Generation::add_prompt_ids(size_t index, Json& choice, Json& answer) {
  if (!request_.return_token_ids || std::exchange(choices_[index].prompt_ids_sent, true)) return;
  const bool chat = request_.api == Api::chat;
  if (!chat || index == 0)
    (chat ? answer : choice).set("prompt_token_ids", list_of(prompt_of(index)));
}

void Generation::add_token_ids(size_t index, Json& choice) {
  Choice& from = choices_[index];
  if (!request_.return_token_ids) return;
  if (!text_passed(from)) return choice.set("token_ids", Json());
  const std::vector<int32_t> ids = std::exchange(from.token_ids, {});
  const bool given = request_.completion == Completion::given;
  choice.set("token_ids", list_of(given ? ids : std::vector<int32_t>()));
}

Json Generation::logprobs_of(Choice& choice) const {
  if (!request_.sampling.wants_logprobs()) return {};
  if (!text_passed(choice)) return {};
  auto positions = std::exchange(choice.logprobs, {});
  if (request_.completion == Completion::dropped) positions.clear();
  if (positions.empty() && request_.delivery == Delivery::stream) return {};
  return request_.api != Api::completions
             ? chat_logprobs(token_names(), positions)
             : completion_logprobs(token_names(), positions, choice.text_offset);
}

Metrics::Calls Generation::calls() const {
  Metrics::Calls calls;
  for (const Choice& choice : choices_) {
    calls.complete += choice.decoder.complete_calls();
    calls.malformed += choice.decoder.malformed_calls();
  }
  return calls;
}

/// Counts the tokens of all choices, so that the sum never falls.
Json Generation::usage_so_far() const {
  TokenCounts counts;
  for (const auto& prompt : request_.prompts) counts.prompt += static_cast<int64_t>(prompt.size());
  for (const Choice& choice : choices_)
    if (request_.completion == Completion::given)
      counts.completion += choice.finished ? choice.finished->completion_tokens : choice.tokens;
  return json_object({{"prompt_tokens", Json(counts.prompt)},
                      {"completion_tokens", Json(counts.completion)},
                      {"total_tokens", Json(counts.prompt + counts.completion)}});
}

/// Timings in llama.cpp's words. The rate counts the tokens after the first, whose time is the
/// prompt's.
Json Generation::timings() const {
  const TokenCounts all = counts();
  const auto ms = [](Clock::time_point from, Clock::time_point to) {
    return std::max(std::chrono::duration<double, std::milli>(to - from).count(), 0.0);
  };
  int64_t said = 0;
  for (const Choice& choice : choices_) said += choice.tokens;
  const double prompt_ms = said > 0 ? ms(submitted_, first_token_) : 0.0;
  const double said_ms = said > 0 ? ms(first_token_, last_token_) : 0.0;
  const double rate = said_ms > 0.0 ? static_cast<double>(said - 1) * 1e3 / said_ms : 0.0;
  return json_object({{"cache_n", Json(all.cached)},
                      {"prompt_n", Json(all.prompt - all.cached)},
                      {"prompt_ms", Json(prompt_ms)},
                      {"predicted_n", Json(said)},
                      {"predicted_ms", Json(said_ms)},
                      {"predicted_per_second", Json(rate)}});
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
    counts.reasoning += choice.decoder.reasoning_tokens();
    cached = std::min<int64_t>(cached, choice.finished ? choice.finished->cached_tokens : 0);
    if ((i + 1) % per_prompt == 0) counts.cached += std::exchange(cached, INT64_MAX);
  }
  return counts;
}

}  // namespace nibble
