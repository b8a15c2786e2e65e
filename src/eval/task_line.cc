// One line of a task file. Keys are few and each is checked: a slip would otherwise measure
// something else.
#include <algorithm>
#include <array>

#include "base/sha256.h"
#include "eval/task_item.h"

namespace nibble {
namespace {

constexpr size_t kLineBytesMax = size_t{64} << 20;
constexpr size_t kIdBytesMax = 512;
constexpr size_t kChoicesMax = 100;
constexpr int64_t kTokensMax = 1 << 24;
constexpr int kDepthMax = 80;
constexpr size_t kDigestDigits = 16;

constexpr std::array<std::string_view, 8> kCheckNames = {
    "exact", "json", "json_schema", "tool_call", "tool_schema", "letter", "logprob", "none"};
// "image" is how the picture in a message was drawn; "meta" is the writer's own.
constexpr std::array<std::string_view, 15> kKeys = {
    "id",     "task", "check",    "answer",     "messages",  "prompt",  "tools", "choices",
    "schema", "meta", "thinking", "max_tokens", "normalize", "enforce", "image"};

/// The members of one line, read by kind.
class LineReader {
 public:
  LineReader(const Json& json, std::string_view place) : json_(json), place_(place) {}

  Error wrong(std::string_view key, std::string_view expected) const {
    const Json* found = json_.find(key);
    return make_error(
        ErrorCode::invalid_argument,
        {.what = concat(place_, ": ", key),
         .expected = std::string(expected),
         .found = found == nullptr ? std::string("nothing") : found->dump().substr(0, 80)});
  }

  Result<TaskItem> read() {
    TRY(check_keys());
    item_.id = TRY(text("id"));
    item_.task = TRY(text("task"));
    const std::string check = TRY(text("check"));
    const auto found = std::ranges::find(kCheckNames, check);
    if (found == kCheckNames.end())
      return wrong("check",
                   "exact, json, json_schema, tool_call, tool_schema, letter, logprob or none");
    item_.check = static_cast<Check>(found - kCheckNames.begin());
    TRY(read_question());
    TRY(read_settings());
    TRY(read_answer());
    return std::move(item_);
  }

 private:
  Result<void> check_keys() const {
    for (const auto& [key, value] : json_.as_object()) {
      if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
      const bool text_only = key == "text";
      return make_error(
          ErrorCode::invalid_argument,
          {.what = concat(place_, ": unknown key ", Json(key.substr(0, 80)).dump()),
           .advice = text_only
                         ? std::string("a plain text is for `nibble eval perplexity`, not a task")
                         : std::string("keys of your own go into \"meta\"")});
    }
    return {};
  }

  Result<std::string> text(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || !value->is_string() || value->as_string().empty() ||
        value->as_string().size() > kIdBytesMax)
      return wrong(key, concat("a string of 1 to ", kIdBytesMax, " bytes"));
    return value->as_string();
  }

  Result<void> read_question() {
    const Json* messages = json_.find("messages");
    const Json* prompt = json_.find("prompt");
    if ((messages == nullptr) == (prompt == nullptr))
      return make_error(ErrorCode::invalid_argument,
                        {.what = std::string(place_),
                         .expected = "either \"messages\" or \"prompt\"",
                         .found = messages == nullptr ? "neither" : "both"});
    if (prompt != nullptr) {
      if (!prompt->is_string() || prompt->as_string().empty())
        return wrong("prompt", "a text that is not empty");
      item_.prompt = prompt->as_string();
      return {};
    }
    const bool fine = messages->is_array() && !messages->as_array().empty() &&
                      std::ranges::all_of(messages->as_array(), [](const Json& message) {
                        const Json* role = message.find("role");
                        return role != nullptr && role->is_string();
                      });
    if (!fine) return wrong("messages", "a list of messages, each with a role");
    item_.messages = *messages;
    return {};
  }

  Result<void> read_settings() {
    if (const Json* thinking = json_.find("thinking")) {
      if (!thinking->is_bool()) return wrong("thinking", "true or false");
      item_.thinking = thinking->as_bool();
    }
    if (const Json* tokens = json_.find("max_tokens")) {
      if (!tokens->is_int() || tokens->as_int() < 1 || tokens->as_int() > kTokensMax)
        return wrong("max_tokens", concat("a whole number from 1 to ", kTokensMax));
      item_.max_tokens = tokens->as_int();
    }
    if (const Json* enforce = json_.find("enforce")) {
      if (!enforce->is_bool() || item_.check != Check::json_schema)
        return wrong("enforce", "true or false, beside the check json_schema");
      item_.enforce = enforce->as_bool() ? Enforce::yes : Enforce::no;
    }
    if (const Json* normalize = json_.find("normalize")) {
      const bool bytes = *normalize == Json("bytes");
      if ((!bytes && *normalize != Json("none")) || item_.check != Check::logprob)
        return wrong("normalize", "\"none\" or \"bytes\", beside the check logprob");
      item_.normalize = bytes ? Normalize::bytes : Normalize::none;
    }
    return read_tools();
  }

