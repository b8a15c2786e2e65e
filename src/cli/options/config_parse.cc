// The text of a configuration file against the tables of the verbs; nothing is opened here.
#include <algorithm>

#include "cli/options/config_file.h"
#include "cli/options/toml_document.h"

namespace nibble {

namespace {

bool takes_list(const Option& option) {
  return option.form == OptionForm::several || option.value.starts_with("LIST");
}

std::string expected_type(const Option& option) {
  if (option.secrecy == OptionSecrecy::secret) return "{ file = \"PATH\" }";
  if (option.value.empty()) return "true or false";
  if (option.value.starts_with("JSON")) return "a table, or JSON in a string";
  if (takes_list(option)) return "a string or a list of strings and numbers";
  return "a string or a number";
}

/// A string or a number in the words of a flag; empty for other types.
std::optional<std::string> word_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return concat(integer->get());
  if (const auto* real = node.as_floating_point()) return concat(real->get());
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view source, const Verb& verb, const SecretReader& secrets)
      : source_(source), verb_(verb), secrets_(secrets) {}

  ConfigSettings read(const toml::table& root) {
    for (const auto& [key, node] : root) verb_table(key.str(), node);
    const auto by_line = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::ranges::stable_sort(errors_, by_line);
    for (const auto& [line, message] : errors_)
      settings_.errors += concat(settings_.errors.empty() ? "" : "\n", message);
    return std::move(settings_);
  }

 private:
  TomlPlace at(const toml::node& node) const { return {source_, &node}; }

  void refuse(const toml::node& node, const Error& error) {
    errors_.push_back({node.source().begin.line, error.message});
  }

  void verb_table(std::string_view key, const toml::node& node) {
    const Verb* verb = verb_of(key);
    const auto* table = node.as_table();
    if (verb == nullptr) return refuse_verb(key, node);
    if (table == nullptr)
      return refuse(node,
                    toml_error(at(node), key, concat("a table [", key, "]"), toml_type(node)));
    std::vector<const Option*> seen;
    for (const auto& [name, value] : *table) {
      const Option* option = option_of(*verb, name.str(), value);
      if (option == nullptr) continue;
      if (std::ranges::find(seen, option) != seen.end()) {
        refuse(value, toml_error(at(value), name.str(), "each option once",
                                 concat("another name of ", option->name, " twice")));
        continue;
      }
      seen.push_back(option);
      take(*verb, *option, value);
    }
  }

  /// The verb of a table; this one first, since tests have verbs of their own.
  const Verb* verb_of(std::string_view key) const {
    if (key == verb_key(verb_)) return &verb_;
    const auto all = all_verbs();
    const auto found = std::ranges::find_if(all, [&](auto verb) { return verb_key(*verb) == key; });
    return found == all.end() ? nullptr : *found;
  }

  void refuse_verb(std::string_view key, const toml::node& node) {
    std::vector<std::string> keys;
    for (const Verb* verb : all_verbs()) keys.push_back(verb_key(*verb));
    const std::vector<std::string_view> names(keys.begin(), keys.end());
    const std::string_view near = nearest_name(key, names);
    std::string advice = "options stand in the table of their verb, such as [serve]";
    if (node.is_table() && !near.empty()) advice = concat("did you mean [", near, "]?");
    if (!node.is_table() && find_option(verb_, with_dashes(key)) != nullptr)
      advice = concat("write it below [", verb_key(verb_), "]");
    const std::string_view kind = node.is_table() ? "unknown verb " : "no verb's table: ";
    refuse(node,
           make_error(ErrorCode::invalid_argument,
                      {.what = at(node).of(concat(kind, quoted_text(key))), .advice = advice}));
  }

