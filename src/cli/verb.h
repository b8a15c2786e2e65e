// A verb of the program: its option table and its function. Help text, checking of flags, defaults
// and NIBBLE_<FLAG> environment names all come from the one table.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/terminal.h"

namespace nibble {

struct Option {
  std::string_view name;      // without the dashes: "max-tokens"
  std::string_view value;     // placeholder in help: "N"; empty makes it a switch (--no-NAME too)
  std::string_view fallback;  // the default, as the user would type it; empty: none
  std::string_view help;
  std::string_view alias = {};  // the name it has elsewhere, taken as well
};

/// Tables as one, in this order. A literal one is std::to_array<Option>({...}).
template <size_t... N>
constexpr auto joined_options(const std::array<Option, N>&... tables) {
  std::array<Option, (N + ...)> all = {};
  size_t at = 0;
  ((std::ranges::copy(tables, all.begin() + at), at += N), ...);
  return all;
}

/// The words after the verb, checked against its table. Precedence: flag, environment, default.
class Arguments {
 public:
  int positional_count() const { return static_cast<int>(positionals_.size()); }
  const std::string& positional(int index) const;

  /// True if the user set it, by flag or environment.
  bool given(std::string_view name) const;
  /// A switch that is on.
  bool enabled(std::string_view name) const;
  /// The value or the default; empty optional if neither.
  std::optional<std::string> text(std::string_view name) const;
  /// Whole numbers; 32K = 32,768 and 25.6k = 25,600 are accepted (also M/m, G/g).
  Result<int64_t> integer(std::string_view name, int64_t least, int64_t most) const;
  Result<double> number(std::string_view name, double least, double most) const;
  /// One of `choices`; the error lists them.
  Result<std::string> choice(std::string_view name,
                             std::initializer_list<std::string_view> choices) const;

 private:
  friend class ArgumentParser;
  struct Value {
    std::string text;
    bool from_user = false;
  };
  std::vector<std::string> positionals_;
  std::map<std::string, Value, std::less<>> values_;
};

struct Verb {
  std::string_view name;
  std::string_view positionals;  // "SRC DST"; [X] marks an optional one
  std::string_view summary;      // one line
  std::span<const Option> options;
  /// Returns the exit code. Results go to terminal.out, everything else to terminal.err.
  Result<int> (*run)(const Arguments& arguments, Terminal& terminal);
};

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // the work failed; the last line says why
inline constexpr int kExitUsage = 2;          // unknown verb or flag, bad value
inline constexpr int kExitDevice = 3;         // the card failed while it served; start again
inline constexpr int kExitInterrupted = 130;  // Ctrl-C

// One per file of this folder, listed in main.cc.
extern const Verb kQuantizeVerb, kVerifyVerb, kInspectVerb, kConvertVerb, kRenderVerb, kRunVerb,
    kChatVerb, kScoreVerb, kServeVerb, kSynthVerb, kConnectVerb;

/// Checks `words` against the verb's table. `environment` looks up NIBBLE_<FLAG> names.
using EnvironmentLookup = std::optional<std::string> (*)(const std::string& name);
Result<Arguments> parse_arguments(const Verb& verb, std::span<const std::string> words,
                                  EnvironmentLookup environment);

/// Usage, summary and the option table.
std::string help_text(const Verb& verb);

/// The candidate nearest to `word` by edit distance, or empty if none is near.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace nibble
