// Filter look-up, and the filters that fit no other file: default, tojson, items, string, length.
#include "text/jinja/filters.h"

#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

Result<Value> fallback(Runtime&, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "default", {"default_value", "boolean"}));
  const bool by_truth = bound[1] != nullptr && truthy(*bound[1]);
  if (!value.is(Kind::undefined) && (!by_truth || truthy(value))) return value;
  return bound[0] != nullptr ? *bound[0] : Value(Text());
}

Result<std::optional<std::string>> indent_argument(const Value* value) {
  if (value == nullptr || value->is(Kind::none)) return std::optional<std::string>();
  if (value->is(Kind::string)) return std::optional(value->as_bytes());
  const int64_t width = TRY(int_argument(*value));
  if (width > 1000) return fail("tojson indents by at most 1000");
  return std::optional(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
}

Result<Value> tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound =
      TRY(bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound[0] != nullptr && truthy(*bound[0]);
  style.indent = TRY(indent_argument(bound[1]));
  style.sort_keys = bound[3] != nullptr && truthy(*bound[3]);
  if (style.indent) style.item_separator.pop_back();
  if (bound[2] != nullptr && !bound[2]->is(Kind::none)) {
    const std::vector<Value> pair = TRY(iterate(runtime, *bound[2]));
    if (pair.size() != 2 || !pair[0].is(Kind::string) || !pair[1].is(Kind::string)) {
      return fail("tojson separators must be two strings");
    }
    style.item_separator = pair[0].as_bytes();
    style.key_separator = pair[1].as_bytes();
  }
  return runtime.text(TRY(to_json(runtime, value, style)));
}

Result<Value> string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "string", {}));
  return to_text_value(runtime, value);
}

Result<Value> items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "items", {}));
  std::vector<Value> pairs;
  if (value.is(Kind::dict)) {
    for (const DictEntry& entry : value.as_dict().entries) {
      Value pair = TRY(runtime.list({entry.key, entry.value}, SequenceKind::tuple, "tuple"));
      pairs.push_back(pair.tag(value.origin()));
    }
  } else if (!value.is(Kind::undefined)) {
    return fail("Can only get item pairs from a mapping.");
  }
  return runtime.list(std::move(pairs), SequenceKind::iterator, "generator");
}

Result<Value> length(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "length", {}));
  size_t count = 0;
  if (value.is(Kind::string)) {
    TRY(runtime.charge(static_cast<int64_t>(value.as_text().size() / 64)));
    count = count_characters(value.as_bytes());
  } else if (value.is(Kind::dict)) {
    count = value.as_dict().entries.size();
  } else if (value.is(Kind::loop)) {
    count = value.as_loop().items->items.size();
  } else if (value.is(Kind::sequence) && value.as_sequence().kind != SequenceKind::iterator) {
    count = value.as_sequence().items.size();
  } else if (!value.is(Kind::undefined)) {
    return fail(concat("object of type '", type_name(value), "' has no len()"));
  }
  return Value(static_cast<int64_t>(count));
}

constexpr NamedFilter kFilters[] = {{"default", fallback}, {"d", fallback},  {"tojson", tojson},
                                    {"string", string},    {"items", items}, {"length", length},
                                    {"count", length}};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.function;
  }
  for (const auto find :
       {find_text_filter, find_number_filter, find_sequence_filter, find_select_filter}) {
    if (const FilterFunction function = find(name)) return function;
  }
  return nullptr;
}

bool is_unsupported_filter(std::string_view name) {
  static constexpr std::string_view kUnsupported[] = {
      "attr",      "filesizeformat", "groupby", "pprint",   "random",
      "striptags", "urlencode",      "urlize",  "wordwrap", "xmlattr"};
  return std::ranges::find(kUnsupported, name) != std::end(kUnsupported);
}

}  // namespace nibble::jinja
