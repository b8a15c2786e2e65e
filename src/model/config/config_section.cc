// Typed reads of one JSON object, with errors that name the key, the expectation and the finding.
#include "model/config/config_section.h"

#include <cmath>

namespace nibble {
namespace {

std::string range_text(IntRange range) {
  return concat("an integer in ", range.low, "..", range.high);
}
std::string range_text(NumberRange range) {
  return concat("a number in ", range.low, "..", range.high);
}

/// A value as a message shows it: short values whole, long ones by kind.
std::string shown(const Json& value) {
  const std::string text = value.dump();
  return text.size() <= 40 ? text : concat("a long ", value.type_name());
}

}  // namespace

const Json* ConfigSection::find(std::string_view key) const {
  const Json* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error ConfigSection::missing(std::string_view key, std::string_view expected) const {
  return make_error(ErrorCode::corrupt,
                    {.what = name(key), .expected = expected, .found = "nothing"});
}

Error ConfigSection::wrong(std::string_view key, std::string_view expected,
                           const Json& found) const {
  const std::string finding = shown(found);
  return make_error(ErrorCode::corrupt,
                    {.what = name(key), .expected = expected, .found = finding});
}

Result<int64_t> ConfigSection::integer(std::string_view key, IntRange range) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(key, range_text(range));
  if (!value->is_int() || value->as_int() < range.low || value->as_int() > range.high)
    return wrong(key, range_text(range), *value);
  return value->as_int();
}

Result<int64_t> ConfigSection::integer_or(std::string_view key, int64_t fallback,
                                          IntRange range) const {
  if (!has(key)) return fallback;
  return integer(key, range);
}

Result<double> ConfigSection::number(std::string_view key, NumberRange range) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(key, range_text(range));
  const double found = value->is_number() ? value->as_double() : std::nan("");
  if (!(found >= range.low && found <= range.high)) return wrong(key, range_text(range), *value);
  return found;
}

Result<double> ConfigSection::number_or(std::string_view key, double fallback,
                                        NumberRange range) const {
  if (!has(key)) return fallback;
  return number(key, range);
}

Result<std::optional<bool>> ConfigSection::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong(key, "true or false", *value);
  return std::optional<bool>(value->as_bool());
}

Result<std::string> ConfigSection::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(key, "a string");
  if (!value->is_string()) return wrong(key, "a string", *value);
  return value->as_string();
}

Result<std::string> ConfigSection::text_or(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return std::string(fallback);
  return text(key);
}

Result<std::vector<int64_t>> ConfigSection::integers_or_none(std::string_view key,
                                                             IntRange range) const {
  const Json* value = find(key);
  if (value == nullptr) return std::vector<int64_t>{};
  if (value->is_int()) return std::vector<int64_t>{TRY(integer(key, range))};
  const std::string expected = concat("a list of integers in ", range.low, "..", range.high);
  if (!value->is_array()) return wrong(key, expected, *value);
  std::vector<int64_t> numbers;
  for (const auto& element : value->as_array()) {
    if (!element.is_int() || element.as_int() < range.low || element.as_int() > range.high)
      return wrong(key, expected, element);
    numbers.push_back(element.as_int());
  }
  return numbers;
}

Result<ConfigSection> ConfigSection::section(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(key, "an object");
  if (!value->is_object()) return wrong(key, "an object", *value);
  return ConfigSection(*value, concat(name(key), "."));
}

Result<void> ConfigSection::must_be(std::string_view key, const Json& value,
                                    std::string_view reason) const {
  const Json* found = find(key);
  if (found == nullptr || *found == value) return {};
  const std::string expected = value.dump();
  const std::string finding = shown(*found);
  return make_error(ErrorCode::unsupported,
                    {.what = name(key), .expected = expected, .found = finding, .advice = reason});
}

Result<void> ConfigSection::must_be_true(std::string_view key, std::string_view reason) const {
  return must_be(key, Json(true), reason);
}
Result<void> ConfigSection::must_be_false(std::string_view key, std::string_view reason) const {
  return must_be(key, Json(false), reason);
}
Result<void> ConfigSection::must_equal(std::string_view key, std::string_view value,
                                       std::string_view reason) const {
  return must_be(key, Json(value), reason);
}

}  // namespace nibble
