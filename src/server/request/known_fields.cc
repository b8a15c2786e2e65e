// One table: a name and the APIs that know it.
#include "server/request/known_fields.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/edit_distance.h"
#include "server/request/field_reader.h"

namespace nibble {

namespace {

using Names = std::vector<std::string_view>;

constexpr std::string_view kEvery[] = {
    "model",       "stream",
    "temperature", "top_p",
    "top_k",       "min_p",
    "seed",        "priority",
    "cache_salt",  "answer_reserve",
    "max_time_ms", "service_tier",
    "metadata",    "chat_template_kwargs",
};

/// Sampling fields of chats and completions.
constexpr std::string_view kSampling[] = {
    "n",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "skip_special_tokens",
    "thinking_token_budget",
    "max_thinking_tokens",
    "thinking_budget",
    "reasoning_budget",
    "repetition_detection",
    "return_progress",
    // Structures.
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
    "regex",
    "grammar",
    "ebnf",
    // Refused by name unless they ask for nothing.
    "bad_words",
    "allowed_token_ids",
    "truncate_prompt_tokens",
    "truncation_side",
    "logprob_token_ids",
    "kv_transfer_params",
    "logits_processors",
    "custom_logit_processor",
    "include_stop_str_in_output",
    "use_beam_search",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "continue_final_message",
    "length_penalty",
    "suffix",
    "best_of",
    "lora",
    "lora_path",
    "lora_request",
    "adapter_id",
    // These fields have no meaning here.
    "user",
    "store",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "request_id",
    "enable_thinking",
    "reasoning_effort",
};

constexpr std::string_view kChat[] = {
    "messages",          "tools",           "tool_choice",   "parallel_tool_calls",
    "include_reasoning", "reasoning_field", "chat_template", "add_generation_prompt",
    "documents",         "functions",       "audio",         "modalities",
    "verbosity",
};

constexpr std::string_view kMessages[] = {
    "max_tokens",    "messages",      "system",    "stop_sequences",
    "tools",         "tool_choice",   "thinking",  "context_management",
    "output_config", "output_format", "container", "mcp_servers",
    "thread",
};

constexpr std::string_view kResponses[] = {
    "input",
    "instructions",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "thinking_token_budget",
    "enable_thinking",
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
    "store",
    "include",
    "truncation",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "max_tool_calls",
    "stream_options",
    "top_logprobs",
    // vLLM takes these too.
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "structured_outputs",
};

Names names_of(Api api) {
  Names names(std::begin(kEvery), std::end(kEvery));
  const auto add = [&](std::span<const std::string_view> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (api == Api::chat || api == Api::completions) add(kSampling);
  if (api == Api::chat) add(kChat);
  if (api == Api::completions) names.emplace_back("prompt");
  if (api == Api::messages) add(kMessages);
  if (api == Api::responses) add(kResponses);
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::span<const std::string_view> known_fields(Api api) {
  static const std::array<Names, 4> names = {names_of(Api::chat), names_of(Api::completions),
                                             names_of(Api::messages), names_of(Api::responses)};
  return names.at(static_cast<size_t>(api));
}

std::optional<ApiError> unknown_field(Api api, const Json& body) {
  constexpr size_t kNameBytesMax = 64;  // beyond, nothing is near
  const auto known = known_fields(api);
  for (const Json::Member& member : body.as_object()) {
    const std::string& name = member.key;
    if (std::ranges::binary_search(known, name)) continue;
    std::string advice = "leave it out";
    if (name.size() <= kNameBytesMax)
      advice = concat("the nearest is ", *std::ranges::min_element(known, {}, [&](auto other) {
                        return edit_distance(name, other);
                      }));
    return ApiError::field(name.size() <= kNameBytesMax ? name : "",
                           {.what = "an unknown field",
                            .expected = "one that this server knows",
                            .found = shown(Json(name)),
                            .advice = advice});
  }
  return std::nullopt;
}

}  // namespace nibble
