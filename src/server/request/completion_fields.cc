// The prompts of a completion request.
#include <algorithm>

#include "server/request/request_fields.h"

namespace nibble {

namespace {

constexpr auto kExpected =
    "a string, a list of strings, a list of token ids, or a list of lists of token ids";

/// Client text becomes a special token only where the operator says so; ids always may be sent.
void add_text(FieldReader& fields, const ServedModel& model, const std::string& text,
              GenerationRequest& request) {
  if (!check_prompt_bytes(fields, model, "prompt", text.size())) return;
  auto ids = model.tokenizer.encode(text, model.completion_prompts);
  if (!ids.ok())
    fields.set_error(ApiError::from(ids.error()));
  else
    request.prompts.push_back(std::move(ids).value());
}

void add_ids(FieldReader& fields, const ServedModel& model, const Json::Array& list,
             GenerationRequest& request) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_rows)
      return fields.refuse("prompt", {.what = "a token id of prompt",
                                      .expected = concat("0 to ", model.vocab_rows - 1),
                                      .found = shown(id)});
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  request.prompts.push_back(std::move(ids));
}

}  // namespace

void read_completion_fields(FieldReader& fields, const ServedModel& model,
                            const RequestLimits& limits, GenerationRequest& request) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr)
    return fields.refuse("prompt", {.what = "prompt", .expected = kExpected, .found = "nothing"});
  if (prompt->is_string()) return add_text(fields, model, prompt->as_string(), request);
  if (!prompt->is_array())
    return fields.refuse("prompt",
                         {.what = "prompt", .expected = kExpected, .found = shown(*prompt)});
  const Json::Array& list = prompt->as_array();
  if (!list.empty() && std::ranges::all_of(list, &Json::is_int))
    return add_ids(fields, model, list, request);
  if (list.empty() || list.size() > static_cast<size_t>(limits.choices_max))
    return fields.refuse("prompt", {.what = "prompt",
                                    .expected = concat("1 to ", limits.choices_max, " prompts"),
                                    .found = concat(list.size())});
  for (const Json& item : list) {
    if (item.is_string())
      add_text(fields, model, item.as_string(), request);
    else if (item.is_array())
      add_ids(fields, model, item.as_array(), request);
    else
      fields.refuse("prompt", {.what = "prompt", .expected = kExpected, .found = shown(item)});
  }
}

}  // namespace nibble
