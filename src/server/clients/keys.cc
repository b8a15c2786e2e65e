// Reading key files and finding keys.
#include "server/clients/keys.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{8} << 20;
constexpr size_t kKeysMax = 10'000;
constexpr size_t kNameBytesMax = 64;
constexpr size_t kHashDigits = 64;

/// Time depends on the lengths only.
bool constant_time_equal(std::string_view a, std::string_view b) {
  size_t difference = a.size() ^ b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |=
        static_cast<size_t>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return difference == 0;
}

Error wrong(std::string_view field, std::string_view expected, const Json& found) {
  return make_error(ErrorCode::corrupt, {.what = concat("\"", field, "\""),
                                         .expected = expected,
                                         .found = found.dump().substr(0, 100)});
}

Result<double> number(const Json& value, std::string_view field, double least, double most) {
  const bool whole = field != "weight";
  const bool kind = whole ? value.is_int() : value.is_number();
  if (kind && value.as_double() >= least && value.as_double() <= most) return value.as_double();
  return wrong(field, concat(whole ? "a whole number" : "a number", " from ", least, " to ", most),
               value);
}

Result<std::string> name(const Json& value) {
  const bool fits = value.is_string() && !value.as_string().empty() &&
                    value.as_string().size() <= kNameBytesMax &&
                    std::ranges::all_of(value.as_string(), [](char c) {
                      return c > ' ' && c < 127 && c != '"' && c != '\\';
                    });
  if (fits) return value.as_string();
  return wrong("name", concat("1 to ", kNameBytesMax, " printable characters without spaces"),
               value);
}

Result<std::string> hash(const Json& value) {
  std::string digits = value.is_string() ? value.as_string() : "";
  std::ranges::transform(digits, digits.begin(),
                         [](char c) { return c >= 'A' && c <= 'F' ? c + 32 : c; });
  if (digits.size() == kHashDigits &&
      digits.find_first_not_of("0123456789abcdef") == std::string::npos)
    return digits;
  return wrong("sha256", "64 hex digits: printf %s KEY | sha256sum", value);
}

Result<std::vector<std::string>> names(const Json& value, std::string_view field) {
  std::vector<std::string> list;
  for (const Json& item : value.is_array() ? value.as_array() : Json::Array{Json()}) {
    if (!item.is_string()) return wrong(field, "a list of names", value);
    list.push_back(item.as_string());
  }
  if (list.empty()) return wrong(field, "at least one name, or no such member", value);
  return list;
}

Result<void> read_priority(const Json& value, KeyRules& rules) {
  const bool pair = value.is_array() && value.as_array().size() == 2;
  if (!pair) return wrong("priority", "[least, most]", value);
  rules.priority_least =
      static_cast<int32_t>(TRY(number(value.as_array()[0], "priority", -1000, 1000)));
  rules.priority_most =
      static_cast<int32_t>(TRY(number(value.as_array()[1], "priority", -1000, 1000)));
  if (rules.priority_least > rules.priority_most)
    return wrong("priority", "least before most", value);
  return {};
}

Result<void> read_member(std::string_view field, const Json& value, FilterStore& filters,
                         KeyRules& rules) {
  constexpr double kMost = 1e9;
  if (field == "name") {
    rules.name = TRY(name(value));
  } else if (field == "sha256") {
    rules.sha256 = TRY(hash(value));
  } else if (field == "profiles") {
    rules.profiles = TRY(names(value, field));
  } else if (field == "weight") {
    rules.weight = TRY(number(value, field, 0.01, 100));
  } else if (field == "max_concurrent") {
    rules.concurrent_max = static_cast<int32_t>(TRY(number(value, field, 1, kMost)));
  } else if (field == "requests_per_minute") {
    rules.requests_per_minute = static_cast<int32_t>(TRY(number(value, field, 1, kMost)));
  } else if (field == "tokens_per_minute") {
    rules.tokens_per_minute = static_cast<int64_t>(TRY(number(value, field, 1, 1e12)));
  } else if (field == "priority") {
    TRY(read_priority(value, rules));
  } else if (field == "cache") {
    if (value != Json("shared") && value != Json("salted"))
      return wrong(field, "\"salted\" or \"shared\"", value);
    rules.cache = value == Json("shared") ? CacheSharing::shared : CacheSharing::salted;
  } else if (field == "filters") {
    rules.filters = TRY(filters.get_all(TRY(names(value, field))));
  } else {
    return make_error(
        ErrorCode::corrupt,
        {.what = concat("unknown member ", Json(field.substr(0, 100)).dump()),
         .advice = "the members are name, sha256, profiles, weight, max_concurrent, "
                   "requests_per_minute, tokens_per_minute, priority, cache, filters"});
  }
  return {};
}

