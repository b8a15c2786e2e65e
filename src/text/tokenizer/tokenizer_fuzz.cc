// Fuzz entry. Input: a tokenizer.json, or "T" and a text for the fixed tokenizer below, or
// tokenizer.json, a NUL byte, and a text for it. Whatever loads must encode any bytes, never emit
// an added token from user text, decode to valid text, and stream the same text it decodes.
#include <cstdint>

#include "base/json.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/tokenizer_vocab.h"

namespace nibble {
namespace {

/// Bytes, a handful of merges, the Qwen3.5 pipeline, and added tokens with every flag.
std::string small_tokenizer() {
  Json vocab{Json::Object{}};
  for (int byte = 0; byte < 256; ++byte) {
    vocab.set(byte_level_text(std::string(1, static_cast<char>(byte))), byte);
  }
  Json merges{Json::Array{}};
  for (const auto& [left, right] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a", "a"}, {"aa", "aa"}, {"a", "b"}, {"i", "m"}, {"Ã", "©"}, {"Ġ", "a"}}) {
    vocab.set(concat(left, right), static_cast<int64_t>(vocab.as_object().size()));
    merges.push_back(Json(Json::Array{left, right}));
  }
  const std::string pattern =
      Json(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)"
           R"(|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
          .dump();
  return concat(R"({"model":{"vocab":)", vocab.dump(), R"(,"merges":)", merges.dump(),
                R"(},"normalizer":{"type":"NFC"},"decoder":{"type":"ByteLevel"},"pre_tokenizer":)",
                R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated",)",
                R"("pattern":{"Regex":)", pattern,
                R"(}},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)",
                R"("added_tokens":[{"id":300,"content":"<|im_end|>","special":true},)",
                R"({"id":301,"content":"<a>","lstrip":true,"normalized":false},)",
                R"({"id":302,"content":"<é>","rstrip":true,"normalized":true},)",
                R"({"id":303,"content":"<|im","normalized":false}]})");
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const auto user = tokenizer.encode(text, SpecialTokens::plain_text);
  const auto whole = tokenizer.encode(text, SpecialTokens::recognised);
  const size_t third = text.size() / 3;
  const TextPiece pieces[] = {{std::string(text.substr(0, third)), Origin::from_template},
                              {std::string(text.substr(third, third)), Origin::from_user},
                              {std::string(text.substr(2 * third)), Origin::from_template}};
  const auto mixed = tokenizer.encode(pieces);
  CHECK(user.ok() == whole.ok() || tokenizer.vocab_size() > 0);  // foreign patterns may give up
  for (const auto* ids : {&user, &whole, &mixed}) {
    if (!ids->ok()) continue;
    const std::string decoded = tokenizer.decode(ids->value(), SkipSpecial::yes);
    CHECK(valid_utf8_prefix(decoded) == decoded.size());
    Detokenizer stream(tokenizer);
    std::string joined;
    for (const int32_t id : ids->value()) {
      CHECK(tokenizer.exists(id), "token ", id);
      CHECK(ids != &user || !tokenizer.is_special(id), "special token ", id, " from user text");
      joined += stream.push(id);
    }
    joined += stream.flush();
    CHECK(joined == decoded, joined, " differs from ", decoded);
  }
}

}  // namespace
}  // namespace nibble

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nibble::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('T')) {
    static const Tokenizer fixed = Tokenizer::parse(nibble::small_tokenizer(), "", "fixed").value();
    nibble::check_text(fixed, input.substr(1));
    return 0;
  }
  const size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  const auto tokenizer = Tokenizer::parse(input.substr(0, cut), "", "fuzz");
  if (tokenizer.ok()) {
    nibble::check_text(tokenizer.value(), text);
  } else if (nibble::parse_json(input.substr(0, cut), "fuzz").ok()) {
    CHECK(tokenizer.error().message.find('\n') == std::string::npos, tokenizer.error().message);
  }
  // The same bytes as the configuration of a good tokenizer.
  const auto configured =
      Tokenizer::parse(nibble::small_tokenizer(), input.substr(0, cut), "fixed");
  if (configured.ok()) nibble::check_text(configured.value(), text);
  return 0;
}