  Result<void> read_tools() {
    const bool needed = item_.check == Check::tool_call || item_.check == Check::tool_schema;
    const Json* tools = json_.find("tools");
    if (tools == nullptr && !needed) return {};
    if (tools == nullptr || !tools->is_array() || tools->as_array().empty() ||
        item_.messages.is_null())
      return wrong("tools", "a list of tools, beside messages");
    item_.tools = *tools;
    if (item_.check != Check::tool_schema) return {};
    for (const Json& tool : tools->as_array()) {
      const Json* function = tool.find("function");
      const Json* name = function == nullptr ? nullptr : function->find("name");
      if (name == nullptr || !name->is_string())
        return wrong("tools", "{\"type\": \"function\", \"function\": {\"name\": ..}}");
      const Json* schema = function->find("parameters");
      const Json any = Json(true);
      SchemaValidity validity = TRY(SchemaValidity::compile(
          schema == nullptr ? any : *schema, concat(place_, ": parameters of ", name->dump())));
      item_.offered.push_back({name->as_string(), std::move(validity)});
    }
    return {};
  }

  Result<void> read_answer() {
    const Json* answer = json_.find("answer");
    switch (item_.check) {
      case Check::exact:
        return read_texts(answer);
      case Check::json:
        return read_value(answer);
      case Check::json_schema:
        return read_schema();
      case Check::tool_call:
        return read_call(answer);
      case Check::letter:
        if (answer == nullptr || !answer->is_string() || answer->as_string().size() != 1 ||
            answer->as_string()[0] < 'A' || answer->as_string()[0] > 'Z')
          return wrong("answer", "one letter from A to Z");
        item_.texts = {answer->as_string()};
        return {};
      case Check::logprob:
        return read_choices(answer);
      case Check::tool_schema:
      case Check::none:
        return {};
    }
    return {};
  }

  Result<void> read_texts(const Json* answer) {
    if (answer != nullptr && answer->is_string()) item_.texts = {answer->as_string()};
    if (answer != nullptr && answer->is_array())
      for (const Json& each : answer->as_array()) {
        if (!each.is_string()) return wrong("answer", "a text, or a list of texts");
        item_.texts.push_back(each.as_string());
      }
    if (item_.texts.empty()) return wrong("answer", "a text, or a list of texts");
    return {};
  }

  Result<void> read_value(const Json* answer) {
    if (answer == nullptr) return wrong("answer", "a JSON value, or its text");
    item_.value = *answer;
    if (!answer->is_string()) return {};
    const auto parsed = parse_json(answer->as_string(), "answer", {.depth_max = kDepthMax});
    if (!parsed.ok()) return wrong("answer", "the text of a JSON value");
    item_.value = parsed.value();
    return {};
  }

  Result<void> read_schema() {
    const Json* schema = json_.find("schema");
    if (schema == nullptr) return wrong("schema", "a JSON Schema");
    item_.schema = *schema;
    item_.validity = TRY(SchemaValidity::compile(*schema, concat(place_, ": schema")));
    return {};
  }

  Result<void> read_call(const Json* answer) {
    const Json* name = answer == nullptr ? nullptr : answer->find("name");
    const Json* arguments = answer == nullptr ? nullptr : answer->find("arguments");
    if (name == nullptr || !name->is_string() || arguments == nullptr || !arguments->is_object())
      return wrong("answer", "{\"name\": \"..\", \"arguments\": {..}}");
    item_.value = *answer;
    return {};
  }

  Result<void> read_choices(const Json* answer) {
    if (item_.prompt.empty()) return wrong("prompt", "a text: the check logprob continues it");
    const Json* choices = json_.find("choices");
    const auto is_text = [](const Json& each) {
      return each.is_string() && !each.as_string().empty();
    };
    if (choices == nullptr || !choices->is_array() || choices->as_array().size() < 2 ||
        choices->as_array().size() > kChoicesMax ||
        !std::ranges::all_of(choices->as_array(), is_text))
      return wrong("choices", concat("2 to ", kChoicesMax, " texts that are not empty"));
    for (const Json& each : choices->as_array()) item_.choices.push_back(each.as_string());
    const int64_t index = answer != nullptr && answer->is_int() ? answer->as_int() : -1;
    if (index < 0 || index >= static_cast<int64_t>(item_.choices.size()))
      return wrong("answer", concat("the index of a choice, 0 to ", item_.choices.size() - 1));
    item_.right_choice = index;
    return {};
  }

  const Json& json_;
  std::string_view place_;
  TaskItem item_;
};

}  // namespace

Result<TaskItem> parse_task_line(std::string_view line, std::string_view place) {
  const Json json =
      TRY(parse_json(line, place, {.bytes_max = kLineBytesMax, .depth_max = kDepthMax}));
  if (!json.is_object())
    return make_error(
        ErrorCode::invalid_argument,
        {.what = std::string(place), .expected = "a JSON object", .found = json.type_name()});
  TaskItem item = TRY(LineReader(json, place).read());
  item.digest = sha256_hex(json.dump()).substr(0, kDigestDigits);
  return item;
}

}  // namespace nibble
