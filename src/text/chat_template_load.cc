// Finds chat templates and their special tokens on disk, and does the work of the `render` verb.
#include <system_error>

#include "base/file.h"
#include "text/chat_template.h"

namespace nibble {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTemplateBytesMax = uint64_t{1} << 20;
constexpr uint64_t kConfigBytesMax = uint64_t{256} << 20;  // tokenizer_config.json lists tokens
constexpr uint64_t kInputBytesMax = uint64_t{64} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<Json> read_json(const fs::path& path, uint64_t bytes_max) {
  const std::string text = TRY(read_text_file(path, bytes_max));
  return parse_json(text, path.filename().string(), {.bytes_max = bytes_max});
}

/// The named one of a list [{"name": ..., "template": ...}], or the only text there is.
Result<std::string> choose_variant(const Json& templates, std::string_view variant,
                                   std::string_view source) {
  if (templates.is_string()) return templates.as_string();
  std::string names;
  if (templates.is_array()) {
    for (const Json& entry : templates.as_array()) {
      const Json* name = entry.find("name");
      const Json* text = entry.find("template");
      if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) continue;
      if (name->as_string() == variant) return text->as_string();
      names += concat(names.empty() ? "" : ", ", name->as_string());
    }
  }
  return make_error(ErrorCode::not_found,
                    {.what = concat(source, " has no usable chat_template"),
                     .expected = concat("a text, or one named '", variant, "'"),
                     .found = names.empty() ? std::string_view(templates.type_name()) : names});
}

void add_special_tokens(const Json& config, Json& out) {
  static constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                "pad_token", "cls_token", "mask_token"};
  for (const std::string_view name : kNames) {
    const Json* token = config.find(name);
    if (token != nullptr && token->is_object()) token = token->find("content");
    if (token == nullptr || !token->is_string() || out.find(name) != nullptr) continue;
    out.set(name, Json(token->as_string()));
  }
}

Result<ChatTemplate> load_source(const fs::path& source) {
  std::error_code ignored;
  if (fs::is_directory(source, ignored)) {
    return load_chat_template(source, TRY(read_special_tokens(source)));
  }
  const std::string text = TRY(read_text_file(source, kTemplateBytesMax));
  return ChatTemplate::compile(text, source.filename().string());
}

}  // namespace

Result<Json> read_special_tokens(const fs::path& folder) {
  Json out{Json::Object{}};
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!is_there(folder / name)) continue;
    add_special_tokens(TRY(read_json(folder / name, kConfigBytesMax)), out);
  }
  return out;
}

Result<ChatTemplate> load_chat_template(const fs::path& folder, Json special_tokens,
                                        std::string_view variant, const TemplateLimits& limits) {
  ChatTemplate::Options options{.special_tokens = std::move(special_tokens), .limits = limits};
  const fs::path file = folder / "chat_template.jinja";
  if (is_there(file)) {
    const std::string text = TRY(read_text_file(file, kTemplateBytesMax));
    return ChatTemplate::compile(text, "chat_template.jinja", std::move(options));
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    if (!is_there(folder / name)) continue;
    const Json config = TRY(read_json(folder / name, kConfigBytesMax));
    const Json* templates = config.find("chat_template");
    if (templates == nullptr || templates->is_null()) continue;
    const std::string text = TRY(choose_variant(*templates, variant, name));
    return ChatTemplate::compile(text, concat("chat_template of ", name), std::move(options));
  }
  return make_error(
      ErrorCode::not_found,
      {.what = concat(folder.string(), " has no chat template"),
       .expected = "chat_template.jinja, or chat_template in tokenizer_config.json or "
                   "chat_template.json",
       .advice = "copy the file from the original model"});
}

Result<RenderedPrompt> render_prompt(const RenderRequest& request) {
  Json body = TRY(read_json(request.messages, kInputBytesMax));
  TemplateInput input;
  input.generation_prompt = request.generation_prompt;
  input.now = request.now;
  if (body.is_object()) {  // a chat request
    const auto take = [&](std::string_view key) {
      Json* member = body.find(key);
      return member != nullptr ? std::move(*member) : Json();
    };
    input.tools = take("tools");
    input.documents = take("documents");
    input.kwargs = take("chat_template_kwargs");
    body = take("messages");
  }
  input.messages = TRY(prepare_messages(body));
  if (request.tools) input.tools = TRY(read_json(*request.tools, kInputBytesMax));
  if (!request.kwargs.empty()) {
    const Json given = TRY(parse_json(request.kwargs, "--kwargs"));
    if (!given.is_object()) {
      return make_error(
          ErrorCode::invalid_argument,
          {.what = "--kwargs", .expected = "a JSON object", .found = given.type_name()});
    }
    for (const auto& [key, value] : given.as_object()) input.kwargs.set(key, value);
  }
  const ChatTemplate chat_template = TRY(load_source(request.source));
  return chat_template.render(input);
}

}  // namespace nibble
