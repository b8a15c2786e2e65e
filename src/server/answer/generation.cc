// The life of one request on the server's thread.
#include "server/answer/generation.h"

#include <algorithm>
#include <cmath>

namespace nibble {

namespace {

/// The engine's clock, which deadlines are on.
double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace

Generation::Generation(const ServedModel& served, Engine& engine, GenerationRequest request,
                       std::shared_ptr<HttpExchange> exchange, std::string request_id)
    : served_(served),
      engine_(engine),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      request_id_(std::move(request_id)) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  head_ = {.id = random_id(answer_id_prefix(request_.api)),
           .delivery = request_.delivery,
           .model = request_.model.empty() ? served.names.front() : request_.model,
           .fingerprint = served.fingerprint,
           .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
           .reasoning_field = request_.reasoning_field.value_or(served.policy.reasoning_field)};
  writer_ = make_answer_writer(
      {.head = head_, .request = request_, .names = {&served_.tokenizer, request_.token_name}});
}

void Generation::hold_for(FilterPanel& panel, std::function<void()> changed) {
  if (request_.filters.empty()) return;
  panel_ = &panel;
  changed_ = std::move(changed);
}

void Generation::start() {
  submitted_ = Clock::now();
  const size_t count = request_.prompts.size() * static_cast<size_t>(request_.choices);
  const double deadline_ms = request_.timeout_ms > 0.0 ? now_ms() + request_.timeout_ms : 0.0;
  for (size_t index = 0; index < count; ++index) {
    SequenceRequest sequence = request_.sequence(served_, index, engine_.next_id());
    const uint64_t id = sequence.id;
    sequence.urgency.deadline_ms = deadline_ms;
    const auto accepted = engine_.submit(std::move(sequence));
    if (!accepted.ok()) return fail(refusal_of(accepted.error()));
    ids_.push_back(id);
    choices_.emplace_back(request_.decoder(served_, index));
    if (panel_ != nullptr)
      choices_.back().held = std::make_shared<HeldAnswer>(*panel_, request_.filters, changed_);
    ++unfinished_;
  }
}

ApiError Generation::refusal_of(const Error& error) const {
  constexpr double kRetrySecondsMax = 600.0;
  ApiError answer = ApiError::from(error);
  const double seconds = std::ceil(engine_.retry_after_ms() / 1e3);
  answer.retry_after_s = static_cast<int>(std::clamp(seconds, 1.0, kRetrySecondsMax));
  return answer;
}

void Generation::fail(const ApiError& error) {
  if (done_) return;
  done_ = true;
  outcome_ = concat("error ", error.status);
  error_status_ = error.status;
  if (streaming_) {
    exchange_->write(writer_->error(error));
    exchange_->finish_stream();
  } else {
    exchange_->respond(error_response(request_.api, error));
  }
  cancel_rest();
}

void Generation::abandon() {
  if (done_) return;
  done_ = true;
  outcome_ = "client gone";
  cancel_rest();
}

void Generation::cancel() {
  cancelled_ = true;
  cancel_rest();
}

Json Generation::so_far(std::string_view status) const {
  Json answer = writer_->whole();
  answer.set("status", Json(status));
  return answer;
}

void Generation::cancel_rest() {
  for (size_t i = 0; i < choices_.size(); ++i)
    if (!choices_[i].finished) engine_.cancel(ids_[i]);
}

void Generation::take(EngineEvent event) {
  news_ = true;
  const uint64_t id = std::visit([](const auto& e) { return e.id; }, event);
  const auto at = std::ranges::find(ids_, id) - ids_.begin();
  CHECK(at < static_cast<ptrdiff_t>(ids_.size()), "sequence ", id, " is not of this request");
  Choice& choice = choices_[static_cast<size_t>(at)];
  if (auto* fresh = std::get_if<NewTokens>(&event)) {
    if (done_) return;
    const bool all = writer_->logprobs_of() == AnswerWriter::LogprobsOf::all;
    for (size_t i = 0; i < fresh->tokens.size(); ++i) {
      const bool told = all || choice.decoder.is_content(fresh->tokens[i]);
      choice.decoder.push(fresh->tokens[i]);
      if (told && i < fresh->logprobs.size())
        choice.logprobs.push_back(std::move(fresh->logprobs[i]));
    }
    choice.tokens += static_cast<int64_t>(fresh->tokens.size());
    last_token_ = Clock::now();
    if (first_token_ == Clock::time_point()) first_token_ = last_token_;
    if (request_.return_token_ids)
      choice.token_ids.insert(choice.token_ids.end(), fresh->tokens.begin(), fresh->tokens.end());
    return;
  }
  if (auto* prompt = std::get_if<PromptLogprobs>(&event)) {
    for (auto& position : prompt->positions) choice.prompt_logprobs.push_back(std::move(position));
    return;
  }
  if (const auto* progress = std::get_if<PromptProgress>(&event)) {
    choice.progress.push_back(*progress);
    return;
  }
  take_end(choice, std::move(std::get<Finished>(event)));
}

/// Clients that are told ids, or the stop token's text, match them with log-probabilities one to
/// one. Others get those of the text alone, as from OpenAI.
void Generation::take_stop_token(Choice& choice) {
  Finished& finished = *choice.finished;
  if (request_.return_token_ids) choice.token_ids.push_back(finished.stop_token);
  const bool told = request_.return_token_ids || request_.token_name == TokenName::id ||
                    request_.stop_text == StopText::kept;
  if (told && finished.stop_logprobs && writer_->logprobs_of() == AnswerWriter::LogprobsOf::all)
    choice.logprobs.push_back(std::move(*finished.stop_logprobs));
}

void Generation::take_end(Choice& choice, Finished finished) {
  choice.finished = std::move(finished);
  --unfinished_;
  if (request_.stop_text == StopText::kept && choice.finished->stop_token >= 0)
    choice.decoder.push(choice.finished->stop_token);
  choice.decoder.finish();
  if (choice.finished->stop_token >= 0) take_stop_token(choice);
  const FinishReason reason = choice.finished->reason;
  if (reason == FinishReason::error)
    return fail({.status = 500, .type = "server_error", .message = choice.finished->error});
  const bool objected = choice.held && choice.held->verdict() != FilterVerdict::pass;
  if (reason == FinishReason::cancelled && (cancelled_ || objected)) return;
  if (reason == FinishReason::cancelled)
    return fail(
        {.status = 503, .type = "service_unavailable", .message = "the server is shutting down"});
  const bool nothing_in_time =
      unfinished_ == 0 && !streaming_ && std::ranges::all_of(choices_, [](const Choice& c) {
        return c.finished->reason == FinishReason::deadline && c.finished->completion_tokens == 0;
      });
  if (!nothing_in_time && reason != FinishReason::deadline &&
      !prompt_logprobs_complete(static_cast<size_t>(&choice - choices_.data())))
    return fail({.status = 500,
                 .type = "server_error",
                 .message = concat("the engine gave ", choice.prompt_logprobs.size(),
                                   " log-probabilities of the prompt")});
  if (nothing_in_time)
    fail({.status = 504,
          .type = "timeout",
          .message = concat("no token within the time limit of ", request_.timeout_ms, " ms"),
          .code = "timeout"});
}

const std::vector<int32_t>& Generation::prompt_of(size_t index) const {
  return request_.prompts[index / static_cast<size_t>(request_.choices)];
}

bool Generation::prompt_logprobs_complete(size_t index) const {
  return request_.prompt_logprobs_wanted() < 0 || choices_[index].prompt_told ||
         choices_[index].prompt_logprobs.size() + 1 == prompt_of(index).size();
}

std::vector<OutputEvent> Generation::events_of(size_t index) {
  Choice& choice = choices_[index];
  if (!choice.held) return choice.decoder.take();
  choice.held->add(choice.decoder.take());
  if (choice.finished) choice.held->finish();
  if (choice.held->verdict() != FilterVerdict::pass && !choice.finished)
    engine_.cancel(ids_[index]);
  return choice.held->take();
}

bool Generation::complete() const {
  return unfinished_ == 0 && std::ranges::all_of(choices_, [](const Choice& choice) {
           return !choice.held || choice.held->settled();
         });
}

bool Generation::shown(const OutputEvent& event) const {
  if (request_.completion == Completion::dropped) return false;
  return event.kind != OutputEvent::Kind::reasoning || request_.include_reasoning;
}

void Generation::flush() {
  news_ = false;
  if (done_) return;
  const bool stream = request_.delivery == Delivery::stream;
  writer_->count(counts());
  if (stream && !streaming_) begin_stream();
  for (size_t i = 0; i < choices_.size(); ++i) write_choice(i);
  const bool all = complete();
  if (all) finish();
  std::string fresh = std::exchange(pending_, {});
  if (stream && !fresh.empty()) {
    exchange_->write(std::move(fresh));
    spoke_since_ping_ = true;
  }
  if (!all || done_) return;
  done_ = true;
  if (stream) return exchange_->finish_stream();
  exchange_->respond({.body = writer_->whole().dump()});
}

void Generation::ping() {
  if (done_ || request_.delivery != Delivery::stream) return;
  if (std::exchange(spoke_since_ping_, false)) return;
  writer_->count(counts());
  if (!streaming_) begin_stream();
  exchange_->write(std::exchange(pending_, {}) + writer_->ping());
}

}  // namespace nibble
