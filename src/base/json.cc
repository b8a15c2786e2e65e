// RapidJSON's event reader feeds our own tree; RapidJSON is seen by this file alone.
#include "base/json.h"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <unordered_set>

template class std::vector<nibble::Json>;
template class std::vector<nibble::Json::Member>;

namespace nibble {

namespace {

/// Builds the tree from events; refuses depth and duplicate keys on the way.
class TreeBuilder {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool Null() { return add(Json()); }
  bool Bool(bool value) { return add(Json(value)); }
  // Numbers come as text (RawNumber): RapidJSON's own exact conversion shifts by clz(0) on some
  // zeros. The other number events are part of the handler's form and never arrive.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    const std::string number(text, length);
    const bool whole = number.find_first_of(".eE") == number.npos;
    int64_t integer = 0;
    const char* end = number.data() + number.size();
    if (whole && std::from_chars(number.data(), end, integer).ec == std::errc())
      return add(Json(integer));
    double value = 0;
    if (std::from_chars(number.data(), end, value).ec != std::errc())
      value = std::strtod(number.c_str(), nullptr);  // out of range: to 0 or to infinity
    if (std::isfinite(value)) return add(Json(value));
    refusal_ = "a number too large for a double";
    return false;
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    if (has_surrogate({text, length})) return false;
    return add(Json(std::string(text, length)));
  }
  bool StartObject() { return open(Json(Json::Object{})); }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    if (has_surrogate({text, length})) return false;
    open_.back().key.assign(text, length);
    return true;
  }
  bool EndObject(rapidjson::SizeType) { return settle_keys(open_.back().value) && close(); }
  bool StartArray() { return open(Json(Json::Array{})); }
  bool EndArray(rapidjson::SizeType) { return close(); }

  Json take() { return std::move(root_); }
  const std::string& refusal() const { return refusal_; }

 private:
  struct Open {
    Json value;
    std::string key;
  };

  /// RapidJSON turns a lone "\udc00" into bytes that are no UTF-8.
  bool has_surrogate(std::string_view text) {
    for (size_t at = text.find('\xED'); at != text.npos; at = text.find('\xED', at + 1)) {
      if (at + 1 >= text.size() || static_cast<unsigned char>(text[at + 1]) < 0xA0) continue;
      refusal_ = "a lone surrogate escape";
      return true;
    }
    return false;
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.as_array().push_back(std::move(value));
    } else {
      open_.back().value.as_object().push_back({std::move(open_.back().key), std::move(value)});
    }
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth_max) {
      refusal_ = concat("nesting deeper than ", limits_.depth_max);
      return false;
    }
    open_.push_back({std::move(container), {}});
    return true;
  }
  bool close() {
    Json done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }
  bool settle_keys(Json& object) {
    Json::Object& members = object.as_object();
    std::unordered_set<std::string_view> seen;
    bool repeated = false;
    for (const auto& member : members) {
      if (seen.insert(member.key).second) continue;
      repeated = true;
      if (limits_.duplicate_keys == DuplicateKeys::reject) {
        refusal_ = "duplicate key ";
        append_json_string(refusal_, member.key.substr(0, 100));
        return false;
      }
    }
    if (!repeated) return true;
    Json kept{Json::Object{}};
    for (auto& member : members) kept.set(member.key, std::move(member.value));
    object = std::move(kept);
    return true;
  }

  const JsonLimits& limits_;
  std::vector<Open> open_;
  Json root_;
  std::string refusal_;
};

void append_newline(std::string& out, int indent, int depth) {
  if (indent == 0) return;
  out.push_back('\n');
  out.append(static_cast<size_t>(indent * depth), ' ');
}

void append_value(std::string& out, const Json& value, int indent, int depth);

void append_array(std::string& out, const Json::Array& items, int indent, int depth) {
  out.push_back('[');
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_newline(out, indent, depth + 1);
    append_value(out, items[i], indent, depth + 1);
  }
  if (!items.empty()) append_newline(out, indent, depth);
  out.push_back(']');
}

void append_object(std::string& out, const Json::Object& members, int indent, int depth) {
  out.push_back('{');
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_newline(out, indent, depth + 1);
    append_json_string(out, members[i].key);
    out.append(indent == 0 ? ":" : ": ");
    append_value(out, members[i].value, indent, depth + 1);
  }
  if (!members.empty()) append_newline(out, indent, depth);
  out.push_back('}');
}

