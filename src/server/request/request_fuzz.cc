// Fuzz entry: whatever a body says, parsing ends in a request the engine can take or in one short
// line.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "server/request/generation_request.h"
#include "server/testing/test_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  static const ServedModel model = [] {
    ServedModel made = nibble::testing::served_model();
    const auto words = made.grammar_vocabulary();
    made.grammars = std::make_shared<GrammarCompiler>([words] { return words; });
    return made;
  }();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Api api : {Api::chat, Api::completions, Api::messages, Api::responses}) {
    auto parsed = parse_generation_request(api, body, model);
    if (auto* sound = std::get_if<GenerationRequest>(&parsed))
      if (auto why = compile_structure(model, *sound)) parsed = std::move(*why);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      CHECK(error->status >= 400 && error->status < 500, error->status, " ", error->message);
      CHECK(parse_json(error->json().dump(), "the error").ok(), error->message);
      continue;
    }
    const auto& request = std::get<GenerationRequest>(parsed);
    for (size_t i = 0; i < request.prompts.size() * static_cast<size_t>(request.choices); ++i) {
      const SequenceRequest sequence = request.sequence(model, i, i);
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
    }
  }
  return 0;
}
