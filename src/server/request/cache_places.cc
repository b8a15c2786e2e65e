// An added token of the template is a border that no merge crosses: all tokens up to one that lies
// within the text two prompts share are shared as well.
#include "server/request/cache_places.h"

#include <algorithm>

#include "model/batch.h"

namespace nibble {

namespace {

constexpr std::string_view kPlaceholder = ".";  // stands for a message that is not there yet

std::string flat(std::span<const TextPiece> pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

Json message_of(const char* role) {
  return json_object({{"role", Json(role)}, {"content", Json(kPlaceholder)}});
}

std::string role_of(const Json& message) {
  const Json* role = message.find("role");
  return role != nullptr && role->is_string() ? role->as_string() : "";
}

/// A prompt, and how much of it another one shares.
class SharedPrefix {
 public:
  SharedPrefix(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
               std::span<const TextPiece> pieces, std::span<const int32_t> prompt)
      : template_(chat_template), tokenizer_(tokenizer), text_(flat(pieces)), prompt_(prompt) {
    size_t bytes = 0;
    for (const int32_t id : prompt_) bytes += size_of(id);
    // Unicode normalisation changes lengths; then only tokens can be compared.
    bytes_agree_ = bytes == text_.size();
  }

  /// Tokens shared with `other`; 0 if it cannot be rendered.
  int32_t with(const TemplateInput& other) const {
    const auto rendered = template_.render(other);
    if (!rendered.ok()) return 0;
    if (!bytes_agree_) return with_tokens(rendered.value().pieces);
    const std::string text = rendered.value().flat();
    const auto shared = std::ranges::mismatch(text_, text).in1 - text_.begin();
    return last_border(static_cast<size_t>(shared));
  }

  /// Tokens shared with `other`, which may end within a word: its last token does not count.
  int32_t with_cut(const TemplateInput& other) const {
    const auto rendered = template_.render(other);
    return rendered.ok() ? std::max(with_tokens(rendered.value().pieces) - 1, 0) : 0;
  }

 private:
  size_t size_of(int32_t id) const {
    return tokenizer_.id_to_token_bytes(id).value_or(std::string_view{}).size();
  }
  int32_t with_tokens(std::span<const TextPiece> pieces) const {
    const auto ids = tokenizer_.encode(pieces);
    if (!ids.ok()) return 0;
    return static_cast<int32_t>(std::ranges::mismatch(prompt_, ids.value()).in1 - prompt_.begin());
  }
  int32_t last_border(size_t shared_bytes) const {
    int32_t border = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < prompt_.size(); ++i) {
      bytes += size_of(prompt_[i]);
      if (bytes > shared_bytes) break;
      if (tokenizer_.is_added(prompt_[i])) border = static_cast<int32_t>(i) + 1;
    }
    return border;
  }

  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
  std::string text_;
  std::span<const int32_t> prompt_;
  bool bytes_agree_ = false;
};

/// The system messages, then another user's first word.
TemplateInput other_conversation(const TemplateInput& input) {
  TemplateInput other = input;
  Json::Array& messages = other.messages.as_array();
  const auto first = std::ranges::find_if_not(messages, [](const Json& message) {
    return role_of(message) == "system" || role_of(message) == "developer";
  });
  messages.erase(first, messages.end());
  messages.push_back(message_of("user"));
  return other;
}

TemplateInput next_turn(const TemplateInput& input) {
  TemplateInput other = input;
  other.messages.as_array().push_back(message_of("assistant"));
  other.messages.as_array().push_back(message_of("user"));
  return other;
}

TemplateInput without_answer(const TemplateInput& input) {
  TemplateInput other = input;
  other.generation_prompt = GenerationPrompt::omit;
  return other;
}

TemplateInput up_to(const TemplateInput& input, const CacheMark& mark) {
  TemplateInput other = without_answer(input);
  Json::Array& messages = other.messages.as_array();
  messages.resize(mark.message + 1);
  if (mark.part) messages.back().find("content")->as_array().resize(*mark.part + 1);
  // Templates refuse a conversation in which no user speaks.
  const auto speaks = [](const Json& message) { return role_of(message) == "user"; };
  if (std::ranges::none_of(messages, speaks)) messages.push_back(message_of("user"));
  return other;
}

bool marked(const Json& object) {
  const Json* mark = object.is_object() ? object.find("cache_control") : nullptr;
  return mark != nullptr && !mark->is_null();
}

}  // namespace

std::optional<CacheMark> find_cache_mark(const Json& messages) {
  const Json::Array& list = messages.as_array();
  for (size_t i = list.size(); i-- > 0;) {
    if (marked(list[i])) return CacheMark{.message = i, .part = {}};
    const Json* content = list[i].find("content");
    if (content == nullptr || !content->is_array()) continue;
    const Json::Array& parts = content->as_array();
    for (size_t part = parts.size(); part-- > 0;)
      if (marked(parts[part]))
        return part + 1 == parts.size() ? CacheMark{.message = i, .part = {}}
                                        : CacheMark{.message = i, .part = part};
  }
  return std::nullopt;
}

bool strip_cache_marks(Json& tools) {
  bool found = false;
  const auto strip = [&](Json& object) {
    if (!object.is_object() || object.find("cache_control") == nullptr) return;
    found |= marked(object);
    Json::Object kept = object.as_object();
    std::erase_if(kept, [](const Json::Member& member) { return member.key == "cache_control"; });
    object = Json(std::move(kept));
  };
  for (Json& tool : tools.as_array()) {
    strip(tool);
    if (Json* function = tool.find("function")) strip(*function);
  }
  return found;
}

CacheRequest find_cache_places(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                               const TemplateInput& input, std::span<const TextPiece> pieces,
                               std::span<const int32_t> prompt, ToolsMarked tools_marked) {
  CacheRequest cache;
  if (prompt.size() < static_cast<size_t>(kPageTokens)) return cache;  // nothing is kept of it
  const SharedPrefix shared(chat_template, tokenizer, pieces, prompt);
  const int32_t system_end = shared.with(other_conversation(input));
  cache.boundaries = {system_end, shared.with(next_turn(input))};
  if (role_of(input.messages.as_array().back()) == "tool")
    cache.boundaries.push_back(shared.with(without_answer(input)));
  if (tools_marked == ToolsMarked::yes) cache.pinned_tokens = system_end;
  if (const auto mark = find_cache_mark(input.messages)) {
    const TemplateInput marked_part = up_to(input, *mark);
    const int32_t pinned = mark->part ? shared.with_cut(marked_part) : shared.with(marked_part);
    cache.pinned_tokens = std::max(cache.pinned_tokens, pinned);
  }
  std::erase_if(cache.boundaries, [](int32_t tokens) { return tokens < kPageTokens; });
  std::ranges::sort(cache.boundaries);
  const auto repeated = std::ranges::unique(cache.boundaries);
  cache.boundaries.erase(repeated.begin(), repeated.end());
  return cache;
}

}  // namespace nibble
