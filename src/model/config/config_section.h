// ConfigSection: one object of config.json read key by key, each *required*, *default* or *must
// equal*, every number inside a range. Knows nothing about models. A JSON null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct IntRange {
  int64_t low = 0;
  int64_t high = 0;
};

struct NumberRange {
  double low = 0;
  double high = 0;
};

class ConfigSection {
 public:
  /// `object` must outlive the section. `path` starts every key in messages: "config.json" or
  /// "config.json: text_config.".
  ConfigSection(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}

  /// The member, or nullptr when absent or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json& object() const { return *object_; }
  /// "config.json: text_config.hidden_size", for messages.
  std::string name(std::string_view key) const { return path_ + std::string(key); }

  Result<int64_t> integer(std::string_view key, IntRange range) const;
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, IntRange range) const;
  Result<double> number(std::string_view key, NumberRange range) const;
  Result<double> number_or(std::string_view key, double fallback, NumberRange range) const;
  /// Absent: empty.
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;
  /// A list of integers; an integer alone is a list of one. Absent: empty.
  Result<std::vector<int64_t>> integers_or_none(std::string_view key, IntRange range) const;
  /// A nested object.
  Result<ConfigSection> section(std::string_view key) const;

  /// Absent or exactly that value; anything else is unsupported, with `reason` as the advice.
  Result<void> must_be_true(std::string_view key, std::string_view reason) const;
  Result<void> must_be_false(std::string_view key, std::string_view reason) const;
  Result<void> must_equal(std::string_view key, std::string_view value,
                          std::string_view reason) const;

  Error missing(std::string_view key, std::string_view expected) const;
  /// A value of the wrong type or outside its range.
  Error wrong(std::string_view key, std::string_view expected, const Json& found) const;

 private:
  Result<void> must_be(std::string_view key, const Json& value, std::string_view reason) const;

  const Json* object_;
  std::string path_;
};

}  // namespace nibble
