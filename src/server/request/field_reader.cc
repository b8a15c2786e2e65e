// Typed reads and their refusals, each one line.
#include "server/request/field_reader.h"

#include <algorithm>
#include <cmath>

namespace nibble {

const Json* FieldReader::find(std::string_view name) const {
  if (asked_ != nullptr) asked_->emplace(name);
  const Json* value = object_.find(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::optional<double> FieldReader::number(std::string_view name, double least, double most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double x = value->as_double();
    if (x >= least && x <= most) return x;
  }
  refuse(name, {.what = name,
                .expected = concat("a number from ", least, " to ", most),
                .found = shown(*value)});
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t least, int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_int() && value->as_int() >= least && value->as_int() <= most)
    return value->as_int();
  // 1.0 is 1 where numbers have one type, as in JavaScript and Lua; beyond 2^53 it may be another.
  constexpr double kExactMax = 9007199254740992.0;
  const double real = value->is_double() ? value->as_double() : 0.5;
  if (std::trunc(real) == real && std::abs(real) <= kExactMax &&
      real >= static_cast<double>(least) && real <= static_cast<double>(most))
    return static_cast<int64_t>(real);
  refuse(name, {.what = name,
                .expected = concat("a whole number from ", least, " to ", most),
                .found = shown(*value)});
  return std::nullopt;
}

std::optional<bool> FieldReader::flag(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  refuse(name, {.what = name, .expected = "true or false", .found = shown(*value)});
  return std::nullopt;
}

std::optional<std::string> FieldReader::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  refuse(name, {.what = name, .expected = "a string", .found = shown(*value)});
  return std::nullopt;
}

void FieldReader::refuse(std::string_view name, const ErrorParts& parts) {
  if (!error_) error_ = ApiError::field(name, parts);
}

void FieldReader::unsupported(std::string_view name, std::initializer_list<Json> harmless) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (std::ranges::find(harmless, *value) != harmless.end()) return;
  refuse(name, {.what = concat(name, " ", shown(*value), " is not supported by this server"),
                .advice = "leave it out"});
}

}  // namespace nibble
