// A verb of the program: its option table and its function. Help, manual page, completion, checking
// of flags, keys of the configuration file and NIBBLE_<FLAG> environment names come from the table.
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
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/terminal.h"

namespace nibble {

/// The number of words of a value, and the places where it may stand.
enum class OptionForm : uint8_t {
  plain,     // one word
  several,   // the words up to the next option; its text is these with commas between them
  repeated,  // one word, as often as the option stands; its text is these with line breaks between
  operand,   // one word that stands for the verb's first positional
};

/// secret: a key or token. It is shown nowhere, and a configuration file only says which file has
/// it.
enum class OptionSecrecy : uint8_t { open, secret };

struct Option {
  std::string_view name;  // without the dashes: "max-tokens"
  /// Placeholder in help: "N". Empty makes it a switch (--no-NAME too); one that begins with
  /// "JSON" may be given member by member: --NAME.KEY VALUE.
  std::string_view value;
  std::string_view fallback;  // the default, as the user would type it; empty: none
  std::string_view help;
  std::string_view alias = {};  // the name it has elsewhere, taken as well; short ones as "-x"
  OptionForm form = OptionForm::plain;
  OptionSecrecy secrecy = OptionSecrecy::open;
};

/// A flag of another program that means nothing here. Some of its values may be taken, with a line
/// that says why it is not needed; all others are refused with the reason.
struct ForeignFlag {
  Option option;
  std::string_view taken;     // values with commas; "*": any, "N": any whole number; empty: none
  std::string_view accepted;  // why a taken value changes nothing: a clause that ends a sentence
  std::string_view refused;   // why any other is refused: likewise
};

/// Tables as one, in this order. A literal one is std::to_array<Option>({...}).
template <size_t... N>
constexpr auto joined_options(const std::array<Option, N>&... tables) {
  std::array<Option, (N + ...)> all = {};
  size_t at = 0;
  ((std::ranges::copy(tables, all.begin() + at), at += N), ...);
  return all;
}

// Options of every verb.
inline constexpr auto kCommonOptions = std::to_array<Option>({
    {"config", "FILE", "",
     "reads options from the table [VERB] of this TOML file; empty: from no file; default: "
     "nibble/config.toml in $XDG_CONFIG_HOME (~/.config) or in $XDG_CONFIG_DIRS (/etc/xdg)"},
    {"print-config", "", "false",
     "prints each option with its value and where that comes from, in the form of such a file, "
     "then ends"},
});

enum class ValueSource : uint8_t { fallback, file, environment, flag };

/// The words after the verb, checked against its table. Precedence: flag, environment,
/// configuration file, default.
class Arguments {
 public:
  int positional_count() const { return static_cast<int>(positionals_.size()); }
  const std::string& positional(int index) const;

  /// True if the user set it, by flag, environment or configuration file.
  bool given(std::string_view name) const { return source(name) != ValueSource::fallback; }
  ValueSource source(std::string_view name) const;
  /// Where the value comes from: "--port", "NIBBLE_PORT", "FILE line 3", "default".
  std::string origin(std::string_view name) const;
  /// The origins of values that gave way to it, the strongest first.
  std::vector<std::string> overridden(std::string_view name) const;
  /// A switch that is on.
  bool enabled(std::string_view name) const;
  /// The value or the default; empty optional if neither.
  std::optional<std::string> text(std::string_view name) const;
  /// Whole numbers in the words of read_size: 32K = 32,768 and 25.6k = 25,600.
  Result<int64_t> integer(std::string_view name, int64_t least, int64_t most) const;
  Result<double> number(std::string_view name, double least, double most) const;
  /// One of `choices`; the error lists them.
  Result<std::string> choice(std::string_view name,
                             std::initializer_list<std::string_view> choices) const;

  /// The same words with another value of an option, for "what if" questions.
  Arguments with(std::string_view name, std::string value) const {
    Arguments changed = *this;
    changed.values_[std::string(name)] = {.text = std::move(value), .source = ValueSource::flag};
    return changed;
  }

