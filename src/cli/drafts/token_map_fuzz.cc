// Fuzz entry: a token map. The ids that are read are sorted, each once, and below the vocabulary;
// anything else is refused in one line.
#include "base/check.h"
#include "cli/drafts/token_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int32_t kVocabulary = 1000;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokens = nibble::parse_token_map(text, "fuzz", kVocabulary);
  if (!tokens.ok()) {
    CHECK(tokens.error().message.find('\n') == std::string::npos, tokens.error().message);
    return 0;
  }
  CHECK(!tokens.value().empty(), "an empty map");
  int32_t before = -1;
  for (const int32_t token : tokens.value()) {
    CHECK(token > before && token < kVocabulary, token, " after ", before);
    before = token;
  }
  return 0;
}
