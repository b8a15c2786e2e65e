// The engine's request of a choice, and the decoder of its tokens.
#include <algorithm>

#include "server/request/cache_salt.h"
#include "server/request/generation_request.h"

namespace nibble {

SequenceRequest GenerationRequest::sequence(const ServedModel& served, size_t index,
                                            uint64_t id) const {
  SequenceRequest sequence;
  sequence.id = id;
  sequence.prompt = prompts[index / static_cast<size_t>(choices)];
  sequence.media = media;
  sequence.max_tokens = max_tokens;
  sequence.min_tokens = min_tokens;
  sequence.stop_ids = stop_ids;
  sequence.sampling = sampling;
  sequence.sampling.choice = static_cast<uint32_t>(index % static_cast<size_t>(choices));
  sequence.constraint = constraint(served, index);
  sequence.cache = cache;
  sequence.cache.salt = cache_salt_of(cache_tenant, cache_salt);
  if (served.tags.tool_begin) sequence.cache.anchor_ids = {*served.tags.tool_begin};
  sequence.urgency = {
      .tenant = turn_tenant, .weight = weight, .priority = priority, .deadline_ms = 0.0};
  sequence.prompt_logprobs = prompt_logprobs_wanted();
  // One choice computes the prompt, the others find it in the cache.
  sequence.tells_progress = return_progress && index % static_cast<size_t>(choices) == 0;
  return sequence;
}

int32_t GenerationRequest::prompt_logprobs_wanted() const {
  const int32_t of_echo = echo == Echo::prompt ? sampling.top_logprobs : -1;
  return std::max(of_echo, prompt_logprobs);
}

bool GenerationRequest::calls_held() const {
  return grammar != nullptr && parse_tools != ParseTools::no && structure &&
         (structure->kind == GrammarSource::Kind::tool_calls ||
          structure->kind == GrammarSource::Kind::free_calls);
}

ChoiceDecoder GenerationRequest::decoder(const ServedModel& served, size_t index) const {
  ChoiceDecoder::Options options{.stops = stops,
                                 .stop_text = stop_text,
                                 .stops_after = min_tokens,
                                 .start = StartIn::content,
                                 .parse_tools = calls_held() ? ParseTools::sound : parse_tools,
                                 .schemas = schemas,
                                 .skip_special = skip_special};
  options.split = api == Api::completions ? SplitReasoning::no : SplitReasoning::yes;
  if (api != Api::completions)
    options.start = start_of(served, prompts[index / static_cast<size_t>(choices)]);
  return ChoiceDecoder(served, std::move(options));
}

}  // namespace nibble
