// Chat templates: a Jinja template and a conversation become the exact prompt text, as Hugging Face
// transformers renders it. Compile once, render often, from several threads. The interpreter is in
// text/jinja; here are the rules of prompts: which variables exist, which of them are user text.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/text_piece.h"

namespace nibble {

namespace jinja {
class Program;
}

enum class GenerationPrompt { add, omit };

/// One conversation. Everything here except the words user, assistant, system, developer and tool
/// as a message's `role` counts as user text.
struct TemplateInput {
  Json messages;   // array of OpenAI-style messages; see prepare_messages
  Json tools;      // array of whole tool objects, or null
  Json documents;  // array, or null
  Json kwargs;     // object of further variables (enable_thinking ...), or null
  GenerationPrompt generation_prompt = GenerationPrompt::add;
  std::chrono::local_seconds now{};  // what strftime_now prints
};

struct RenderedPrompt {
  std::vector<TextPiece> pieces;  // none empty; adjacent ones differ in origin
  std::string flat() const;
};

struct TemplateOptions {
  Json special_tokens;  // {"bos_token": "...", ...} or null; template text
  TemplateLimits limits = {};
};

class ChatTemplate {
 public:
  using Options = TemplateOptions;

  /// Errors: corrupt (syntax) or unsupported (a construct this interpreter lacks), naming the
  /// template, the line and the construct.
  static Result<ChatTemplate> compile(std::string_view source, std::string_view name,
                                      Options options = {});

  /// Errors: invalid_argument. A message the template raises itself is passed on exactly; other
  /// failures carry Python's words and end in " (NAME, line N)".
  Result<RenderedPrompt> render(const TemplateInput& input) const;

  const std::string& name() const { return name_; }

 private:
  ChatTemplate() = default;
  std::string name_;
  Options options_;
  std::shared_ptr<const jinja::Program> program_;
};

/// Messages of an OpenAI request as templates want them: tool call `arguments` given as JSON text
/// become objects ("" is {}), `reasoning` is also seen as `reasoning_content`, content parts stay
/// lists. Errors: invalid_argument, naming the message.
Result<Json> prepare_messages(const Json& messages);

/// The checkpoint's template: chat_template.jinja, else `chat_template` of tokenizer_config.json (a
/// string, or a list of named templates), else chat_template.json. Errors: not_found, corrupt,
/// unsupported.
Result<ChatTemplate> load_chat_template(const std::filesystem::path& folder, Json special_tokens,
                                        std::string_view variant = "default",
                                        const TemplateLimits& limits = {});

/// {"bos_token": "...", "eos_token": "...", ...} from tokenizer_config.json and
/// special_tokens_map.json; an empty object if the folder has neither.
Result<Json> read_special_tokens(const std::filesystem::path& folder);

/// The request of `nibble render`.
struct RenderRequest {
  std::filesystem::path source;                // checkpoint folder, or a template file
  std::filesystem::path messages;              // JSON: list of messages, or a chat request object
  std::optional<std::filesystem::path> tools;  // JSON list; overrides the request object's
  std::string kwargs;                          // JSON object or empty; overrides likewise
  GenerationPrompt generation_prompt = GenerationPrompt::add;
  std::chrono::local_seconds now{};
};
Result<RenderedPrompt> render_prompt(const RenderRequest& request);

}  // namespace nibble
