// Names and meanings follow OpenAI's reference and, for what it lacks, vLLM's.
#include "server/request/request_fields.h"

#include <charconv>
#include <random>

namespace nibble {

namespace {

void read_sampling(FieldReader& fields, const ServedModel& model, SamplingParams& s) {
  s = model.sampling;
  s.temperature = fields.number("temperature", 0.0, 100.0).value_or(s.temperature);
  s.top_p = fields.number("top_p", 0.0, 1.0).value_or(s.top_p);
  s.min_p = fields.number("min_p", 0.0, 1.0).value_or(s.min_p);
  if (const auto k = fields.integer("top_k", -1, INT32_MAX))
    s.top_k = static_cast<int32_t>(std::max<int64_t>(*k, 0));
  s.presence_penalty = fields.number("presence_penalty", -2.0, 2.0).value_or(s.presence_penalty);
  s.frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0).value_or(s.frequency_penalty);
  s.repetition_penalty =
      fields.number("repetition_penalty", 0.01, 10.0).value_or(s.repetition_penalty);
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  std::random_device entropy;
  s.seed = seed ? static_cast<uint64_t>(*seed) : uint64_t{entropy()} << 32 | entropy();
}

void read_logit_bias(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                     SamplingParams& s) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  constexpr auto kName = "logit_bias";
  if (!value->is_object() || value->as_object().size() > limits.logit_bias_max)
    return fields.refuse(
        kName, {.what = kName,
                .expected = concat("an object with at most ", limits.logit_bias_max, " entries"),
                .found = shown(*value)});
  for (const auto& [key, bias] : value->as_object()) {
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = end.ec == std::errc() && end.ptr == key.data() + key.size();
    if (!whole || id < 0 || id >= model.vocab_rows)
      return fields.refuse(kName, {.what = "a key of logit_bias",
                                   .expected = concat("a token id below ", model.vocab_rows),
                                   .found = shown(Json(key))});
    if (!bias.is_number() || bias.as_double() < -100.0 || bias.as_double() > 100.0)
      return fields.refuse(kName, {.what = concat("logit_bias of token ", id),
                                   .expected = "a number from -100 to 100",
                                   .found = shown(bias)});
    s.logit_bias.push_back({id, static_cast<float>(bias.as_double())});
  }
}

/// chat: logprobs is a flag beside top_logprobs; completions: a number.
void read_logprobs(FieldReader& fields, const RequestLimits& limits, GenerationRequest& request) {
  if (request.api == Api::completions) {
    if (const auto n = fields.integer("logprobs", 0, limits.logprobs_max))
      request.sampling.top_logprobs = static_cast<int32_t>(*n);
    return;
  }
  const bool wanted = fields.flag("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, limits.logprobs_max);
  if (top.value_or(0) > 0 && !wanted)
    fields.refuse("top_logprobs", {.what = "top_logprobs needs \"logprobs\": true"});
  if (wanted) request.sampling.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

void read_streaming(FieldReader& fields, GenerationRequest& request) {
  if (fields.flag("stream").value_or(false)) request.delivery = Delivery::stream;
  const bool progress = fields.flag("return_progress").value_or(false);
  request.return_progress = progress && request.delivery == Delivery::stream;
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (request.delivery != Delivery::stream)
    return fields.refuse("stream_options", {.what = "stream_options needs \"stream\": true"});
  if (!options->is_object())
    return fields.refuse(
        "stream_options",
        {.what = "stream_options", .expected = "an object", .found = shown(*options)});
  FieldReader inner(*options);
  request.include_usage = inner.flag("include_usage").value_or(false);
  const bool each = inner.flag("continuous_usage_stats").value_or(false);
  request.usage_in_chunks = each && request.include_usage;
  if (inner.error()) fields.set_error(*inner.error());
}

/// -1: no limit but the context's.
std::optional<int64_t> read_token_limit(FieldReader& fields, std::string_view name, int64_t least) {
  const auto limit = fields.integer(name, -1, INT32_MAX);
  if (!limit || *limit >= least) return limit;
  if (*limit == -1) return INT32_MAX;
  fields.refuse(name, {.what = name,
                       .expected = concat("a whole number from ", least, " to ", INT32_MAX,
                                          ", or -1 for no limit"),
                       .found = concat(*limit)});
  return std::nullopt;
}

void read_token_limits(FieldReader& fields, GenerationRequest& request) {
  // The newer name wins. Without either: generation_config.json's, else whatever fits.
  const bool may_be_none = request.echo == Echo::prompt;
  const auto tokens_max = read_token_limit(fields, "max_tokens", may_be_none ? 0 : 1);
  const auto newer = read_token_limit(fields, "max_completion_tokens", 1);
  request.max_tokens = static_cast<int32_t>(newer.value_or(tokens_max.value_or(0)));
  request.any_max_tokens = request.max_tokens == INT32_MAX;
  if (may_be_none && !newer && tokens_max == 0) {  // the engine makes one, nobody sees it
    request.max_tokens = 1;
    request.completion = Completion::dropped;
  }
  request.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, INT32_MAX).value_or(0));
}

