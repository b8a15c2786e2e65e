// The fields of a generation request that chat and completions share, and those of each. Private to
// generation_request.cc and its siblings.
#pragma once

#include "server/request/field_reader.h"
#include "server/request/generation_request.h"

namespace nibble {

/// Sampling, limits, stops, streaming; refuses by name what is not built. `fields` reads `body`.
void read_common_fields(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                        GenerationRequest& request);
/// Thinking budget, repetition, echo and prompt logprobs, priority, cache salt, time limit.
void read_serving_fields(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                         GenerationRequest& request);
/// The ids and strings that end the answer.
void read_stops(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                GenerationRequest& request);
/// allowed_token_ids and bad_words, as vLLM has them.
void read_token_rules(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                      GenerationRequest& request);
/// Names under which other servers take adapters (LoRA); none are served here.
inline constexpr std::string_view kAdapterFields[] = {"lora", "lora_path", "lora_request",
                                                      "adapter_id"};
/// The context in the words by which clients know that a prompt was too long for it.
std::string context_words(const ServedModel& model);
/// Refuses text that is too long to be worth tokenising.
bool check_prompt_bytes(FieldReader& fields, const ServedModel& model, std::string_view field,
                        size_t bytes);
/// messages, tools, template: fills prompts, parse_tools, schemas. What the tools ask of the
/// answer: a forced call, sound calls of strict functions, or nothing.
std::optional<GrammarSource> read_chat_fields(FieldReader& fields, const ServedModel& model,
                                              const RequestLimits& limits,
                                              GenerationRequest& request);
/// mm_processor_kwargs, as vLLM has them; null: not given, or the model takes no images.
Json image_settings(FieldReader& fields, const ServedModel& model);
/// Reads the headers of the images that messages held, decodes the videos, and gives each its
/// tokens of the prompt and the places of the cache theirs. Takes long where there are videos.
/// Refuses any of them in a prompt that is to be cut.
std::optional<ApiError> place_images(const ServedModel& model, const Json& settings,
                                     GenerationRequest& request);
/// Refuses a prompt of text or ids with tokens that stand for images or videos: it has none.
std::optional<ApiError> placeholders_alone(const ServedModel& model,
                                           const GenerationRequest& request);
/// Decodes the images into their places of the prompt. Takes long.
std::optional<ApiError> read_pixels(const ServedModel& model, GenerationRequest& request);
/// response_format and its like, or `calls` if none is there: fills request.structure.
void read_structure(FieldReader& fields, const ServedModel& model, GenerationRequest& request,
                    std::optional<GrammarSource> calls);
/// prompt: a string, a list of strings, ids, or lists of ids.
void read_completion_fields(FieldReader& fields, const ServedModel& model,
                            const RequestLimits& limits, GenerationRequest& request);

}  // namespace nibble
