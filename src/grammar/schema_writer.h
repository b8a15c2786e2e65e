// Writer: from what the schemas say that hold together at one place to the rules of a grammar, in
// JSON, and in the form of calls, where the members of an object are parameters whose strings stand
// as they are. Private to this module: its door is schema_grammar.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema_facts.h"

namespace nibble {

/// A text of the grammar, or nothing where no value fits.
using Rule = std::optional<std::string>;

/// JSON, or the form of calls: <parameter=NAME>, a value, </parameter>.
enum class Form : uint8_t { json, call };

/// A text between quotes, as the grammar has it.
std::string literal_text(std::string_view text);
std::string regex_macro(const Pattern& pattern, Spelling spelling);

class SchemaWriter {
 public:
  /// The names of rules begin with `prefix`. The schema must outlive the writer.
  SchemaWriter(const Json& root, std::string prefix) : facts_(root), prefix_(std::move(prefix)) {}

  /// The rule of an answer. Errors: invalid_argument, for what cannot be enforced or fulfilled.
  Result<std::string> answer();
  /// The rule of the parameters of a call. Errors: likewise.
  Result<std::string> call();
  /// The rules that were made.
  std::string rules() const;

 private:
  struct Property {
    std::string text;  // its name and value
    bool required = false;
  };
  struct Object {
    Form form = Form::json;
    std::vector<Property> properties;
    Rule others;  // any other name and its value
    int64_t least = 0;
    std::optional<int64_t> most;
    std::map<std::pair<size_t, int64_t>, Rule> tails;
    bool left_out = false;  // a way to enough properties would count a name twice
  };
  struct Lengths {
    int64_t least = 0;
    std::optional<int64_t> most;
    std::string at;  // of one that is given
  };

  Result<Rule> rule(const Together& together);
  Result<Rule> parameter(const Together& together);
  Result<Rule> choice(const std::vector<Alternative>& alternatives, Form form);
  Result<Rule> alternative(const Alternative& parts, Form form);
  Result<Rule> values(const Alternative& parts, Form form);
  Result<Rule> number(const Alternative& parts, unsigned types);
  static Lengths lengths(const Alternative& parts);
  Result<Pattern> counted_pattern(const Alternative& parts, const Lengths& lengths);
  static Result<bool> holds_json(const Alternative& parts);
  Result<Rule> string(const Alternative& parts);
  Result<Rule> raw_string(const Alternative& parts);
  Result<Rule> array(const Alternative& parts);
  Result<Rule> unique_array(const std::vector<Json>& values, const Alternative& parts);
  Result<std::optional<std::vector<Json>>> listed(const Together& together);
  Result<Rule> object(const Alternative& parts, Form form);
  /// Nothing, if a required one cannot be had.
  Result<std::optional<std::vector<Property>>> named_properties(const Alternative& parts,
                                                                Form form);
  Result<Rule> other_properties(const Alternative& parts, Form form);
  Result<Language> other_names(const Alternative& parts, Form form);
  Result<Rule> tail(Object& object, size_t next, int64_t count);
  Rule end_of(Object& object, int64_t count) const;
  Result<std::string> add(std::string body);
  std::string rule_name(size_t index) const { return concat(prefix_, "r", index); }
  Result<void> one_reading(const std::vector<Alternative>& alternatives);

  SchemaFacts facts_;
  std::string prefix_;
  std::vector<std::string> bodies_;
  std::map<std::string, Rule> known_;
  std::map<std::string, std::string> by_body_;
  int depth_ = 0;
};

}  // namespace nibble
