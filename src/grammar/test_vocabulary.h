// For tests of grammars: a vocabulary of bytes, tags and a few longer tokens; a schema.
#pragma once

#include <string>
#include <vector>

#include "grammar/grammar_compiler.h"

namespace nibble {

inline constexpr int32_t kEnd = 256, kThinkEnd = 257, kToolBegin = 258, kToolEnd = 259;
inline constexpr int32_t kVocab = 264;  // then three longer tokens, then padding

inline std::vector<std::string> tokens() {
  std::vector<std::string> made(kVocab);
  for (int byte = 0; byte < 256; ++byte)
    made[static_cast<size_t>(byte)] = std::string(1, static_cast<char>(byte));
  made[260] = "{\"";
  made[261] = "\":";
  made[262] = "true";
  return made;
}

inline GrammarCompiler::Vocabulary vocabulary() {
  return {tokens(), {kEnd}, {kToolBegin, kToolEnd}};
}

/// The longest token first, as far as there are longer ones.
inline std::vector<int32_t> encoded(std::string_view text) {
  const std::vector<std::string> all = tokens();
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t best = 0;
    for (size_t id = 0; id < all.size(); ++id)
      if (all[id].size() >= all[best].size() && !all[id].empty() && text.starts_with(all[id]))
        best = id;
    ids.push_back(static_cast<int32_t>(best));
    text.remove_prefix(all[best].size());
  }
  return ids;
}

/// The same vocabulary, by which forced texts are divided into tokens.
inline GrammarCompiler::Vocabulary encoding_vocabulary() {
  GrammarCompiler::Vocabulary made = vocabulary();
  made.encode = encoded;
  return made;
}

inline GrammarSource schema(const std::string& text) {
  return {.kind = GrammarSource::Kind::json_schema, .text = text};
}
inline constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},)"
    R"("required":["name","age"],"additionalProperties":false})";

}  // namespace nibble
