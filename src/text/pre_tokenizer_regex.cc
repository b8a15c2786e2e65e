// PCRE2 is seen by this file alone. Compiled patterns are read-only and shared by threads; match data
// and the JIT stack belong to one call.
#include "text/pre_tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <string>

namespace nibble {

namespace {

constexpr size_t kPatternBytesMax = 16384;
constexpr uint32_t kMatchLimit = 50'000'000;  // a second or so; per match
constexpr size_t kJitStackBytesMax = size_t{16} << 20;

template <typename T, void (*Free)(T*)>
struct PcreFree {
  void operator()(T* object) const { Free(object); }
};
template <typename T, void (*Free)(T*)>
using Pcre = std::unique_ptr<T, PcreFree<T, Free>>;

Error refuse(std::string_view construct, std::string_view pattern) {
  return make_error(ErrorCode::unsupported,
                    {.what = "split pattern of the pre-tokenizer",
                     .expected = "constructs that PCRE2 and Oniguruma read alike",
                     .found = concat(construct, " in ", pattern.substr(0, 200))});
}

/// The pattern with \s and \S spelled out: PCRE2 counts U+180E as a space, Oniguruma does not.
Result<std::string> translate(std::string_view pattern) {
  constexpr std::string_view kSpaces = R"(\t-\r \x{85}\p{Z})";
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += class_depth > 0 ? std::string(kSpaces) : concat("[", kSpaces, "]");
      } else if (escaped == 'S' && class_depth == 0) {
        out += concat("[^", kSpaces, "]");
      } else if (const auto byte = static_cast<unsigned char>(escaped);
                 byte < 0x80 && std::isalnum(byte) &&
                 std::string_view("pPrntfdDx").find(escaped) == std::string_view::npos) {
        return refuse(concat("\\", escaped), pattern);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[' && class_depth > 0) return refuse("a nested character class", pattern);
    if (c == '&' && class_depth > 0) return refuse("& in a character class", pattern);
    if (c == '[') ++class_depth;
    if (c == ']' && class_depth > 0) --class_depth;
    if ((c == '^' && class_depth == 0) || c == '$' || (c == '.' && class_depth == 0)) {
      return refuse(concat("\"", c, "\""), pattern);
    }
    // Possessive to PCRE2, a repeated repetition to Oniguruma.
    if (c == '+' && class_depth == 0 && out.ends_with('}')) return refuse("\"}+\"", pattern);
    out.push_back(c);
  }
  return out;
}

std::string pcre_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct SplitRegex::Compiled {
  Pcre<pcre2_code, pcre2_code_free> code;
};

SplitRegex::SplitRegex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
SplitRegex::~SplitRegex() = default;

Result<std::shared_ptr<const SplitRegex>> SplitRegex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) return refuse("more than 16 KiB", pattern);
  const std::string translated = TRY(translate(pattern));
  int failure = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                     translated.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &failure,
                                     &offset, nullptr));
  if (compiled->code == nullptr) {
    return make_error(ErrorCode::corrupt,
                      {.what = "split pattern of the pre-tokenizer is not a regular expression",
                       .found = concat(pcre_message(failure), " at offset ", offset, " of ",
                                       std::string_view(translated).substr(0, 200))});
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return refuse("an empty match", pattern);
  // Without the JIT (a hardened kernel may forbid it) the interpreter gives the same matches.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const SplitRegex>(new SplitRegex(std::move(compiled)));
}

Result<void> SplitRegex::split(std::string_view text,
                               const std::function<Result<void>(std::string_view)>& piece) const {
  const Pcre<pcre2_match_data, pcre2_match_data_free> match(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  const Pcre<pcre2_match_context, pcre2_match_context_free> context(
      pcre2_match_context_create(nullptr));
  const Pcre<pcre2_jit_stack, pcre2_jit_stack_free> stack(
      pcre2_jit_stack_create(32 * 1024, kJitStackBytesMax, nullptr));
  CHECK(match != nullptr && context != nullptr, "PCRE2 is out of memory");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; at < text.size();) {
    const int outcome =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (outcome == PCRE2_ERROR_NOMATCH) return piece(text.substr(at));
    if (outcome < 0) {
      return make_error(ErrorCode::unsupported,
                        {.what = concat("the tokenizer's split pattern cannot cut this text: ",
                                        pcre_message(outcome)),
                         .advice = "shorten runs of one kind of character"});
    }
    if (bounds[0] > at) TRY(piece(text.substr(at, bounds[0] - at)));
    TRY(piece(text.substr(bounds[0], bounds[1] - bounds[0])));
    at = bounds[1];
  }
  return {};
}

}  // namespace nibble
