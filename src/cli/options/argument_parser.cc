// Words against the tables of a verb: flags, switches, operands, environment, what a configuration
// file says. What is wrong is gathered, so that one run tells all of it.
#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "cli/options/flag_errors.h"
#include "cli/verb.h"

namespace nibble {

namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

Result<std::string> switch_value(std::string_view source, std::string_view text) {
  const std::string lower = lower_case(text);
  for (const char* word : {"1", "on", "yes", "true"})
    if (lower == word) return std::string("true");
  for (const char* word : {"0", "off", "no", "false", ""})
    if (lower == word) return std::string("false");
  return make_error(ErrorCode::invalid_argument,
                    {.what = std::string(source),
                     .expected = "1, on, yes, true or 0, off, no, false",
                     .found = concat("\"", text, "\"")});
}

/// A value of --NAME.KEY as vLLM reads it: JSON, else a size, else text.
Json member_value(std::string_view text) {
  if (auto parsed = parse_json(text, "value"); parsed.ok()) return std::move(parsed).value();
  if (const auto size = read_size(text)) return Json(*size);
  return Json(text);
}

/// Sets the member at `path` ("a.b"), making objects on the way.
void set_member(Json& object, std::string_view path, Json value) {
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  if (dot == path.npos) return object.set(key, std::move(value));
  if (object.find(key) == nullptr || !object.find(key)->is_object())
    object.set(key, Json(Json::Object()));
  set_member(*object.find(key), path.substr(dot + 1), std::move(value));
}

}  // namespace

class ArgumentParser {
 public:
  ArgumentParser(const Verb& verb, EnvironmentLookup environment)
      : verb_(verb), environment_(environment) {}