  const Option* option_of(const Verb& verb, std::string_view key, const toml::node& node) {
    const std::string name = with_dashes(key);
    const Option* option = find_option(verb, name);
    for (const Option& common : kCommonOptions)
      if (option == &common) option = nullptr;
    if (option != nullptr) return option;
    std::vector<std::string_view> names;
    for (const auto& known : verb.options) names.push_back(known.name);
    for (const auto& flag : verb.foreign) names.push_back(flag.option.name);
    const std::string_view near = nearest_name(name, names);
    std::string advice = concat("did you mean ", near, "?");
    if (near.empty()) advice = concat("`nibble ", verb.name, " --help` lists the options");
    const std::string positive = name.starts_with("no-") ? name.substr(3) : "";
    if (const Option* on = find_option(verb, positive); on != nullptr && on->value.empty())
      advice = concat("write ", on->name, " = false");
    refuse(node, make_error(ErrorCode::invalid_argument,
                            {.what = at(node).of(concat("unknown key ", quoted_text(key), " of [",
                                                        verb_key(verb), "]")),
                             .advice = advice}));
    return nullptr;
  }

  void take(const Verb& verb, const Option& option, const toml::node& node) {
    const bool mine = &verb == &verb_;
    auto text =
        option.secrecy == OptionSecrecy::secret ? secret(option, node, mine) : value(option, node);
    if (!text.ok()) return refuse(node, text.error());
    if (mine)
      settings_.values.push_back(
          {std::string(option.name), std::move(text).value(), at(node).line()});
  }

  /// The value of an option in the words of its flag.
  Result<std::string> value(const Option& option, const toml::node& node) const {
    const auto wrong = [&](std::string_view found, std::string_view advice = {}) {
      return toml_error(at(node), option.name, expected_type(option), found, advice);
    };
    if (option.value.empty()) {
      if (const auto* on = node.as_boolean()) return std::string(on->get() ? "true" : "false");
      return wrong(toml_type(node));
    }
    if (const auto word = word_of(node)) {
      if (word->find('\0') != std::string::npos) return wrong("a null byte");
      return *word;
    }
    const bool json = option.value.starts_with("JSON");
    if (json && (node.is_table() || node.is_array()))
      return TRY(toml_to_json(at(node), option.name)).dump();
    const auto* list = node.as_array();
    if (list == nullptr || !takes_list(option)) return wrong(toml_type(node));
    std::string words;
    for (const toml::node& item : *list) {
      const auto word = word_of(item);
      if (!word) return wrong(concat("a list with ", toml_type(item)));
      if (word->empty() || word->find_first_of(std::string_view(",\0", 2)) != std::string::npos)
        return wrong("an item that is empty or has a comma", "each item is one word");
      words += concat(words.empty() ? "" : ",", *word);
    }
    if (words.empty()) return wrong("an empty list", "leave the key out");
    return words;
  }

  /// The message never has the value.
  Result<std::string> secret(const Option& option, const toml::node& node, bool wanted) const {
    const auto* table = node.as_table();
    const auto* path = table == nullptr ? nullptr : table->get_as<std::string>("file");
    if (path == nullptr || table->size() != 1)
      return toml_error(at(node), option.name, expected_type(option),
                        table == nullptr ? toml_type(node) : "another table",
                        "a secret stands in a file of its own");
    if (!wanted) return std::string();
    auto text = secrets_(path->get());
    if (!text.ok())
      return Error{text.error().code, at(node).of(concat(option.name, ": ", text.error().message))};
    if (option.form != OptionForm::several && text.value().find(',') != std::string::npos)
      return toml_error(at(node), option.name, "a file of one line", "several lines or a comma");
    return text;
  }

  std::string_view source_;
  const Verb& verb_;
  const SecretReader& secrets_;
  ConfigSettings settings_;
  std::vector<std::pair<uint32_t, std::string>> errors_;
};

}  // namespace

ConfigSettings parse_config(std::string_view text, std::string_view source, const Verb& verb,
                            const SecretReader& secrets) {
  bool secret = false;
  for (const Verb* each : all_verbs())
    for (const Option& option : each->options)
      if (option.secrecy == OptionSecrecy::secret)
        secret = secret || with_dashes(text).find(option.name) != std::string::npos;
  auto root = parse_toml(text, source, secret ? TomlErrors::hide : TomlErrors::quote);
  if (!root.ok()) return {.values = {}, .errors = root.error().message};
  return Reader(source, verb, secrets).read(root.value());
}

}  // namespace nibble