void read_truncation(FieldReader& fields, const ServedModel& model, GenerationRequest& request) {
  constexpr auto kName = "truncate_prompt_tokens";
  const auto tokens = fields.integer(kName, -1, model.context_max);
  if (tokens == 0)
    fields.refuse(kName,
                  {.what = kName,
                   .expected = concat("1 to ", model.context_max, ", or -1 for as many as fit"),
                   .found = "0"});
  if (tokens) request.prompt_tokens_max = static_cast<int32_t>(*tokens);
  const auto side = fields.text("truncation_side");
  if (side && *side != "left" && *side != "right")
    fields.refuse("truncation_side",
                  {.what = "truncation_side", .expected = "left or right", .found = *side});
  if (side == "right") request.kept_end = GenerationRequest::PromptEnd::first;
}

void refuse_unbuilt(FieldReader& fields, const GenerationRequest& request) {
  const Json off(false);
  for (const char* name :
       {"logprob_token_ids", "kv_transfer_params", "logits_processors", "custom_logit_processor"})
    fields.unsupported(name);
  fields.unsupported("use_beam_search", {off});
  for (const std::string_view name : kAdapterFields) {
    const Json* adapter = fields.find(name);
    if (adapter != nullptr && *adapter != Json(Json::Array{}))
      fields.refuse(name, {.what = concat(name, ": adapters (LoRA) are not served"),
                           .advice = "leave it out, or serve a checkpoint they are merged into"});
  }
  fields.unsupported(request.api == Api::completions ? "continue_final_message" : "echo", {off});
  fields.unsupported("length_penalty", {Json(1.0), Json(1)});
  fields.unsupported("suffix", {Json("")});
  fields.unsupported("best_of", {Json(1)});
}

}  // namespace

std::string context_words(const ServedModel& model) {
  return concat(" (this model's maximum context length is ", model.context_max, " tokens)");
}

bool check_prompt_bytes(FieldReader& fields, const ServedModel& model, std::string_view field,
                        size_t bytes) {
  if (bytes <= model.prompt_bytes_max()) return true;
  fields.set_error(
      {.message = concat("the prompt is too long: expected at most ", model.context_max - 1,
                         " tokens", context_words(model), ", found ", bytes,
                         " bytes of text; shorten it or raise --max-model-len"),
       .param = std::string(field),
       .code = "context_length_exceeded"});
  return false;
}

void read_common_fields(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                        GenerationRequest& request) {
  request.model = fields.text("model").value_or("");
  read_streaming(fields, request);
  read_sampling(fields, model, request.sampling);
  read_logit_bias(fields, model, limits, request.sampling);
  read_logprobs(fields, limits, request);
  read_stops(fields, model, limits, request);
  read_token_rules(fields, model, limits, request);
  if (fields.flag("return_tokens_as_token_ids").value_or(false)) request.token_name = TokenName::id;
  read_serving_fields(fields, model, limits, request);
  refuse_unbuilt(fields, request);
  request.choices = static_cast<int32_t>(fields.integer("n", 1, limits.choices_max).value_or(1));
  const bool skip = fields.flag("skip_special_tokens").value_or(true);
  request.skip_special = skip ? SkipSpecial::yes : SkipSpecial::no;
  read_token_limits(fields, request);
  read_truncation(fields, model, request);
  request.return_token_ids = fields.flag("return_token_ids").value_or(false);
}

}  // namespace nibble
