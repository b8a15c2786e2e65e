// The fields that end an answer, and those that allow or ban tokens.
#include "server/decode/token_limits.h"
#include "server/request/request_fields.h"

namespace nibble {

namespace {

/// A list of at most logit_bias_max token ids; nothing if the field is absent or refused.
std::optional<std::vector<int32_t>> read_token_ids(FieldReader& fields, const char* name,
                                                   const ServedModel& model,
                                                   const RequestLimits& limits) {
  const Json* value = fields.find(name);
  if (value == nullptr) return std::nullopt;
  const bool list = value->is_array() && value->as_array().size() <= limits.logit_bias_max;
  std::vector<int32_t> ids;
  for (const Json& id : list ? value->as_array() : Json::Array{Json()}) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_rows) {
      fields.refuse(name, {.what = name,
                           .expected = concat("a list of at most ", limits.logit_bias_max,
                                              " token ids below ", model.vocab_rows),
                           .found = list ? shown(id) : shown(*value)});
      return std::nullopt;
    }
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return ids;
}

}  // namespace

void read_stops(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                GenerationRequest& request) {
  if (!fields.flag("ignore_eos").value_or(false)) request.stop_ids = model.stop_ids;
  if (const auto ids = read_token_ids(fields, "stop_token_ids", model, limits))
    request.stop_ids.insert(request.stop_ids.end(), ids->begin(), ids->end());
  if (fields.flag("include_stop_str_in_output").value_or(false)) request.stop_text = StopText::kept;
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json::Array strings = stop->is_array() ? stop->as_array() : Json::Array{*stop};
  const ErrorParts refusal = {.what = "stop",
                              .expected = "a string, or a list of strings, none empty"};
  if (strings.size() > limits.stop_strings_max)
    return fields.refuse("stop",
                         {.what = "stop",
                          .expected = concat("at most ", limits.stop_strings_max, " strings"),
                          .found = concat(strings.size())});
  for (const Json& string : strings) {
    if (!string.is_string() || string.as_string().empty()) return fields.refuse("stop", refusal);
    if (string.as_string().size() > limits.stop_bytes_max)
      return fields.refuse("stop", {.what = "a stop string",
                                    .expected = concat("at most ", limits.stop_bytes_max, " bytes"),
                                    .found = concat(string.as_string().size())});
    request.stops.push_back(string.as_string());
  }
}

void read_token_rules(FieldReader& fields, const ServedModel& model, const RequestLimits& limits,
                      GenerationRequest& request) {
  if (auto ids = read_token_ids(fields, "allowed_token_ids", model, limits))
    request.allowed_tokens = std::move(*ids);
  const Json* words = fields.find("bad_words");
  if (words == nullptr) return;
  if (!words->is_array() || words->as_array().size() > limits.logit_bias_max)
    return fields.refuse(
        "bad_words", {.what = "bad_words",
                      .expected = concat("a list of at most ", limits.logit_bias_max, " strings"),
                      .found = shown(*words)});
  for (const Json& word : words->as_array()) {
    const bool sound = word.is_string() && !word.as_string().empty() &&
                       word.as_string().size() <= limits.stop_bytes_max;
    if (!sound)
      return fields.refuse(
          "bad_words", {.what = "a word of bad_words",
                        .expected = concat("a string of 1 to ", limits.stop_bytes_max, " bytes"),
                        .found = shown(word)});
    auto spellings = spellings_of(model.tokenizer, word.as_string());
    if (!spellings.ok()) return fields.refuse("bad_words", {.what = spellings.error().message});
    for (auto& ids : spellings.value()) request.banned_words.push_back(std::move(ids));
  }
}

}  // namespace nibble