void append_value(std::string& out, const Json& value, int indent, int depth) {
  if (value.is_null()) {
    out.append("null");
  } else if (value.is_bool()) {
    out.append(value.as_bool() ? "true" : "false");
  } else if (value.is_int()) {
    out.append(concat(value.as_int()));
  } else if (value.is_double()) {
    append_json_double(out, value.as_double());
  } else if (value.is_string()) {
    append_json_string(out, value.as_string());
  } else if (value.is_array()) {
    append_array(out, value.as_array(), indent, depth);
  } else {
    append_object(out, value.as_object(), indent, depth);
  }
}

}  // namespace

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(Integer value) : value_(value.value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}

Json json_object(std::initializer_list<Json::Member> members) {
  return Json(Json::Object(members));
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",   "boolean", "integer", "number",
                                           "string", "array",   "object"};
  return kNames[value_.index() % std::size(kNames)];
}

bool Json::as_bool() const {
  CHECK(is_bool(), "a JSON ", type_name(), " is not a boolean");
  return std::get<bool>(value_);
}
int64_t Json::as_int() const {
  CHECK(is_int(), "a JSON ", type_name(), " is not an integer");
  return std::get<int64_t>(value_);
}
double Json::as_double() const {
  CHECK(is_number(), "a JSON ", type_name(), " is not a number");
  return is_int() ? static_cast<double>(std::get<int64_t>(value_)) : std::get<double>(value_);
}
const std::string& Json::as_string() const {
  CHECK(is_string(), "a JSON ", type_name(), " is not a string");
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  CHECK(is_array(), "a JSON ", type_name(), " is not an array");
  return std::get<Array>(value_);
}
Json::Array& Json::as_array() {
  CHECK(is_array(), "a JSON ", type_name(), " is not an array");
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  CHECK(is_object(), "a JSON ", type_name(), " is not an object");
  return std::get<Object>(value_);
}
Json::Object& Json::as_object() {
  CHECK(is_object(), "a JSON ", type_name(), " is not an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto& members = as_object();
  const auto found = std::ranges::find(members, key, &Member::key);
  return found == members.end() ? nullptr : &found->value;
}
Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  if (Json* existing = find(key)) {
    *existing = std::move(value);
  } else {
    as_object().push_back({std::string(key), std::move(value)});
  }
}
void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(value));
}

bool Json::operator==(const Json& other) const { return value_ == other.value_; }

std::string Json::dump() const {
  std::string out;
  append_value(out, *this, 0, 0);
  return out;
}
std::string Json::dump_pretty(int indent) const {
  std::string out;
  append_value(out, *this, indent, 0);
  out.push_back('\n');
  return out;
}

Result<Json> parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source, " is too large"),
                       .expected = concat("at most ", limits.bytes_max, " bytes"),
                       .found = concat(text.size())});
  }
  TreeBuilder builder(limits);
  rapidjson::Reader reader;
  rapidjson::MemoryStream stream(text.data(), text.size());
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag |
                              rapidjson::kParseNumbersAsStringsFlag |
                              rapidjson::kParseValidateEncodingFlag;
  // MemoryStream ends with NUL events, so a NUL byte inside the text must be refused by hand.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source, " is not valid JSON at byte ", nul, ": a NUL byte")});
  const auto outcome = reader.Parse<kFlags>(stream, builder);
  if (outcome.IsError()) {
    const std::string reason = builder.refusal().empty()
                                   ? std::string(rapidjson::GetParseError_En(outcome.Code()))
                                   : builder.refusal();
    return make_error(ErrorCode::corrupt, {.what = concat(source, " is not valid JSON at byte ",
                                                          outcome.Offset(), ": ", reason)});
  }
  return builder.take();
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  const auto plain = [](char c) {
    return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t begin = at;
    while (at < text.size() && plain(text[at])) ++at;
    out.append(text, begin, at - begin);
    if (at == text.size()) break;
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (c == '\b') {
      out.append("\\b");
    } else if (c == '\f') {
      out.append("\\f");
    } else {
      out.append("\\u00");
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  out.push_back('"');
}

void append_json_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out.append("NaN");
    return;
  }
  if (std::isinf(value)) {
    out.append(value > 0 ? "Infinity" : "-Infinity");
    return;
  }
  // Python's repr: fixed notation for exponents -4..15, scientific outside.
  const double magnitude = std::fabs(value);
  char digits[64];
  const bool fixed = value == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view printed(digits, static_cast<size_t>(end.ptr - digits));
  out.append(printed);
  if (fixed && printed.find('.') == std::string_view::npos) out.append(".0");
}

}  // namespace nibble
