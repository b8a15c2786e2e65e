// Brings together what a JSON Schema says at one place: several schemas that hold at once, taken
// apart into alternatives without anyOf, oneOf, allOf and $ref. It is not for text: schema_grammar
// writes that.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/language.h"

namespace nibble {

/// A schema, and where it is written, as a JSON pointer.
struct SchemaPlace {
  const Json* schema = nullptr;
  std::string at;
};
/// All of them hold.
using Together = std::vector<SchemaPlace>;

/// A schema whose own keywords hold, those that combine others set aside.
struct SchemaPart {
  SchemaPlace place;
  std::vector<const Json*> way;  // the schemas that lead here through allOf, $ref, ...; last itself
};
using Alternative = std::vector<SchemaPart>;

/// JSON types as bits. An integer is a number too: `number` without `integer` does not occur.
enum TypeBits : unsigned {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kNumberType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kEveryType = 127,
};

/// The keywords that say what the text of a string is.
inline constexpr const char* kTextKeywords[] = {"pattern", "format", "contentEncoding"};

Error schema_refusal(const std::string& at, std::string_view why);
/// A member's name inside a JSON pointer (RFC 6901).
std::string escaped_name(std::string_view name);
/// The text with "%25" and its like as the bytes that they stand for.
std::string percent_decoded(std::string_view text);

/// True if one of the parts has one of the keywords.
bool says(const Alternative& parts, std::initializer_list<const char*> keywords);

/// True if no two items of a list may be equal.
bool unique_items(const Alternative& parts);
/// True if some items have a schema of their own by their place.
bool tuples(const Alternative& parts);

/// The counts of items a list may have, and of those that have a schema of their own.
struct ItemCounts {
  int64_t least = 0;
  std::optional<int64_t> most;
  size_t own = 0;
};

/// Errors: invalid_argument, for what cannot be enforced of lists.
Result<ItemCounts> item_counts(const Alternative& parts);

/// The names that the schemas give, in their order; those that are required last.
std::vector<std::string> names_of(const Alternative& parts);
/// True if a property must be there.
bool is_required(const Alternative& parts, const std::string& name);
/// The patterns of names that the schemas tell apart.
std::vector<std::string> name_patterns(const Alternative& parts);
/// True if objects are written that hold names which the schemas do not give.
bool holds_others(const Alternative& parts);
/// True if objects are written that hold the name.
bool may_hold(const Alternative& parts, const std::string& name);
/// The schemas that the names of properties must fulfil.
Together name_schemas(const Alternative& parts);

class SchemaFacts {
 public:
  explicit SchemaFacts(const Json& root) : root_(root) {}

  const Json& root() const { return root_; }
  /// Errors: invalid_argument, for what cannot be taken apart: too many alternatives, a reference
  /// that leads to itself, alternatives of oneOf that do not exclude each other.
  Result<std::vector<Alternative>> alternatives(const Together& together);
  /// The place of a reference such as "#/$defs/a".
  Result<SchemaPlace> target(const SchemaPlace& reference) const;

  static Result<unsigned> types(const Alternative& parts);
  /// The texts of strings beside their lengths, or nullptr for any.
  Result<Pattern> string_pattern(const Alternative& parts);
  Result<const Language*> language(const std::string& key, const Pattern& pattern);
  Result<Pattern> pattern_at(const SchemaPlace& place, const char* keyword);
  /// The schemas that the value of a property must fulfil.
  Result<Together> property(const Alternative& parts, const std::string& name);
  /// Likewise of the item at an index (that after all that have their own: of the others).
  static Together item(const Alternative& parts, size_t index);

  /// The strings that all of them allow.
  Result<Language> names(const Together& together);

  /// True if a value is what a schema says.
  Result<bool> valid(const SchemaPlace& place, const Json& value, int depth = 0);
  Result<bool> valid(const Alternative& parts, const Json& value);
  /// True if nothing fulfils both, as far as can be seen.
  Result<bool> apart(const Together& a, const Together& b);

 private:
  using Way = std::vector<const Json*>;
  Result<void> expand(const SchemaPlace& place, Way way, std::vector<Alternative>& made);
  Result<void> expand_choice(const SchemaPlace& place, const char* keyword, const Way& way,
                             std::vector<Alternative>& made);
  Result<void> check_one_of(const SchemaPlace& place);
  Result<void> expand_one_of(const SchemaPlace& place, const Way& way,
                             std::vector<Alternative>& made);
  Result<bool> own_valid(const SchemaPlace& place, const Json& value, int depth);
  Result<bool> apart_inside(const Together& a, const Together& b);
  Result<bool> apart_parts(const Alternative& a, const Alternative& b);
  Result<bool> apart_objects(const Alternative& a, const Alternative& b);

  const Json& root_;
  std::map<std::string, Language> languages_;
  std::map<const Json*, const Json*> one_of_;  // see expand_one_of
  std::deque<Json> made_;                      // schemas without what combines others
  int apart_depth_ = 0;
};

}  // namespace nibble
