// Command-line words against an option table; numbers with units; "did you mean".
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "cli/verb.h"

namespace nibble {

namespace {

const Option* find_option(const Verb& verb, std::string_view name) {
  for (const auto& option : verb.options)
    if (option.name == name || (!option.alias.empty() && option.alias == name)) return &option;
  return nullptr;
}

std::string environment_name(std::string_view option) {
  std::string name = "NIBBLE_";
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Result<std::string> switch_value(std::string_view source, std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* word : {"1", "on", "yes", "true"})
    if (lower == word) return std::string("true");
  for (const char* word : {"0", "off", "no", "false", ""})
    if (lower == word) return std::string("false");
  return make_error(ErrorCode::invalid_argument,
                    {.what = std::string(source),
                     .expected = "1, on, yes, true or 0, off, no, false",
                     .found = concat("\"", text, "\"")});
}

Error unknown_option(const Verb& verb, std::string_view word) {
  std::vector<std::string_view> names;
  for (const auto& option : verb.options) names.push_back(option.name);
  names.push_back("help");
  const std::string_view bare = word.substr(0, word.find('=')).substr(2);
  const std::string_view near = nearest_name(bare, names);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat("unknown option --", bare),
       .advice = near.empty() ? concat("`nibble ", verb.name, " --help` lists the options")
                              : concat("did you mean --", near, "?")});
}

/// Multiplier of a size suffix: K, M, G are binary, k, m, g decimal.
double suffix_scale(char suffix) {
  switch (suffix) {
    case 'K':
      return 1024.0;
    case 'M':
      return 1024.0 * 1024.0;
    case 'G':
      return 1024.0 * 1024.0 * 1024.0;
    case 'k':
      return 1e3;
    case 'm':
      return 1e6;
    case 'g':
      return 1e9;
    default:
      return 0.0;
  }
}

bool parse_number(std::string_view text, double& value) {
  double scale = 1.0;
  if (!text.empty() && suffix_scale(text.back()) > 0) {
    scale = suffix_scale(text.back());
    text.remove_suffix(1);
  }
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  value *= scale;
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && !text.empty() &&
         std::isfinite(value);
}

}  // namespace

class ArgumentParser {
 public:
  ArgumentParser(const Verb& verb, EnvironmentLookup environment)
      : verb_(verb), environment_(environment) {}

  Result<Arguments> parse(std::span<const std::string> words) {
    TRY(apply_defaults());
    bool only_positionals = false;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (only_positionals || !word.starts_with("--") || word == "-") {
        if (!only_positionals && word.size() > 1 && word[0] == '-') return unknown_short(word);
        arguments_.positionals_.push_back(word);
      } else if (word == "--") {
        only_positionals = true;
      } else {
        TRY(take_option(words, i));
      }
    }
    TRY(check_positionals());
    return std::move(arguments_);
  }

 private:
  Result<void> apply_defaults() {
    for (const auto& option : verb_.options) {
      if (!option.fallback.empty())
        arguments_.values_[std::string(option.name)] = {std::string(option.fallback), false};
      const std::string name = environment_name(option.name);
      auto value = environment_(name);
      if (!value) continue;
      if (option.value.empty()) value = TRY(switch_value(name, *value));
      arguments_.values_[std::string(option.name)] = {*value, true};
    }
    return {};
  }

  Result<void> take_option(std::span<const std::string> words, size_t& i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
    const Option* option = find_option(verb_, name);
    if (option == nullptr && name.starts_with("no-") && equals == word.npos) {
      option = find_option(verb_, name.substr(3));
      if (option == nullptr || !option->value.empty()) return unknown_option(verb_, word);
      arguments_.values_[std::string(option->name)] = {"false", true};
      return {};
    }
    if (option == nullptr) return unknown_option(verb_, word);
    std::string value = "true";
    if (equals != word.npos) {
      value = word.substr(equals + 1);
      if (option->value.empty()) value = TRY(switch_value(concat("--", name), value));
    } else if (!option->value.empty()) {
      if (i + 1 >= words.size()) {
        return make_error(ErrorCode::invalid_argument,
                          {.what = concat("--", name),
                           .expected = concat("a value ", option->value),
                           .found = "the end of the command"});
      }
      value = words[++i];
    }
    arguments_.values_[std::string(option->name)] = {value, true};
    return {};
  }

  Error unknown_short(const std::string& word) const {
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("unknown option ", word),
                       .advice = concat("`nibble ", verb_.name,
                                        " --help` lists the options; put -- before text that "
                                        "starts with a dash")});
  }

  Result<void> check_positionals() const {
    const auto wanted = std::ranges::count(verb_.positionals, ' ') + !verb_.positionals.empty();
    const auto optional = std::ranges::count(verb_.positionals, '[');
    const auto found = arguments_.positional_count();
    if (found >= wanted - optional && found <= wanted) return {};
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "arguments",
         .expected = verb_.positionals.empty() ? "none" : std::string(verb_.positionals),
         .found = concat(found),
         .advice = concat("see `nibble ", verb_.name, " --help`")});
  }

  const Verb& verb_;
  EnvironmentLookup environment_;
  Arguments arguments_;
};

