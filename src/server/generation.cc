// The life of one request on the server's thread.
#include "server/generation.h"

#include <algorithm>

namespace nibble {

Generation::Generation(const ServedModel& served, Engine& engine, GenerationRequest request,
                       std::shared_ptr<HttpExchange> exchange, std::string request_id)
    : served_(served),
      engine_(engine),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      request_id_(std::move(request_id)) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  head_ = {.id = random_id(request_.api == Api::chat ? "chatcmpl-" : "cmpl-"),
           .api = request_.api,
           .delivery = request_.delivery,
           .model = request_.model.empty() ? served.names.front() : request_.model,
           .created = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

void Generation::start() {
  const size_t count = request_.prompts.size() * static_cast<size_t>(request_.choices);
  for (size_t index = 0; index < count; ++index) {
    SequenceRequest sequence = request_.sequence(served_, index, engine_.next_id());
    const uint64_t id = sequence.id;
    const auto accepted = engine_.submit(std::move(sequence));
    if (!accepted.ok()) return fail(ApiError::from(accepted.error()));
    ids_.push_back(id);
    choices_.emplace_back(request_.decoder(served_, index));
    ++unfinished_;
  }
}

void Generation::fail(const ApiError& error) {
  if (done_) return;
  done_ = true;
  outcome_ = concat("error ", error.status);
  if (streaming_) {
    exchange_->write(concat("data: ", error.json().dump(), "\n\n"));
    exchange_->finish_stream();
  } else {
    HttpResponse response = error.response();
    response.headers.push_back({"x-request-id", request_id_});
    exchange_->respond(std::move(response));
  }
  cancel_rest();
}

void Generation::abandon() {
  if (done_) return;
  done_ = true;
  outcome_ = "client gone";
  cancel_rest();
}

void Generation::cancel_rest() {
  for (size_t i = 0; i < choices_.size(); ++i)
    if (!choices_[i].finished) engine_.cancel(ids_[i]);
}

void Generation::take(EngineEvent event) {
  const uint64_t id = std::visit([](const auto& e) { return e.id; }, event);
  const auto at = std::ranges::find(ids_, id) - ids_.begin();
  CHECK(at < static_cast<ptrdiff_t>(ids_.size()), "sequence ", id, " is not of this request");
  Choice& choice = choices_[static_cast<size_t>(at)];
  if (auto* fresh = std::get_if<NewTokens>(&event)) {
    if (done_) return;
    for (const int32_t token : fresh->tokens) choice.decoder.push(token);
    for (auto& position : fresh->logprobs) choice.logprobs.push_back(std::move(position));
    return;
  }
  choice.finished = std::move(std::get<Finished>(event));
  --unfinished_;
  choice.decoder.finish();
  if (choice.finished->reason == FinishReason::error)
    fail({.status = 500, .type = "server_error", .message = choice.finished->error});
  else if (choice.finished->reason == FinishReason::cancelled)
    fail({.status = 503, .type = "service_unavailable", .message = "the server is shutting down"});
}

bool Generation::shown(const OutputEvent& event) const {
  if (event.kind == OutputEvent::Kind::tool_end) return false;
  return event.kind != OutputEvent::Kind::reasoning || request_.include_reasoning;
}

void Generation::flush() {
  if (done_) return;
  if (request_.delivery == Delivery::whole) {
    for (Choice& choice : choices_)
      for (const OutputEvent& event : choice.decoder.take())
        if (shown(event)) choice.text.add(event);
    if (unfinished_ == 0) answer_whole();
    return;
  }
  if (!streaming_) begin_stream();
  for (size_t i = 0; i < choices_.size(); ++i) stream_choice(static_cast<int32_t>(i));
  if (unfinished_ == 0) finish_stream();
  if (!pending_.empty()) {
    exchange_->write(std::exchange(pending_, {}));
    wrote_since_ping_ = true;
  }
  if (unfinished_ == 0 && !done_) {
    done_ = true;
    exchange_->finish_stream();
  }
}

void Generation::begin_stream() {
  streaming_ = true;
  exchange_->start_stream({.status = 200,
                           .content_type = "text/event-stream; charset=utf-8",
                           .headers = {{"Cache-Control", "no-cache"},
                                       {"X-Accel-Buffering", "no"},
                                       {"x-request-id", request_id_}}});
  if (request_.api != Api::chat) return;
  for (size_t i = 0; i < choices_.size(); ++i)
    send(head_.object({role_choice(static_cast<int32_t>(i))}));
}

void Generation::send(const Json& object) {
  pending_ += "data: ";
  pending_ += object.dump();
  pending_ += "\n\n";
}

void Generation::stream_choice(int32_t index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  for (const OutputEvent& event : choice.decoder.take()) {
    if (!shown(event)) continue;
    if (event.kind == OutputEvent::Kind::tool_begin) choice.text.add(event);  // gives it an id
    const bool call = event.kind >= OutputEvent::Kind::tool_begin;
    const std::string tool_id = call ? choice.text.calls[static_cast<size_t>(event.tool)].id : "";
    send(head_.object(
        {chunk_choice(request_.api, index, &event, tool_id, nullptr, logprobs_of(choice))}));
  }
  if (!choice.finished || choice.end_sent) return;
  choice.end_sent = true;
  const ChoiceEnd end = end_of(choice);
  send(head_.object({chunk_choice(request_.api, index, nullptr, {}, &end, logprobs_of(choice))}));
}

void Generation::finish_stream() {
  outcome_ = end_of(choices_.front()).finish_reason;
  if (request_.include_usage) {
    Json last = head_.object({});
    last.set("usage", counts().usage());
    send(last);
  }
  pending_ += "data: [DONE]\n\n";
}

void Generation::answer_whole() {
  Json::Array choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choices.push_back(whole_choice(request_.api, static_cast<int32_t>(i), choice.text,
                                   end_of(choice), logprobs_of(choice)));
  }
  Json answer = head_.object(std::move(choices));
  answer.set("usage", counts().usage());
  outcome_ = end_of(choices_.front()).finish_reason;
  done_ = true;
  exchange_->respond({.body = answer.dump(), .headers = {{"x-request-id", request_id_}}});
}

void Generation::ping() {
  if (done_ || request_.delivery != Delivery::stream) return;
  if (!std::exchange(wrote_since_ping_, false)) {
    if (!streaming_) begin_stream();
    exchange_->write(std::exchange(pending_, {}) + ": ping\n\n");
  }
}

ChoiceEnd Generation::end_of(const Choice& choice) const {
  const Finished& finished = *choice.finished;
  if (finished.reason == FinishReason::length) return {.finish_reason = "length"};
  const bool called = choice.decoder.complete_calls() > 0;
  ChoiceEnd end{.finish_reason = called ? "tool_calls" : "stop", .stop_reason = {}};
  const auto& stop_string = choice.decoder.stop_string();
  if (stop_string) end.stop_reason = Json(*stop_string);
  const bool extra = finished.stop_token >= 0 &&
                     !std::ranges::binary_search(served_.stop_ids, finished.stop_token);
  if (extra) end.stop_reason = Json(finished.stop_token);
  return end;
}

Json Generation::logprobs_of(Choice& choice) const {
  if (!request_.sampling.wants_logprobs()) return {};
  const auto positions = std::exchange(choice.logprobs, {});
  if (positions.empty() && request_.delivery == Delivery::stream) return {};
  return request_.api == Api::chat
             ? chat_logprobs(served_.tokenizer, positions)
             : completion_logprobs(served_.tokenizer, positions, choice.text_offset);
}

TokenCounts Generation::counts() const {
  TokenCounts counts;
  for (const auto& prompt : request_.prompts) counts.prompt += static_cast<int64_t>(prompt.size());
  for (const Choice& choice : choices_) {
    counts.completion += choice.finished ? choice.finished->completion_tokens : 0;
    counts.reasoning += choice.decoder.reasoning_tokens();
  }
  return counts;
}

}  // namespace nibble
