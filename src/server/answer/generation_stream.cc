// The stream of a generation: the first event, the events of each choice, the end.
#include "server/answer/generation.h"

namespace nibble {

void Generation::begin_stream() {
  streaming_ = true;
  exchange_->start_stream(
      {.status = 200,
       .content_type = "text/event-stream; charset=utf-8",
       .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  if (writer_) pending_ += writer_->begin(counts());
  if (request_.api != Api::chat) return;
  for (size_t i = 0; i < choices_.size(); ++i) send_chunk(i, role_choice(static_cast<int32_t>(i)));
}

void Generation::send_choice(size_t index, Json choice) {
  add_token_ids(index, choice);
  send_chunk(index, std::move(choice));
}

void Generation::send_chunk(size_t index, Json choice) {
  Json chunk = head_.object({});
  add_prompt_ids(index, choice, chunk);
  chunk.set("choices", Json(Json::Array{std::move(choice)}));
  if (request_.usage_in_chunks) chunk.set("usage", usage_so_far());
  send(chunk);
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
    logprobs = echo_logprobs(token_names(), prompt_of(index).front(), choice.prompt_logprobs,
                             choice.text_offset);
  send_choice(index, chunk_choice(head_, static_cast<int32_t>(index), &event, {}, nullptr,
                                  std::move(logprobs)));
  return true;
}

std::string Generation::write_blocks() {
  std::string events;
  const std::vector<OutputEvent> fresh = events_of(0);
  const Json logprobs = logprobs_of(choices_.front());
  if (const Json* entries = logprobs.find("content")) writer_->take_logprobs(entries->as_array());
  for (const OutputEvent& event : fresh) events += writer_->add(event);
  return events;
}

/// The progress as llama.cpp spells it.
void Generation::send_progress(size_t index) {
  for (const PromptProgress& progress : std::exchange(choices_[index].progress, {})) {
    Json chunk = head_.object(
        {chunk_choice(head_, static_cast<int32_t>(index), nullptr, {}, nullptr, Json())});
    chunk.set("prompt_progress",
              json_object({{"total", Json(progress.total)},
                           {"cache", Json(progress.cached)},
                           {"processed", Json(progress.processed)},
                           {"time_ms", Json(static_cast<int64_t>(progress.elapsed_ms))}}));
    send(chunk);
  }
}

void Generation::stream_event(int32_t index, const OutputEvent& event) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool call = event.kind >= OutputEvent::Kind::tool_begin;
  const bool more =
      request_.sampling.wants_logprobs() || request_.usage_in_chunks || request_.return_token_ids;
  if (!call && !more) {
    const bool content = event.kind == OutputEvent::Kind::content;
    auto& chunks = content ? choice.content_chunks : choice.reasoning_chunks;
    if (!chunks) chunks.emplace(head_, index, event.kind);
    return chunks->append(pending_, event.text);
  }
  if (event.kind == OutputEvent::Kind::tool_begin) choice.text.add(event);  // gives it an id
  const std::string tool_id = call ? choice.text.calls[static_cast<size_t>(event.tool)].id : "";
  send_choice(static_cast<size_t>(index),
              chunk_choice(head_, index, &event, tool_id, nullptr, logprobs_of(choice)));
}

void Generation::stream_choice(int32_t index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  send_progress(static_cast<size_t>(index));
  if (!send_echo(static_cast<size_t>(index))) return;
  for (const OutputEvent& event : events_of(static_cast<size_t>(index))) {
    if (!shown(event) || request_.completion == Completion::dropped) continue;
    stream_event(index, event);
  }
  if (!choice.finished || choice.end_sent || (choice.held && !choice.held->settled())) return;
  choice.end_sent = true;
  const ChoiceEnd end = end_of(choice);
  send_choice(static_cast<size_t>(index),
              chunk_choice(head_, index, nullptr, {}, &end, logprobs_of(choice)));
}

void Generation::finish_stream() {
  const ChoiceEnd end = end_of(choices_.front());
  outcome_ = end.finish_reason;
  if (writer_) {
    pending_ += writer_->finish(end, counts());
    return tell_response();
  }
  if (request_.include_usage) {
    Json last = head_.object({});
    last.set("usage", counts().usage());
    if (request_.return_progress) last.set("timings", timings());
    send(last);
  }
  pending_ += "data: [DONE]\n\n";
}

}  // namespace nibble