  Result<Arguments> parse(std::span<const std::string> words, const ConfigSettings& config) {
    if (!config.errors.empty()) errors_.add(Error{ErrorCode::invalid_argument, config.errors});
    apply_defaults(verb_.options);
    apply_defaults(kCommonOptions);
    for (const ConfigSetting& setting : config.values)
      if (const Option* option = find_option(verb_, setting.option); option != nullptr)
        store(*option, {.text = setting.text, .source = ValueSource::file, .place = setting.place});
    apply_environment(verb_.options);
    apply_environment(kCommonOptions);
    bool only_positionals = false;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (only_positionals || word.size() < 2 || word[0] != '-')
        arguments_.positionals_.push_back(word);
      else if (word == "--")
        only_positionals = true;
      else
        take_option(words, i);
    }
    take_operand();
    if (!unknown_ && !arguments_.enabled("print-config")) check_positionals();
    if (verb_.check != nullptr) errors_.add(verb_.check(arguments_));
    TRY(errors_.result());
    return std::move(arguments_);
  }

 private:
  using Words = std::span<const std::string>;

  void apply_defaults(std::span<const Option> options) {
    for (const auto& option : options)
      if (!option.fallback.empty()) store(option, {.text = std::string(option.fallback)});
  }

  void apply_environment(std::span<const Option> options) {
    for (const auto& option : options) {
      const std::string name = environment_name(option.name);
      auto value = environment_(name);
      if (!value) continue;
      if (option.value.empty()) value = errors_.take(switch_value(name, *value));
      store(option, {.text = std::move(*value), .source = ValueSource::environment});
    }
  }

  void store(const Option& option, Arguments::Value value) {
    Arguments::Value& kept = arguments_.values_[std::string(option.name)];
    value.overridden = std::move(kept.overridden);
    if (kept.source != ValueSource::fallback && kept.source != value.source)
      value.overridden.push_back(arguments_.origin(option.name));
    kept = std::move(value);
  }

  void set(const Option& option, std::string text) {
    if (option.form == OptionForm::repeated && arguments_.source(option.name) == ValueSource::flag)
      text = concat(*arguments_.text(option.name), "\n", text);
    store(option, {.text = std::move(text), .source = ValueSource::flag});
  }

  /// words[i] begins with a dash; i ends at the last word that belongs to it.
  void take_option(Words words, size_t& i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    const bool is_long = word.starts_with("--");
    const std::string_view written = word.substr(is_long ? 2 : 0, equals - (is_long ? 2 : 0));
    const size_t dot = written.find('.');
    const std::string name = is_long ? with_dashes(written.substr(0, dot)) : std::string(written);
    const Option* option = find_option(verb_, name);
    std::optional<std::string_view> attached;
    if (equals != word.npos) attached = word.substr(equals + 1);
    if (option == nullptr && name.starts_with("no-") && !attached && dot == word.npos) {
      option = find_option(verb_, name.substr(3));
      if (option != nullptr && option->value.empty()) return set(*option, "false");
      if (option != nullptr) return refuse_no(*option);
    }
    if (option == nullptr) return refuse_unknown(words, i);
    if (dot != word.npos) return take_member(*option, written.substr(dot + 1), attached, words, i);
    if (option->value.empty()) return take_switch(*option, attached, words, i);
    if (attached) return set(*option, std::string(*attached));
    if (!has_value(words, i)) return refuse_without_value(*option, words, i);
    std::string value = words[++i];
    while (option->form == OptionForm::several && has_value(words, i))
      value += concat(",", words[++i]);
    set(*option, std::move(value));
  }

  /// A word that is no option follows words[i]. Negative numbers are none.
  static bool has_value(Words words, size_t i) {
    if (i + 1 >= words.size()) return false;
    const std::string& next = words[i + 1];
    return next.size() < 2 || next[0] != '-' || next[1] == '.' || std::isdigit(next[1]) != 0;
  }

  void take_switch(const Option& option, std::optional<std::string_view> attached, Words words,
                   size_t& i) {
    if (attached)
      return set(option, errors_.take(switch_value(concat("--", option.name), *attached)));
    const std::string next = i + 1 < words.size() ? lower_case(words[i + 1]) : "";
    const bool stated = next == "true" || next == "false";
    if (stated) ++i;
    set(option, stated ? next : "true");
  }

  /// --NAME.KEY VALUE: a member of the JSON object that NAME takes. KEY+ makes a list.
  void take_member(const Option& option, std::string_view path,
                   std::optional<std::string_view> attached, Words words, size_t& i) {
    if (!option.value.starts_with("JSON"))
      return errors_.add(make_error(
          ErrorCode::invalid_argument,
          {.what = concat("unknown option --", option.name, ".", path),
           .advice = concat("--", option.name, " takes no JSON object, so it has no members")}));
    if (!attached && !has_value(words, i)) return refuse_without_value(option, words, i);
    const std::string value(attached ? *attached : std::string_view(words[++i]));
    const bool list = path.ends_with('+');
    if (list) path.remove_suffix(1);
    Json object = Json(Json::Object());
    if (const auto before = arguments_.text(option.name); before && arguments_.given(option.name))
      if (auto parsed = parse_json(*before, option.name); parsed.ok() && parsed.value().is_object())
        object = std::move(parsed).value();
    set_member(object, path, list ? list_of(value) : member_value(value));
    set(option, object.dump());
  }

  static Json list_of(std::string_view text) {
    Json list = Json(Json::Array());
    while (!text.empty()) {
      const size_t end = text.find(',');
      list.push_back(Json(text.substr(0, end)));
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
    }
    return list;
  }

  /// --model DIR where DIR alone would do.
  void take_operand() {
    for (const auto& option : verb_.options)
      if (option.form == OptionForm::operand && arguments_.given(option.name) &&
          arguments_.positionals_.empty())
        arguments_.positionals_.push_back(*arguments_.text(option.name));
  }

  void refuse_no(const Option& option) {
    errors_.add(make_error(ErrorCode::invalid_argument,
                           {.what = concat("unknown option --no-", option.name),
                            .advice = concat("--", option.name, " takes a value ", option.value,
                                             ": it cannot be switched off")}));
  }

  void refuse_without_value(const Option& option, Words words, size_t i) {
    const bool last = i + 1 >= words.size();
    errors_.add(make_error(
        ErrorCode::invalid_argument,
        {.what = concat("--", option.name),
         .expected = concat("a value ", option.value),
         .found = last ? "the end of the command" : concat("the option ", words[i + 1]),
         .advice = last ? std::string()
                        : concat("write --", option.name, "=VALUE if it begins with a dash")}));
  }

  /// The words between an unknown option and the next option may be its value, so they are passed
  /// over.
  void refuse_unknown(Words words, size_t& i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    while (word.starts_with("--") && has_value(words, i)) ++i;
    unknown_ = true;
    std::vector<std::string_view> names = {"help"};
    for (const auto& option : kCommonOptions) names.push_back(option.name);
    for (const auto& option : verb_.options) names.push_back(option.name);
    for (const auto& flag : verb_.foreign) names.push_back(flag.option.name);
    const std::string_view near =
        word.starts_with("--") ? nearest_name(std::string_view(word).substr(2), names) : "";
    std::string advice = concat("did you mean --", near, "?");
    if (near.empty()) advice = concat("`nibble ", verb_.name, " --help` lists the options");
    if (!word.starts_with("--")) advice += "; put -- before text that starts with a dash";
    errors_.add(make_error(ErrorCode::invalid_argument,
                           {.what = concat("unknown option ", word), .advice = advice}));
  }

  void check_positionals() {
    const auto wanted = std::ranges::count(verb_.positionals, ' ') + !verb_.positionals.empty();
    const auto optional = std::ranges::count(verb_.positionals, '[');
    const auto found = arguments_.positional_count();
    const bool open = verb_.positionals.ends_with("...");  // the last word may stand often
    if (found >= wanted - optional && (open || found <= wanted)) return;
    std::string advice = concat("see `nibble ", verb_.name, " --help`");
    for (const auto& option : verb_.options)
      if (found == 0 && option.form == OptionForm::several && arguments_.given(option.name))
        advice = concat(verb_.positionals, " stands before --", option.name,
                        ", which takes all words up to the next option");
    const std::string words =
        found == 0 ? "nothing" : concat(found, found == 1 ? " word" : " words");
    const std::string_view takes = verb_.positionals.empty() ? "options only" : verb_.positionals;
    errors_.add(Error{ErrorCode::invalid_argument,
                      concat("`nibble ", verb_.name, "` ", found > wanted ? "takes " : "needs ",
                             takes, " and got ", words, "; ", advice)});
  }

  const Verb& verb_;
  EnvironmentLookup environment_;
  Arguments arguments_;
  FlagErrors errors_;
  bool unknown_ = false;  // an option, whose value cannot be told from a positional
};

Result<Arguments> parse_arguments(const Verb& verb, std::span<const std::string> words,
                                  EnvironmentLookup environment, const ConfigSettings& config) {
  return ArgumentParser(verb, environment).parse(words, config);
}

}  // namespace nibble