Result<KeyRules> read_line(std::string_view line, FilterStore& filters) {
  const Json object = TRY(parse_json(line, "the line"));
  if (!object.is_object())
    return make_error(
        ErrorCode::corrupt,
        {.what = "the line", .expected = "a JSON object", .found = object.type_name()});
  KeyRules rules;
  for (const auto& [field, value] : object.as_object())
    TRY(read_member(field, value, filters, rules));
  for (const std::string_view field : {"name", "sha256"})
    if (object.find(field) == nullptr)
      return make_error(ErrorCode::corrupt, {.what = concat("no \"", field, "\"")});
  return rules;
}

}  // namespace

void Keys::add(std::string_view key) {
  KeyRules rules{.name = concat("key-", rules_.size() + 1), .sha256 = sha256_hex(key)};
  rules_.push_back(std::make_shared<const KeyRules>(std::move(rules)));
}

Result<void> Keys::add_rules(KeyRules rules, std::string_view source) {
  for (const auto& other : rules_)
    if (other->name == rules.name || other->sha256 == rules.sha256)
      return make_error(ErrorCode::corrupt,
                        {.what = concat(source, ": ", rules.name),
                         .expected = "each name and each key once",
                         .found = concat("the same as ", other->name, " before it")});
  if (rules_.size() >= kKeysMax)
    return make_error(ErrorCode::corrupt,
                      {.what = concat(source, ": more than ", kKeysMax, " keys")});
  rules_.push_back(std::make_shared<const KeyRules>(std::move(rules)));
  return {};
}

Result<void> Keys::add_lines(std::string_view text, std::string_view source, FilterStore& filters) {
  const size_t before = rules_.size();
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty() || line.front() == '#') continue;
    const std::string place = concat(source, " line ", number);
    auto rules = read_line(line, filters);
    if (!rules.ok()) return Error{rules.error().code, concat(place, ": ", rules.error().message)};
    TRY(add_rules(std::move(rules).value(), place));
  }
  if (rules_.size() > before) return {};
  return make_error(ErrorCode::corrupt,
                    {.what = concat(source, ": no key"),
                     .expected = R"(lines of {"name": "NAME", "sha256": "HEX"})"});
}

std::shared_ptr<const KeyRules> Keys::find(std::string_view key) const {
  const std::string hashed = sha256_hex(key);
  std::shared_ptr<const KeyRules> found;
  for (const auto& rules : rules_)
    if (constant_time_equal(rules->sha256, hashed)) found = rules;
  return found;
}

Result<std::optional<std::string>> KeyFile::changed_text() {
  if (!watch_.changed()) return std::optional<std::string>();
  return std::optional(TRY(read_text_file(path_, kFileBytesMax)));
}

std::string_view key_of(const HttpRequest& request) {
  // Names of schemes have no case: RFC 9110, 11.1.
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view header = request.header("authorization");
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  if (std::ranges::equal(header.substr(0, kBearer.size()), kBearer, same)) {
    const size_t key = header.find_first_not_of(' ', kBearer.size());
    return header.substr(std::min(key, header.size()));
  }
  return request.header("x-api-key");
}

}  // namespace nibble
