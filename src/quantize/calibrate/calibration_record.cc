// Shapes in order of preference: messages or conversations; prompt with completion, response or
// output; question with answer; instruction (and input) with output; inputs with targets; article
// (and highlights); text; token ids.
#include "quantize/calibrate/calibration_record.h"

#include <algorithm>

namespace nibble {
namespace {

constexpr std::string_view kFields[] = {
    "messages", "conversations", "tools",      "prompt", "completion", "response",
    "output",   "question",      "answer",     "input",  "inputs",     "instruction",
    "targets",  "article",       "highlights", "text",   "input_ids",  "ids"};

const Json* field(const Json& record, const FieldMap& fields, std::string_view name) {
  const auto renamed = fields.find(name);
  const Json* found = record.find(renamed == fields.end() ? name : renamed->second);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json* text_field(const Json& record, const FieldMap& fields, std::string_view name) {
  const Json* found = field(record, fields, name);
  return found != nullptr && found->is_string() ? found : nullptr;
}

Json message(std::string_view role, Json content) {
  Json out;
  out.set("role", role);
  out.set("content", std::move(content));
  return out;
}

Json exchange(const Json& asked, const Json& answered) {
  return Json(Json::Array{message("user", asked), message("assistant", answered)});
}

/// ShareGPT's {"from": "human", "value": "..."} as {"role": "user", "content": "..."}.
Json openai_message(const Json& given) {
  const Json *from = given.find("from"), *value = given.find("value");
  if (from == nullptr || value == nullptr || !from->is_string()) return given;
  const std::string& role = from->as_string();
  if (role == "human") return message("user", *value);
  if (role == "gpt" || role == "model" || role == "chatgpt") return message("assistant", *value);
  if (role == "function_response" || role == "observation") return message("tool", *value);
  return message(role, *value);
}

/// A conversation of question and answer, from one of the forms with two fields.
Json two_fields(const Json& record, const FieldMap& fields) {
  const auto get = [&](std::string_view name) { return text_field(record, fields, name); };
  if (const Json* prompt = get("prompt"))
    for (const std::string_view name : {"completion", "response", "output"})
      if (const Json* answer = get(name)) return exchange(*prompt, *answer);
  if (get("question") != nullptr && get("answer") != nullptr)
    return exchange(*get("question"), *get("answer"));
  if (get("instruction") != nullptr && get("output") != nullptr) {
    std::string asked = get("instruction")->as_string();
    if (get("input") != nullptr && !get("input")->as_string().empty())
      asked += concat("\n\n", get("input")->as_string());
    return exchange(Json(asked), *get("output"));
  }
  if (get("inputs") != nullptr && get("targets") != nullptr)
    return exchange(*get("inputs"), *get("targets"));
  return {};
}

/// A text of its own, or nothing.
std::optional<std::string> plain_text(const Json& record, const FieldMap& fields) {
  if (const Json* article = text_field(record, fields, "article")) {
    const Json* highlights = text_field(record, fields, "highlights");
    return highlights == nullptr ? article->as_string()
                                 : concat(article->as_string(), "\n\n", highlights->as_string());
  }
  const Json* text = text_field(record, fields, "text");
  return text == nullptr ? std::nullopt : std::optional(text->as_string());
}

bool has_media(const Json& messages) {
  for (const Json& message : messages.as_array()) {
    const Json* content = message.find("content");
    if (content == nullptr || !content->is_array()) continue;
    for (const Json& part : content->as_array()) {
      const Json* type = part.find("type");
      if (type != nullptr && type->is_string() && type->as_string() != "text") return true;
    }
  }
  return false;
}

Error skip(std::string_view why) { return {ErrorCode::unsupported, std::string(why)}; }

std::string keys_of(const Json& record) {
  if (!record.is_object()) return record.type_name();
  std::string keys;
  for (const auto& member : record.as_object()) {
    if (keys.size() > 100) return keys + ", ...";
    keys += concat(keys.empty() ? "" : ", ", member.key);
  }
  return keys.empty() ? "no fields" : keys;
}

}  // namespace

Error one_line(Error error) {
  constexpr size_t kMessageMax = 400;
  for (char& c : error.message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (error.message.size() > kMessageMax)
    error.message = error.message.substr(0, kMessageMax) + "...";
  return error;
}

bool is_record_field(std::string_view name) {
  return std::ranges::find(kFields, name) != std::end(kFields);
}

Json record_messages(const Json& record, const FieldMap& fields) {
  for (const std::string_view name : {"messages", "conversations"}) {
    const Json* list = field(record, fields, name);
    if (list == nullptr || !list->is_array() || list->as_array().empty()) continue;
    Json messages{Json::Array{}};
    for (const Json& given : list->as_array()) messages.push_back(openai_message(given));
    return messages;
  }
  return two_fields(record, fields);
}

Result<RecordEncoder> RecordEncoder::load(const std::filesystem::path& model) {
  RecordEncoder encoder(TRY(Tokenizer::load(model)));
  auto loaded = load_chat_template(model, TRY(read_special_tokens(model)));
  if (loaded.ok()) {
    encoder.template_ = std::move(loaded).value();
  } else if (loaded.error().code != ErrorCode::not_found) {
    return loaded.error();
  }
  return encoder;
}

Result<std::vector<int32_t>> RecordEncoder::encode_text(std::string_view text) const {
  return tokenizer_.encode(text, SpecialTokens::plain_text);
}

Result<std::vector<int32_t>> RecordEncoder::encode_chat(const Json& messages,
                                                        const Json* tools) const {
  if (!template_)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "a conversation", .found = "no chat template in the model's folder"});
  if (has_media(messages)) return skip("a message holds an image, a video or a sound");
  TemplateInput input;
  auto prepared = prepare_messages(messages);
  if (!prepared.ok()) return skip(prepared.error().message);
  input.messages = std::move(prepared).value();
  if (tools != nullptr && tools->is_array() && !tools->as_array().empty()) input.tools = *tools;
  input.generation_prompt = GenerationPrompt::omit;
  const auto rendered = template_->render(input);
  if (!rendered.ok()) return skip(rendered.error().message);
  return tokenizer_.encode(rendered.value().pieces);
}

Result<std::vector<int32_t>> RecordEncoder::encode(const Json& record,
                                                   const FieldMap& fields) const {
  const Json messages = record_messages(record, fields);
  if (!messages.is_null()) return encode_chat(messages, field(record, fields, "tools"));
  if (const auto text = plain_text(record, fields)) return encode_text(*text);
  for (const std::string_view name : {"input_ids", "ids"}) {
    const Json* list = field(record, fields, name);
    if (list == nullptr || !list->is_array()) continue;
    std::vector<int32_t> ids;
    for (const Json& id : list->as_array()) {
      const bool known = id.is_int() && id.as_int() >= 0 && id.as_int() < tokenizer_.vocab_size();
      if (!known) return skip(concat("token id ", id.dump(), " is not one of this tokenizer"));
      ids.push_back(static_cast<int32_t>(id.as_int()));
    }
    return ids;
  }
  return one_line(make_error(
      ErrorCode::invalid_argument,
      {.what = "record",
       .expected = "messages, prompt and completion, question and answer, instruction "
                   "and output, inputs and targets, article, text or input_ids",
       .found = keys_of(record),
       .advice = "name its fields with --calib-map, as in prompt=query,response=reply"}));
}

}  // namespace nibble
