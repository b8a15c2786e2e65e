// PCRE2 is seen by this file alone. Compiled patterns are read-only and shared by threads; match
// data and the JIT stack belong to one call.
#include "text/tokenizer/pre_tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/unicode_classes.h"

namespace nibble {

namespace {

constexpr size_t kPatternBytesMax = 16384;
constexpr uint32_t kMatchLimit = 10'000'000;  // some tenths of a second, per match
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
                     .found = concat(construct, " in ", quoted_excerpt(pattern))});
}

/// True if a pattern ends with {2,3} rather than \p{L} or \x{85}.
bool ends_with_interval(std::string_view pattern) {
  const size_t open = pattern.rfind('{');
  if (!pattern.ends_with('}') || open == pattern.npos) return false;
  return open < 2 || pattern[open - 2] != '\\';
}

/// \x{10d40}-\x{10d49} and so on: members of \p{L}, \p{M} or \p{N} that PCRE2 does not know.
std::string young_ranges(uint8_t bit) {
  const auto hex = [](uint32_t code) {
    char digits[8];
    const auto end = std::to_chars(digits, digits + sizeof digits, code, 16);
    return concat("\\x{", std::string_view(digits, static_cast<size_t>(end.ptr - digits)), "}");
  };
  std::string ranges;
  const auto runs = detail::kUnicodeRuns;
  for (size_t i = 0; i + 1 < runs.size(); ++i) {
    if ((runs[i] & kYoung) == 0 || (runs[i] & bit) == 0) continue;
    ranges += concat(hex(runs[i] >> 8), "-", hex((runs[i + 1] >> 8) - 1));
  }
  return ranges;
}

/// The members of the class that an escape at the start of `rest` names (\s, \p{L}, \p{M}, \p{N},
/// or negated \S, \P{L} ...), to be written between brackets; empty for other escapes.
struct ClassEscape {
  std::string members;
  size_t length = 0;
};
ClassEscape class_escape(std::string_view rest) {
  // PCRE2 counts U+180E as a space, Oniguruma does not.
  if (rest[1] == 's' || rest[1] == 'S') return {R"(\t-\r \x{85}\p{Z})", 2};
  if (rest[1] != 'p' && rest[1] != 'P') return {};
  constexpr std::pair<std::string_view, uint8_t> kClasses[] = {
      {"{L}", kLetter}, {"{M}", kMark}, {"{N}", kNumber}};
  for (const auto& [name, bit] : kClasses) {
    if (rest.substr(2, 3) == name) return {concat("\\p", name, young_ranges(bit)), 5};
  }
  return {};
}

/// The pattern for PCRE2, with the classes above spelled out.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[i + 1];
      const ClassEscape named = class_escape(pattern.substr(i));
      const bool negated = escaped == 'S' || escaped == 'P';
      if (named.length > 0 && !(in_class && negated)) {
        out += in_class ? named.members : concat(negated ? "[^" : "[", named.members, "]");
        i += named.length - 1;
        continue;
      }
      const bool is_word = static_cast<unsigned char>(escaped) < 0x80 && std::isalnum(escaped);
      if (is_word && std::string_view("pPrntfdDx").find(escaped) == std::string_view::npos) {
        return refuse(concat("a \\", escaped), pattern);
      }
      out += {c, escaped};
      ++i;
      continue;
    }
    if (in_class && (c == '[' || c == '&')) return refuse(concat("a class with ", c), pattern);
    if (!in_class && (c == '^' || c == '$' || c == '.')) return refuse(concat("a ", c), pattern);
    // Possessive to PCRE2, a repeated repetition to Oniguruma.
    if (!in_class && c == '+' && ends_with_interval(out)) return refuse("a }+", pattern);
    if (c == '[' || c == ']') in_class = c == '[';
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
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &failure, &offset, nullptr));
  if (compiled->code == nullptr) {
    return make_error(ErrorCode::corrupt,
                      {.what = "split pattern of the pre-tokenizer is not a regular expression",
                       .found = concat(pcre_message(failure), " at offset ", offset, " of ",
                                       quoted_excerpt(translated))});
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return refuse("an empty match", pattern);
  // Without the JIT (a hardened kernel may forbid it) the interpreter gives the same matches.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const SplitRegex>(std::make_shared<SplitRegex>(std::move(compiled)));
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