Result<Arguments> parse_arguments(const Verb& verb, std::span<const std::string> words,
                                  EnvironmentLookup environment) {
  return ArgumentParser(verb, environment).parse(words);
}

const std::string& Arguments::positional(int index) const {
  CHECK(index >= 0 && index < positional_count(), "positional ", index);
  return positionals_[static_cast<size_t>(index)];
}

bool Arguments::given(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() && found->second.from_user;
}

bool Arguments::enabled(std::string_view name) const { return text(name) == "true"; }

std::optional<std::string> Arguments::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second.text;
}

Result<double> Arguments::number(std::string_view name, double least, double most) const {
  const auto value_text = text(name);
  CHECK(value_text.has_value(), "--", name, " has neither a value nor a default");
  double value = 0;
  if (parse_number(*value_text, value) && value >= least && value <= most) return value;
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name),
                     .expected = concat("a number from ", least, " to ", most),
                     .found = concat("\"", *value_text, "\"")});
}

Result<int64_t> Arguments::integer(std::string_view name, int64_t least, int64_t most) const {
  const auto value_text = text(name);
  CHECK(value_text.has_value(), "--", name, " has neither a value nor a default");
  double value = 0;
  if (parse_number(*value_text, value) && value == std::floor(value) &&
      value >= static_cast<double>(least) && value <= static_cast<double>(most)) {
    return static_cast<int64_t>(value);
  }
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name),
                     .expected = concat("a whole number from ", least, " to ", most),
                     .found = concat("\"", *value_text, "\"")});
}

Result<std::string> Arguments::choice(std::string_view name,
                                      std::initializer_list<std::string_view> choices) const {
  const std::string value = text(name).value_or("");
  std::string known;
  for (const auto& choice : choices) {
    if (value == choice) return value;
    known += concat(known.empty() ? "" : ", ", choice);
  }
  return make_error(ErrorCode::invalid_argument, {.what = concat("--", name),
                                                  .expected = concat("one of ", known),
                                                  .found = concat("\"", value, "\"")});
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = word.size() / 3 + 2;  // farther than this is another word
  for (const auto& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t substitute = diagonal + (word[i] != candidate[j] ? 1 : 0);
        diagonal = row[j + 1];
        row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substitute});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string help_text(const Verb& verb) {
  std::string text =
      concat("nibble ", verb.name, verb.positionals.empty() ? "" : " ", verb.positionals,
             verb.options.empty() ? "" : " [options]", "\n\n", verb.summary, "\n");
  if (!verb.options.empty()) text += "\nOptions (each also as NIBBLE_<NAME> in the environment):\n";
  for (const auto& option : verb.options) {
    std::string left = concat("  --", option.name, option.value.empty() ? "" : " ", option.value);
    left.resize(std::max<size_t>(left.size() + 2, 32), ' ');
    text +=
        concat(left, option.help,
               option.fallback.empty() ? std::string() : concat(" [", option.fallback, "]"), "\n");
  }
  return text;
}

}  // namespace nibble