 private:
  friend class ArgumentParser;
  struct Value {
    std::string text;
    ValueSource source = ValueSource::fallback;
    std::string place = {};                    // in the file that says it
    std::vector<std::string> overridden = {};  // the weakest first
  };
  std::vector<std::string> positionals_;
  std::map<std::string, Value, std::less<>> values_;
};

struct Verb {
  std::string_view name;  // one word, or two: "bench serve"
  std::string_view
      positionals;           // "SRC DST"; [X] marks an optional one, X... one or more at the end
  std::string_view summary;  // one line
  std::span<const Option> options;
  /// Returns the exit code. Results go to terminal.out, everything else to terminal.err.
  Result<int> (*run)(const Arguments& arguments, Terminal& terminal);
  /// Flags of another program, known so that each gets its own answer.
  std::span<const ForeignFlag> foreign = {};
  /// Reads all values and nothing else, so that every wrong one is reported at once; may be null.
  Result<void> (*check)(const Arguments& arguments) = nullptr;
};

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;        // the work failed; the last line says why
inline constexpr int kExitUsage = 2;          // unknown verb or flag, bad value
inline constexpr int kExitDevice = 3;         // the card failed while it served; start again
inline constexpr int kExitInterrupted = 130;  // Ctrl-C

// One per file of this folder, listed in verbs.cc.
extern const Verb kQuantizeVerb, kVerifyVerb, kInspectVerb, kConvertVerb, kRenderVerb, kRunVerb,
    kChatVerb, kScoreVerb, kServeVerb, kSynthVerb, kConnectVerb, kPlanVerb, kDoctorVerb, kPullVerb,
    kLsVerb, kRmVerb, kShowVerb, kPushVerb, kManVerb, kCompletionVerb, kBenchServeVerb,
    kBenchModelVerb, kBenchStartupVerb, kBenchQuantizeVerb, kBenchFormatsVerb, kEvalVerb,
    kTokenMapVerb;

/// All verbs, in the order of the help.
std::span<const Verb* const> all_verbs();
/// The verb's name as one word, for tables of configuration files and for shells: "bench-serve".
std::string verb_key(const Verb& verb);

/// The second words of the verbs whose name begins with `first`, with their verbs: of "bench" they
/// are serve, model and so on.
std::vector<std::pair<std::string_view, const Verb*>> second_words(std::string_view first);

/// The first words of all verbs, each once, in the order of the help.
std::vector<std::string_view> first_words();

/// The verb whose name, of one or two words, the command begins with; null if there is none.
const Verb* find_verb(std::span<const std::string> words);

/// The verb's option, foreign flag or common option of this name or alias; null if there is none.
const Option* find_option(const Verb& verb, std::string_view name);

/// One value of a configuration file, in the words of a flag.
struct ConfigSetting {
  std::string option;
  std::string text;
  std::string place;  // "FILE line 3"
};

/// All that a configuration file says for one verb. `errors` has a line for each thing that is
/// wrong with the file, or is empty.
struct ConfigSettings {
  std::vector<ConfigSetting> values;
  std::string errors;
};

/// Checks `words` against the verb's tables and its values with Verb::check. `environment` looks up
/// NIBBLE_<FLAG> names. The error has a line for everything that is wrong, in `config` too.
using EnvironmentLookup = std::optional<std::string> (*)(const std::string& name);
Result<Arguments> parse_arguments(const Verb& verb, std::span<const std::string> words,
                                  EnvironmentLookup environment, const ConfigSettings& config = {});

/// The NIBBLE_<FLAG> name of an option.
std::string environment_name(std::string_view option);

/// The name as tables have it: vLLM spells every name with dashes or underscores.
std::string with_dashes(std::string_view name);

/// A whole number as vLLM reads it: digits, or digits with K, M, G, T (powers of 1,024) or k, m, g,
/// t (powers of 1,000; fractions allowed: 25.6k). Empty for anything else.
std::optional<int64_t> read_size(std::string_view text);

/// Usage, summary, the option table and the common options.
std::string help_text(const Verb& verb);
/// Its parts: usage and summary, a line for each option, a line about foreign flags or nothing.
std::string help_head(const Verb& verb);
std::string option_rows(std::span<const Option> options);
std::string common_help();
std::string foreign_help(const Verb& verb);

/// The candidate that `word` is a slip of: at most two letters differ, and one in four. Empty if
/// there is none.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace nibble
