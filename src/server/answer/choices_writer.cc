// Chunks and whole answers with choices.
#include "server/answer/choices_writer.h"

#include <utility>

namespace nibble {

namespace {

void set_end(Json& choice, const ChoiceEnd* end) {
  choice.set("finish_reason", end != nullptr ? Json(end->finish_reason) : Json());
  if (end != nullptr) choice.set("stop_reason", end->stop_reason);
}

/// Counts while choices still run. Details are told at the end alone.
Json usage_so_far(const TokenCounts& counts) {
  return json_object({{"prompt_tokens", Json(counts.prompt)},
                      {"completion_tokens", Json(counts.completion_so_far)},
                      {"total_tokens", Json(counts.prompt + counts.completion_so_far)}});
}

/// Timings in llama.cpp's words. The rate counts the tokens after the first, whose time is the
/// prompt's.
Json timings(const TokenCounts& counts, const AnswerTimes& times) {
  const double rate = times.generation_ms > 0.0
                          ? static_cast<double>(times.tokens - 1) * 1e3 / times.generation_ms
                          : 0.0;
  Json json = json_object({{"cache_n", Json(counts.cached)},
                           {"prompt_n", Json(counts.prompt - counts.cached)},
                           {"prompt_ms", Json(times.prompt_ms)},
                           {"predicted_n", Json(times.tokens)},
                           {"predicted_ms", Json(times.generation_ms)},
                           {"predicted_per_second", Json(rate)}});
  if (counts.drafted == 0) return json;
  json.set("draft_n", counts.drafted);
  json.set("draft_n_accepted", counts.accepted);
  return json;
}

}  // namespace

Json ids_json(std::span<const int32_t> ids) {
  Json::Array list;
  for (const int32_t id : ids) list.emplace_back(id);
  return Json(std::move(list));
}

ChoicesWriter::ChoicesWriter(AnswerFrame frame)
    : frame_(std::move(frame)),
      choices_(request().prompts.size() * static_cast<size_t>(request().choices)) {}

const std::vector<int32_t>& ChoicesWriter::prompt_ids(size_t index) const {
  return request().prompts[index / static_cast<size_t>(request().choices)];
}

Json ChoicesWriter::object(Json::Array choices) const {
  const std::string& fingerprint = head().fingerprint;
  return json_object({{"id", Json(head().id)},
                      {"object", Json(object_name())},
                      {"created", Json(head().created)},
                      {"model", Json(head().model)},
                      {"system_fingerprint", fingerprint.empty() ? Json() : Json(fingerprint)},
                      {"choices", Json(std::move(choices))}});
}

Json ChoicesWriter::chunk_choice(size_t index, const OutputEvent* event, const ChoiceEnd* end,
                                 Json logprobs) const {
  std::string_view call_id;
  if (event != nullptr && event->kind == OutputEvent::Kind::tool_begin)
    call_id = choice(index).text.calls[static_cast<size_t>(event->tool)].id;
  Json json = json_object({{"index", Json(index)}});
  Json::Member fresh = piece(event, call_id);
  json.set(fresh.key, std::move(fresh.value));
  json.set("logprobs", std::move(logprobs));
  set_end(json, end);
  return json;
}

std::string ChoicesWriter::chunk(size_t index, Json json) {
  Json whole = object({});
  if (request().return_token_ids && !std::exchange(choice(index).prompt_ids_told, true))
    set_prompt_ids(index, json, whole);
  whole.set("choices", Json(Json::Array{std::move(json)}));
  if (request().usage_in_chunks) whole.set("usage", usage_so_far(counts()));
  return data_event(whole);
}

Json ChoicesWriter::ids_or_null(const TokenFacts& tokens) const {
  return tokens.passed ? ids_json(tokens.ids) : Json();
}

std::string ChoicesWriter::chunk_with_ids(size_t index, Json json) {
  if (request().return_token_ids) {
    TokenFacts& tokens = choice(index).tokens;
    json.set("token_ids", ids_or_null(tokens));
    if (tokens.passed) tokens.ids.clear();
  }
  return chunk(index, std::move(json));
}

Json ChoicesWriter::fresh_logprobs(Choice& choice) const {
  if (!request().sampling.wants_logprobs() || !choice.tokens.passed) return {};
  const auto positions = std::exchange(choice.tokens.logprobs, {});
  return positions.empty() ? Json() : logprobs_json(positions, choice.text_offset);
}

/// The progress as llama.cpp spells it.
std::string ChoicesWriter::progress(size_t index, const PromptProgress& progress) {
  Json json = object({chunk_choice(index, nullptr, nullptr, Json())});
  json.set("prompt_progress",
           json_object({{"total", Json(progress.total)},
                        {"cache", Json(progress.cached)},
                        {"processed", Json(progress.processed)},
                        {"time_ms", Json(static_cast<int64_t>(progress.elapsed_ms))}}));
  return data_event(json);
}

std::string ChoicesWriter::prompt(size_t index, std::vector<PositionLogprobs> positions) {
  choice(index).prompt_logprobs = std::move(positions);
  return {};
}

void ChoicesWriter::take_tokens(size_t index, TokenFacts facts) {
  TokenFacts& tokens = choice(index).tokens;
  tokens.passed = facts.passed;
  std::ranges::move(facts.logprobs, std::back_inserter(tokens.logprobs));
  tokens.ids.insert(tokens.ids.end(), facts.ids.begin(), facts.ids.end());
}

std::string ChoicesWriter::add(size_t index, const OutputEvent& event) {
  Choice& choice = this->choice(index);
  if (event.kind == OutputEvent::Kind::tool_end) return {};
  const bool call = event.kind >= OutputEvent::Kind::tool_begin;
  if (!streams() || event.kind == OutputEvent::Kind::tool_begin) choice.text.add(event);
  if (!streams()) return {};
  const bool more = request().sampling.wants_logprobs() || request().usage_in_chunks ||
                    request().return_token_ids;
  if (call || more)
    return chunk_with_ids(index, chunk_choice(index, &event, nullptr, fresh_logprobs(choice)));
  const bool content = event.kind == OutputEvent::Kind::content;
  auto& chunks = content ? choice.content_chunks : choice.reasoning_chunks;
  if (!chunks) {
    const OutputEvent nothing{.kind = event.kind};
    chunks.emplace(object({}), chunk_choice(index, &nothing, nullptr, Json()));
  }
  std::string written;
  chunks->append(written, event.text);
  return written;
}

std::string ChoicesWriter::end(size_t index, const ChoiceEnd& end) {
  Choice& choice = this->choice(index);
  choice.end = end;
  if (!streams()) return {};
  return chunk_with_ids(index, chunk_choice(index, nullptr, &end, fresh_logprobs(choice)));
}

std::string ChoicesWriter::finish(const AnswerTimes& times) {
  std::string written;
  if (request().include_usage) {
    Json last = object({});
    last.set("usage", counts().usage());
    if (request().return_progress) last.set("timings", timings(counts(), times));
    written = data_event(last);
  }
  return written + "data: [DONE]\n\n";
}

Json ChoicesWriter::whole_logprobs(size_t index) const {
  const TokenFacts& tokens = choice(index).tokens;
  if (!request().sampling.wants_logprobs() || !tokens.passed) return {};
  size_t text_offset = 0;
  return logprobs_json(tokens.logprobs, text_offset);
}

Json ChoicesWriter::whole_choice(size_t index) const {
  const Choice& choice = this->choice(index);
  Json json = json_object({{"index", Json(index)}});
  Json::Member said = text(choice.text);
  json.set(said.key, std::move(said.value));
  json.set("logprobs", whole_logprobs(index));
  set_end(json, choice.end ? &*choice.end : nullptr);
  return json;
}

Json ChoicesWriter::whole() const {
  Json answer = object({});
  Json::Array list;
  for (size_t i = 0; i < choices_.size(); ++i) {
    list.push_back(whole_choice(i));
    set_prompt_facts(i, list.back(), answer);
    if (request().return_token_ids) list.back().set("token_ids", ids_or_null(choice(i).tokens));
  }
  answer.set("choices", Json(std::move(list)));
  answer.set("usage", counts().usage());
  return answer;
}

}  // namespace nibble
