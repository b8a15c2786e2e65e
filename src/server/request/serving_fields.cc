// Fields about how a request is served and watched: room for thinking, repetition,
// log-probabilities of the prompt, priority, cache salt, time limit.
#include <charconv>

#include "server/request/request_fields.h"

namespace nibble {

namespace {

constexpr int32_t kPatternMax = 1024;
constexpr int32_t kRepeatedTokensMax = 16384;  // pattern times count: bounds the work of a rollback
constexpr size_t kCacheSaltBytesMax = 128;
constexpr int32_t kPriorityMax = 1000;
constexpr int32_t kTierStep = 100;  // difference of priority between adjacent service tiers
constexpr double kTimeoutMsMax = 86'400e3;

/// The budget under the names of vLLM, of Qwen's own service, and of llama.cpp, where -1 is none.
void read_thinking_budget(FieldReader& fields, const ServedModel& model,
                          GenerationRequest& request) {
  for (const char* name :
       {"thinking_token_budget", "max_thinking_tokens", "thinking_budget", "reasoning_budget"}) {
    const auto tokens = fields.integer(name, -1, INT32_MAX);
    if (!tokens || request.thinking_budget) continue;
    if (*tokens < 0) continue;
    if (!model.tags.think_end)
      return fields.refuse(
          name, {.what = concat(name, ": this model does not think"), .advice = "leave it out"});
    request.thinking_budget = static_cast<int32_t>(*tokens);
  }
}

/// {"max_pattern_size", "min_pattern_size", "min_count"}; a largest pattern of 0 is off.
void read_repetition(FieldReader& fields, GenerationRequest& request) {
  constexpr auto kName = "repetition_detection";
  const Json* value = fields.find(kName);
  if (value == nullptr) return;
  if (!value->is_object())
    return fields.refuse(kName, {.what = kName, .expected = "an object", .found = shown(*value)});
  FieldReader inner(*value);
  const auto read = [&](const char* name, int64_t most) {
    return static_cast<int32_t>(inner.integer(name, 0, most).value_or(0));
  };
  const int32_t largest = read("max_pattern_size", kPatternMax);
  const int32_t smallest = std::max(read("min_pattern_size", kPatternMax), 1);
  const int32_t count = read("min_count", kRepeatedTokensMax);
  if (inner.error()) return fields.set_error(*inner.error());
  if (largest == 0) return;
  if (smallest > largest)
    return fields.refuse(kName, {.what = "repetition_detection.min_pattern_size",
                                 .expected = concat("at most max_pattern_size, ", largest),
                                 .found = concat(smallest)});
  if (count < 2 || count * largest > kRepeatedTokensMax)
    return fields.refuse(kName, {.what = "repetition_detection.min_count",
                                 .expected = concat("2 to ", kRepeatedTokensMax / largest,
                                                    " with patterns of ", largest),
                                 .found = concat(count)});
  request.repetition = {.pattern_min = smallest, .pattern_max = largest, .count_min = count};
}

/// echo is of completions alone; with it, their logprobs cover the prompt too.
void read_prompt_logprobs(FieldReader& fields, const RequestLimits& limits,
                          GenerationRequest& request) {
  if (request.api == Api::completions && fields.flag("echo").value_or(false))
    request.echo = Echo::prompt;
  if (const auto top = fields.integer("prompt_logprobs", 0, limits.logprobs_max)) {
    if (request.delivery == Delivery::stream)
      return fields.refuse("prompt_logprobs",
                           {.what = "prompt_logprobs are not given in a stream",
                            .advice = "leave out \"stream\" or ask for echo and logprobs"});
    request.prompt_logprobs = static_cast<int32_t>(*top);
  }
}

/// priority as in vLLM, the smaller the sooner; service_tier is a coarse form of it.
void read_priority(FieldReader& fields, GenerationRequest& request) {
  const auto tier = fields.text("service_tier");
  if (tier == "flex") request.priority = kTierStep;
  if (tier == "priority") request.priority = -kTierStep;
  const auto priority = fields.integer("priority", -kPriorityMax, kPriorityMax);
  request.priority = static_cast<int32_t>(priority.value_or(request.priority));
}

}  // namespace

void read_serving_fields(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                         GenerationRequest& request) {
  read_thinking_budget(fields, model, request);
  if (const auto tokens = fields.integer("answer_reserve", 0, INT32_MAX))
    request.answer_reserve = static_cast<int32_t>(*tokens);
  read_repetition(fields, request);
  read_prompt_logprobs(fields, limits, request);
  read_priority(fields, request);
  request.cache_salt = fields.text("cache_salt").value_or("");
  if (request.cache_salt.size() > kCacheSaltBytesMax)
    fields.refuse("cache_salt", {.what = "cache_salt",
                                 .expected = concat("at most ", kCacheSaltBytesMax, " bytes"),
                                 .found = concat(request.cache_salt.size())});
  request.timeout_ms = fields.number("max_time_ms", 1.0, kTimeoutMsMax).value_or(0.0);
}

std::optional<ApiError> apply_client(const ClientFacts& client, GenerationRequest& request) {
  request.tenant = client.tenant;
  request.turn_tenant = client.turn_tenant;
  request.cache_tenant = client.cache_tenant;
  request.weight = client.weight;
  if (client.timeout_seconds.empty()) return std::nullopt;
  const std::string_view text = client.timeout_seconds;
  double seconds = 0.0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  if (!whole || !(seconds >= 1e-3 && seconds <= kTimeoutMsMax / 1e3))
    return ApiError::field("", {.what = "the header X-Request-Timeout",
                                .expected = concat("seconds from 0.001 to ", kTimeoutMsMax / 1e3),
                                .found = shown(Json(text))});
  const double header_ms = seconds * 1e3;
  request.timeout_ms =
      request.timeout_ms > 0.0 ? std::min(request.timeout_ms, header_ms) : header_ms;
  return std::nullopt;
}

}  // namespace nibble
