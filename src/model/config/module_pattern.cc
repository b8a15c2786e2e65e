// The pattern languages of the two dialects.
#include "model/config/module_pattern.h"

#include <re2/re2.h>

#include <memory>
#include <optional>
#include <regex>

namespace nibble {
namespace {

constexpr size_t kRegexBytesMax = 1024;  // the compiler of std::regex is recursive

// RE2 is fast and linear in time, but has no lookahead, which std::regex has. A backtracking
// matcher could be made to run for years by a hostile config.
#ifdef __GLIBCXX__
constexpr auto kRegexSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kRegexSyntax = std::regex::ECMAScript;
#endif

/// Shell matching of * and ? over the whole name, in linear time per star.
bool wildcard_matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && (pattern[p] == name[n] || pattern[p] == '?')) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

struct ModulePattern::Regex {
  explicit Regex(const std::string& source) : linear(source, options()) {
    if (!linear.ok()) lookahead.emplace(source, kRegexSyntax);
  }
  static RE2::Options options() {
    RE2::Options options(RE2::Latin1);
    options.set_log_errors(false);
    return options;
  }

  RE2 linear;
  std::optional<std::regex> lookahead;  // in place of RE2 where it does not know the pattern
};

Result<ModulePattern> ModulePattern::compressed_tensors(std::string_view text) {
  ModulePattern pattern;
  pattern.text_ = text;
  if (text == "Linear") pattern.kind_ = Kind::every_linear;
  if (!text.starts_with("re:")) return pattern;
  pattern.kind_ = Kind::regex;
  if (text.size() > kRegexBytesMax)
    return make_error(
        ErrorCode::unsupported,
        {.what = concat("quantization_config pattern \"", text.substr(0, 40), "...\""),
         .expected = concat("at most ", kRegexBytesMax, " bytes"),
         .found = concat(text.size())});
  try {
    pattern.regex_ = std::make_shared<const Regex>(std::string(text.substr(3)));
  } catch (const std::regex_error&) {
    return make_error(ErrorCode::unsupported,
                      {.what = concat("quantization_config pattern \"", text, "\""),
                       .expected = "a regular expression without Python-only features"});
  }
  return pattern;
}

ModulePattern ModulePattern::modelopt(std::string_view text) {
  ModulePattern pattern;
  pattern.text_ = text;
  pattern.covers_below_ = true;
  if (text.find_first_of("*?") != std::string_view::npos) pattern.kind_ = Kind::wildcard;
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  switch (kind_) {
    case Kind::every_linear:
      return true;
    case Kind::wildcard:
      return wildcard_matches(text_, module);
    case Kind::regex:  // like Python's re.match: anchored at the start only
      if (!regex_->lookahead)
        return regex_->linear.Match(module, 0, module.size(), RE2::ANCHOR_START, nullptr, 0);
      return std::regex_search(module.begin(), module.end(), *regex_->lookahead,
                               std::regex_constants::match_continuous);
    case Kind::exact:
      if (!covers_below_ || module.size() <= text_.size()) return module == text_;
      return module.starts_with(text_) && module[text_.size()] == '.';
  }
  CHECK(false, "pattern kind ", static_cast<int>(kind_));
}

}  // namespace nibble
