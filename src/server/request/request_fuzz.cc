// Fuzz entry: whatever a body says, parsing ends in a request the engine can take or in one short
// line; for a model of text and for one that takes images.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "server/request/generation_request.h"
#include "server/testing/test_images.h"

namespace {

using namespace nibble;

void check_error(const ApiError& error) {
  CHECK(error.status >= 400 && error.status < 500, error.status, " ", error.message);
  CHECK(parse_json(error.json().dump(), "the error").ok(), error.message);
}

/// Each image has its tokens and its patches.
void check_images(const SequenceRequest& sequence) {
  int32_t end = 0;
  for (const MediaRows& media : sequence.media) {
    CHECK(media.span.begin >= end && media.span.count > 0 && media.patches != nullptr);
    end = media.span.begin + media.span.count;
    CHECK(end <= static_cast<int32_t>(sequence.prompt.size()));
    CHECK(media.patches->grid.rows(2) == media.span.count, media.span.count);
  }
}

void check_sequence(const SequenceRequest& sequence, const ServedModel& model) {
  const auto total = static_cast<int64_t>(sequence.prompt.size()) + sequence.max_tokens;
  CHECK(!sequence.prompt.empty() && sequence.max_tokens > 0);
  CHECK(total <= model.context_max, "tokens ", total);
  CHECK(std::ranges::is_sorted(sequence.cache.boundaries));
  for (const int32_t tokens : sequence.cache.boundaries)
    CHECK(tokens > 0 && tokens <= static_cast<int32_t>(sequence.prompt.size()));
  if (sequence.constraint) {
    std::vector<uint32_t> bits = model.sampleable();
    sequence.constraint->mask({}, bits);
    const std::vector<int32_t> said(40, 'a');
    const size_t kept = sequence.constraint->accept(said).value_or(said.size());
    sequence.constraint->rollback(kept / 2);
  }
  for (const int32_t id : sequence.prompt) CHECK(id >= 0 && id < model.vocab_rows, "id ", id);
  check_images(sequence);
}

void parse(std::string_view body, Api api, const ServedModel& model) {
  auto parsed = parse_generation_request(api, body, model);
  if (auto* sound = std::get_if<GenerationRequest>(&parsed))
    if (auto why = compile_structure(model, *sound)) parsed = std::move(*why);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return check_error(*error);
  const auto& request = std::get<GenerationRequest>(parsed);
  for (size_t i = 0; i < request.prompts.size() * static_cast<size_t>(request.choices); ++i)
    check_sequence(request.sequence(model, i, i), model);
}

ServedModel with_grammars(ServedModel model) {
  const auto words = model.grammar_vocabulary();
  model.grammars = std::make_shared<GrammarCompiler>([words] { return words; });
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ServedModel text = with_grammars(nibble::testing::served_model());
  static const ServedModel seeing = with_grammars(nibble::testing::model_with_images());
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const bool images = body.find("image") != std::string_view::npos;
  for (const Api api : {Api::chat, Api::completions, Api::messages, Api::responses})
    parse(body, api, images ? seeing : text);
  return 0;
}
