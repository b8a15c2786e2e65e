// Json: an immutable-by-habit value tree that keeps object order, and a writer. Parsing is strict
// JSON (RFC 8259, valid UTF-8, no duplicate keys unless asked) with limits on size and depth.
// Not for streaming gigabytes: the whole text is parsed into one tree.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace nibble {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // insertion order

  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(std::nullptr_t);
  Json(bool value);
  Json(double value);
  template <typename T>
  requires(std::integral<T> && !std::same_as<T, bool>) Json(T value)
      : Json(Integer{static_cast<int64_t>(value)}) {}
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array value);
  Json(Object value);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /// "null", "boolean", "integer", "number", "string", "array", "object": for messages.
  const char* type_name() const;

  // Unchecked kinds are programmer errors (CHECK); look first or use the find/get forms.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // integers convert
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  /// The member called key, or nullptr if this is no object or has none.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  /// Appends or replaces a member; a null value becomes an object first.
  void set(std::string_view key, Json value);
  void push_back(Json value);
  bool operator==(const Json& other) const;

  /// Compact text: {"a":1,"b":[2.5]}. Doubles are shortest round-trip and keep a ".0".
  std::string dump() const;
  /// Indented text with a final newline, for files people read.
  std::string dump_pretty(int indent = 2) const;

 private:
  struct Integer {
    int64_t value;
  };
  Json(Integer value);
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

/// An object of these members, in this order.
Json json_object(std::initializer_list<Json::Member> members);

}  // namespace nibble
// Their code is in json.cc alone; each file that uses Json would make it again.
extern template class std::vector<nibble::Json>;
extern template class std::vector<nibble::Json::Member>;
namespace nibble {

enum class DuplicateKeys { reject, keep_last };

struct JsonLimits {
  size_t bytes_max = size_t{64} << 20;
  int depth_max = 64;
  DuplicateKeys duplicate_keys = DuplicateKeys::reject;
};

/// Parses one JSON document. `source` names it in errors ("config.json", "request body").
/// Errors: corrupt, with the byte offset and the reason.
Result<Json> parse_json(std::string_view text, std::string_view source,
                        const JsonLimits& limits = {});

/// Appends `text` as a JSON string with quotes; only the escapes JSON requires (no \/ , no \u for
/// printable non-ASCII), like Python's ensure_ascii=False.
void append_json_string(std::string& out, std::string_view text);
/// Appends the shortest text that reads back as the same double; 1 prints as 1.0. NaN and
/// infinities print as Python's json does (NaN, Infinity), which is not JSON: check before.
void append_json_double(std::string& out, double value);

}  // namespace nibble
