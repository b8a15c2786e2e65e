// The life of one request on the server's thread.
#include "server/generation.h"

#include <algorithm>
#include <cmath>

namespace nibble {

namespace {

/// The engine's clock, which deadlines are on.
double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

std::string_view id_prefix(Api api) {
  switch (api) {
    case Api::chat:
      return "chatcmpl-";
    case Api::completions:
      return "cmpl-";
    case Api::messages:
      return "msg_";
    case Api::responses:
      return "resp_";
  }
  CHECK(false, "API ", static_cast<int>(api));
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
  head_ = {.id = random_id(id_prefix(request_.api)),
           .api = request_.api,
           .delivery = request_.delivery,
           .model = request_.model.empty() ? served.names.front() : request_.model,
           .created = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
  writer_ = make_answer_writer(head_, request_.echoed);
}

void Generation::start() {
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
    exchange_->write(writer_ ? writer_->error(error)
                             : concat("data: ", error.json().dump(), "\n\n"));
    exchange_->finish_stream();
  } else {
    HttpResponse response = error_response(request_.api, error);
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
  if (auto* prompt = std::get_if<PromptLogprobs>(&event)) {
    for (auto& position : prompt->positions) choice.prompt_logprobs.push_back(std::move(position));
    return;
  }
  take_end(choice, std::move(std::get<Finished>(event)));
}

void Generation::take_end(Choice& choice, Finished finished) {
  choice.finished = std::move(finished);
  --unfinished_;
  choice.decoder.finish();
  const FinishReason reason = choice.finished->reason;
  if (reason == FinishReason::error)
    return fail({.status = 500, .type = "server_error", .message = choice.finished->error});
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
  return request_.prompt_logprobs_wanted() < 0 ||
         choices_[index].prompt_logprobs.size() + 1 == prompt_of(index).size();
}

bool Generation::shown(const OutputEvent& event) const {
  if (event.kind == OutputEvent::Kind::tool_end) return false;
  return event.kind != OutputEvent::Kind::reasoning || request_.include_reasoning;
}

void Generation::flush() {
  if (done_) return;
  if (request_.delivery == Delivery::whole) {
    if (writer_) write_blocks();
    for (Choice& choice : choices_)
      for (const OutputEvent& event : choice.decoder.take())
        if (shown(event)) choice.text.add(event);
    if (unfinished_ == 0) answer_whole();
    return;
  }
  if (!streaming_) begin_stream();
  if (writer_)
    pending_ += write_blocks();
  else
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
  if (writer_) pending_ += writer_->begin(counts());
  if (request_.api != Api::chat) return;
  for (size_t i = 0; i < choices_.size(); ++i)
    send(head_.object({role_choice(static_cast<int32_t>(i))}));
}

void Generation::send(const Json& object) {
  pending_ += "data: ";
  pending_ += object.dump();
  pending_ += "\n\n";
}

std::string Generation::echo_text(size_t index) const {
  return served_.tokenizer.decode(prompt_of(index), SkipSpecial::no);
}

/// The prompt as the first piece of a stream; false: its log-probabilities are still to come.
bool Generation::send_echo(size_t index) {
  Choice& choice = choices_[index];
  if (request_.echo == Echo::none || choice.echo_sent) return true;
  if (!prompt_logprobs_complete(index) && !choice.finished) return false;
  choice.echo_sent = true;
  const OutputEvent event{.kind = OutputEvent::Kind::content, .text = echo_text(index)};
  Json logprobs;
  if (request_.sampling.wants_logprobs())
    logprobs = echo_logprobs(served_.tokenizer, prompt_of(index).front(), choice.prompt_logprobs,
                             choice.text_offset);
  send(head_.object({chunk_choice(request_.api, static_cast<int32_t>(index), &event, {}, nullptr,
                                  std::move(logprobs))}));
  return true;
}

std::string Generation::write_blocks() {
  std::string events;
  for (const OutputEvent& event : choices_.front().decoder.take()) events += writer_->add(event);
  return events;
}

void Generation::stream_choice(int32_t index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!send_echo(static_cast<size_t>(index))) return;
  for (const OutputEvent& event : choice.decoder.take()) {
    if (!shown(event) || request_.completion == Completion::dropped) continue;
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
  const ChoiceEnd end = end_of(choices_.front());
  outcome_ = end.finish_reason;
  if (writer_) {
    pending_ += writer_->finish(end, counts());
    return;
  }
  if (request_.include_usage) {
    Json last = head_.object({});
    last.set("usage", counts().usage());
    send(last);
  }
  pending_ += "data: [DONE]\n\n";
}

void Generation::answer_whole() {
  if (writer_) {
    const ChoiceEnd end = end_of(choices_.front());
    writer_->finish(end, counts());
    outcome_ = end.finish_reason;
    done_ = true;
    return exchange_->respond(
        {.body = writer_->whole().dump(), .headers = {{"x-request-id", request_id_}}});
  }
  Json::Array choices;
  for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(whole_choice_of(i));
  Json answer = head_.object(std::move(choices));
  if (request_.api == Api::chat && request_.prompt_logprobs >= 0)
    answer.set("prompt_logprobs",
               prompt_logprobs_json(served_.tokenizer, choices_.front().prompt_logprobs));
  answer.set("usage", counts().usage());
  outcome_ = end_of(choices_.front()).finish_reason;
  done_ = true;
  exchange_->respond({.body = answer.dump(), .headers = {{"x-request-id", request_id_}}});
}

Json Generation::whole_logprobs(size_t index) {
  Choice& choice = choices_[index];
  if (request_.echo == Echo::none || !request_.sampling.wants_logprobs())
    return logprobs_of(choice);
  Json logprobs = echo_logprobs(served_.tokenizer, prompt_of(index).front(), choice.prompt_logprobs,
                                choice.text_offset);
  append_logprobs(logprobs, logprobs_of(choice));
  return logprobs;
}

Json Generation::whole_choice_of(size_t index) {
  Choice& choice = choices_[index];
  if (request_.completion == Completion::dropped) choice.text = {};
  if (request_.echo == Echo::prompt) choice.text.content.insert(0, echo_text(index));
  Json json = whole_choice(request_.api, static_cast<int32_t>(index), choice.text, end_of(choice),
                           whole_logprobs(index));
  if (request_.api == Api::completions && request_.prompt_logprobs >= 0)
    json.set("prompt_logprobs", prompt_logprobs_json(served_.tokenizer, choice.prompt_logprobs));
  return json;
}

void Generation::ping() {
  if (done_ || request_.delivery != Delivery::stream) return;
  if (!std::exchange(wrote_since_ping_, false)) {
    if (!streaming_) begin_stream();
    exchange_->write(std::exchange(pending_, {}) + (writer_ ? writer_->ping() : ": ping\n\n"));
  }
}

ChoiceEnd Generation::end_of(const Choice& choice) const {
  const Finished& finished = *choice.finished;
  if (finished.reason == FinishReason::length) return {.finish_reason = "length"};
  if (request_.completion == Completion::dropped) return {.finish_reason = "length"};
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

Json Generation::logprobs_of(Choice& choice) const {
  if (!request_.sampling.wants_logprobs()) return {};
  auto positions = std::exchange(choice.logprobs, {});
  if (request_.completion == Completion::dropped) positions.clear();
  if (positions.empty() && request_.delivery == Delivery::stream) return {};
  return request_.api == Api::chat
             ? chat_logprobs(served_.tokenizer, positions)
             : completion_logprobs(served_.tokenizer, positions, choice.text_offset);
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
