// TOML through toml++, with its failures as errors of one line.
#include "cli/options/toml_document.h"

#include <algorithm>

namespace nibble {

namespace {

struct BrokenToml {};

Error not_toml(std::string_view where, std::string_view found) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = where, .expected = "TOML", .found = found});
}

}  // namespace

void fail_broken_toml() { throw BrokenToml(); }

Result<toml::table> parse_toml(std::string_view text, std::string_view source, TomlErrors errors) {
  try {
    toml::parse_result parsed = toml::parse(text);
    if (parsed) return std::move(parsed).table();
    const auto line = parsed.error().source().begin.line;
    if (errors == TomlErrors::hide)
      return not_toml(concat(source, " line ", line), "text that is none");
    std::string found(parsed.error().description());  // it quotes the file, line breaks and all
    std::ranges::replace_if(
        found, [](unsigned char c) { return c < ' '; }, ' ');
    return not_toml(concat(source, " line ", line), found);
  } catch (const BrokenToml&) {
    return not_toml(source, "a date, a time or a number that is cut off");
  }
}

Error toml_error(const TomlPlace& place, std::string_view what, std::string_view expected,
                 std::string_view found, std::string_view advice) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = place.of(what), .expected = expected, .found = found, .advice = advice});
}

std::string_view toml_type(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

Result<Json> toml_to_json(const TomlPlace& place, std::string_view key) {
  const toml::node& node = *place.node;
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* integer = node.as_integer()) return Json(integer->get());
  if (const auto* real = node.as_floating_point()) return Json(real->get());
  if (const auto* flag = node.as_boolean()) return Json(flag->get());
  if (const auto* list = node.as_array()) {
    Json::Array items;
    for (const toml::node& item : *list)
      items.push_back(TRY(toml_to_json({place.source, &item}, key)));
    return Json(std::move(items));
  }
  const auto* table = node.as_table();
  if (table == nullptr)
    return toml_error(place, key, "strings, numbers, true, false, lists, tables", toml_type(node));
  Json object(Json::Object{});
  for (const auto& [name, value] : *table)
    object.set(name.str(), TRY(toml_to_json({place.source, &value}, key)));
  return object;
}

std::string quoted_text(std::string_view text) {
  constexpr size_t kShownMax = 80;
  return Json(text.size() > kShownMax ? concat(text.substr(0, kShownMax), "...") : text).dump();
}

}  // namespace nibble
