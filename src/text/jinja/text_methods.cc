// The methods of str.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

using Bound = std::vector<const Value*>;

Result<const Text*> optional_text(const Value* value, std::string_view function) {
  if (value == nullptr || value->is(Kind::none)) return nullptr;
  return text_argument(*value, function);
}

Result<int64_t> optional_int(const Value* value, int64_t fallback) {
  if (value == nullptr || value->is(Kind::none)) return fallback;
  return int_argument(*value);
}

Result<Value> texts(Runtime& runtime, std::vector<Text> parts) {
  TRY(runtime.charge(static_cast<int64_t>(parts.size()) * 2));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(Value(std::move(part)));
  return runtime.list(std::move(items));
}

Result<Value> split(Runtime& runtime, const Text& self, const Arguments& arguments, Side side) {
  const auto bound = TRY(bind(arguments, "split", {"sep", "maxsplit"}));
  const Text* separator = TRY(optional_text(bound[0], "split"));
  const int64_t limit = TRY(optional_int(bound[1], -1));
  if (separator != nullptr && separator->empty()) return fail("empty separator");
  return texts(runtime, split_text(self, separator, limit, side));
}

Result<Value> partition(Runtime& runtime, const Text& self, const Arguments& arguments, Side side) {
  const auto bound = TRY(bind(arguments, "partition", {"sep"}, 1));
  const Text* separator = TRY(text_argument(*bound[0], "partition"));
  if (separator->empty()) return fail("empty separator");
  const size_t found = side == Side::left ? self.bytes().find(separator->bytes())
                                          : self.bytes().rfind(separator->bytes());
  std::vector<Value> items(3, Value(Text()));
  if (found == std::string::npos) {
    items[side == Side::left ? 0 : 2] = Value(self);
  } else {
    const size_t after = found + separator->size();
    items = {Value(self.slice(0, found)), Value(self.slice(found, after)),
             Value(self.slice(after, self.size()))};
  }
  return runtime.list(std::move(items), SequenceKind::tuple, "tuple");
}

/// The bytes that the optional start and end arguments (in characters) select.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // start <= end
  std::string_view of(const Text& text) const {
    return std::string_view(text.bytes()).substr(begin, end - begin);
  }
};
Result<Window> window(const Text& self, const Value* start, const Value* stop) {
  Window out{0, self.size(), true};
  if (start == nullptr && stop == nullptr) return out;
  const auto length = static_cast<int64_t>(count_characters(self.bytes()));
  int64_t ends[2] = {TRY(optional_int(start, 0)), TRY(optional_int(stop, length))};
  for (int64_t& end : ends) {
    if (end < 0) end = std::max<int64_t>(end + length, 0);
  }
  ends[1] = std::min(ends[1], length);
  if (ends[0] > ends[1]) {
    out.valid = false;
    out.begin = out.end = 0;
    return out;
  }
  out.begin = byte_of_character(self.bytes(), static_cast<size_t>(ends[0]));
  out.end = byte_of_character(self.bytes(), static_cast<size_t>(ends[1]));
  return out;
}

Result<Value> affix(const Text& self, std::string_view name, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, name, {"prefix", "start", "end"}, 1));
  const Window view = TRY(window(self, bound[1], bound[2]));
  const auto matches = [&](const Value& value) {
    const std::string& part = value.as_bytes();
    const std::string_view text = view.of(self);
    return view.valid && (name == "startswith" ? text.starts_with(part) : text.ends_with(part));
  };
  if (bound[0]->is(Kind::string)) return Value(matches(*bound[0]));
  const bool tuple =
      bound[0]->is(Kind::sequence) && bound[0]->as_sequence().kind == SequenceKind::tuple;
  if (!tuple) {
    return fail(
        concat(name, " first arg must be str or a tuple of str, not ", type_name(*bound[0])));
  }
  for (const Value& item : bound[0]->as_sequence().items) {
    if (!item.is(Kind::string)) {
      return fail(concat("tuple for ", name, " must only contain str, not ", type_name(item)));
    }
    if (matches(item)) return Value(true);
  }
  return Value(false);
}

size_t count_matches(std::string_view text, const std::string& part) {
  if (part.empty()) return count_characters(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

/// find, rfind, index, rindex, count.
Result<Value> search(const Text& self, std::string_view name, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, name, {"sub", "start", "end"}, 1));
  const Text* part = TRY(text_argument(*bound[0], name));
  const Window view = TRY(window(self, bound[1], bound[2]));
  const std::string_view text = view.of(self);
  if (name == "count") {
    return Value(static_cast<int64_t>(view.valid ? count_matches(text, part->bytes()) : 0));
  }
  const size_t found = !view.valid      ? std::string_view::npos
                       : name[0] == 'r' ? text.rfind(part->bytes())
                                        : text.find(part->bytes());
  if (found == std::string_view::npos) {
    if (name.ends_with("index")) return fail("substring not found");
    return Value(int64_t{-1});
  }
  const auto before = std::string_view(self.bytes()).substr(0, view.begin + found);
  return Value(static_cast<int64_t>(count_characters(before)));
}

Result<Value> replace(Runtime& runtime, const Text& self, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "replace", {"old", "new", "count"}, 2));
  const Text* from = TRY(text_argument(*bound[0], "replace"));
  const Text* to = TRY(text_argument(*bound[1], "replace"));
  const int64_t limit = TRY(optional_int(bound[2], -1));
  return runtime.text(TRY(replace_text(runtime, self, *from, *to, limit)));
}

Result<Value> join(Runtime& runtime, const Text& self, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "join", {"iterable"}, 1));
  if (!bound[0]->is(Kind::undefined) && !bound[0]->is(Kind::string) &&
      !bound[0]->is(Kind::sequence) && !bound[0]->is(Kind::dict)) {
    return fail("can only join an iterable");
  }
  const std::vector<Value> items = TRY(iterate(runtime, *bound[0]));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::string)) {
      return fail(
          concat("sequence item ", i, ": expected str instance, ", type_name(items[i]), " found"));
    }
    if (i > 0) out.append(self);
    out.append(items[i].as_text());
    if (out.size() > runtime.limits().output_bytes_max) break;
  }
  return runtime.text(std::move(out));
}

/// center, ljust, rjust, zfill.
Result<Value> pad(Runtime& runtime, const Text& self, std::string_view name,
                  const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, name, {"width", "fillchar"}, 1));
  const int64_t width = TRY(int_argument(*bound[0]));
  Text fill(name == "zfill" ? "0" : " ");
  if (bound[1] != nullptr) fill = *TRY(text_argument(*bound[1], name));
  if (count_characters(fill.bytes()) != 1) {
    return fail("The fill character must be exactly one character long");
  }
  const int64_t missing = width - static_cast<int64_t>(count_characters(self.bytes()));
  if (missing <= 0) return runtime.text(self);
  if (missing > static_cast<int64_t>(runtime.limits().output_bytes_max)) {
    return fail("the width is too large");
  }
  int64_t left = name == "ljust" ? 0 : missing;
  if (name == "center") left = missing / 2 + (missing & width & 1);
  size_t sign = 0;
  if (name == "zfill" && !self.empty() && (self.bytes()[0] == '-' || self.bytes()[0] == '+')) {
    sign = 1;
  }
  Text out = self.slice(0, sign);
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.slice(sign, self.size()));
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return runtime.text(std::move(out));
}

bool is_digit(uint32_t c) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kMore[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal(c) || std::ranges::any_of(kMore, [&](const Range& range) {
           return c >= range.first && c <= range.last;
         });
}

/// isupper and islower: some cased character, and none of the other case.
bool all_cased(std::string_view text, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  bool any = false;
  for (size_t at = 0; at < text.size(); at = next_character(text, at)) {
    const uint32_t c = code_point_at(text, at);
    if (other(c) || is_title(c)) return false;
    any |= wanted(c);
  }
  return any;
}

bool is_titled(std::string_view text) {
  bool any = false;
  bool inside = false;
  for (size_t at = 0; at < text.size(); at = next_character(text, at)) {
    const uint32_t c = code_point_at(text, at);
    const bool starts = is_upper(c) || is_title(c);
    if (starts ? inside : is_lower(c) && !inside) return false;
    inside = starts || is_lower(c);
    any |= inside;
  }
  return any;
}

Result<Value> classify(const Text& self, std::string_view name, const Arguments& arguments) {
  TRY(bind(arguments, name, {}));
  const std::string_view text = self.bytes();
  if (name == "isupper") return Value(all_cased(text, is_upper, is_lower));
  if (name == "islower") return Value(all_cased(text, is_lower, is_upper));
  if (name == "istitle") return Value(is_titled(text));
  bool (*in_class)(uint32_t) = is_space;
  if (name == "isalnum") in_class = is_alnum;
  if (name == "isalpha") in_class = is_alpha;
  if (name == "isdecimal") in_class = is_decimal;
  if (name == "isdigit") in_class = is_digit;
  if (name == "isascii") in_class = [](uint32_t c) { return c < 0x80; };
  for (size_t at = 0; at < text.size(); at = next_character(text, at)) {
    if (!in_class(code_point_at(text, at))) return Value(false);
  }
  return Value(!text.empty() || name == "isascii");
}

Result<Value> change_case(Runtime& runtime, const Text& self, std::string_view name,
                          const Arguments& arguments) {
  TRY(bind(arguments, name, {}));
  TRY(runtime.charge(static_cast<int64_t>(self.size() / 8)));
  if (name == "upper") return runtime.text(to_upper(self));
  if (name == "lower") return runtime.text(to_lower(self));
  if (name == "title") return runtime.text(to_title(self));
  return runtime.text(name == "capitalize" ? to_capitalized(self) : swap_case(self));
}

Result<Value> strip(Runtime& runtime, const Text& self, std::string_view name,
                    const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, name, {"chars"}));
  const Text* characters = TRY(optional_text(bound[0], name));
  const Ends ends = name == "lstrip" ? Ends::left : name == "rstrip" ? Ends::right : Ends::both;
  return runtime.text(strip_text(self, characters, ends));
}

Result<Value> remove_affix(Runtime& runtime, const Text& self, std::string_view name,
                           const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, name, {"affix"}, 1));
  const Text* part = TRY(text_argument(*bound[0], name));
  if (name == "removeprefix") {
    const bool found = self.bytes().starts_with(part->bytes());
    return runtime.text(self.slice(found ? part->size() : 0, self.size()));
  }
  const bool found = self.bytes().ends_with(part->bytes());
  return runtime.text(self.slice(0, self.size() - (found ? part->size() : 0)));
}

/// Python's Markup escapes the arguments of its methods; only harmless ones are let through.
Result<void> check_markup(const Text& self, const Arguments& arguments) {
  if (!self.markup) return {};
  for (const Value& value : arguments.positional) {
    if (value.is(Kind::string) && !value.as_text().markup &&
        value.as_bytes().find_first_of("&<>'\"") != std::string::npos) {
      return fail("a method of a 'safe' string with HTML characters is not supported");
    }
  }
  return {};
}

}  // namespace

Result<Value> call_text_method(Runtime& runtime, const Text& self, std::string_view name,
                               const Arguments& arguments) {
  TRY(check_markup(self, arguments));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    return strip(runtime, self, name, arguments);
  }
  if (name == "split" || name == "rsplit") {
    return split(runtime, self, arguments, name == "split" ? Side::left : Side::right);
  }
  if (name == "startswith" || name == "endswith") return affix(self, name, arguments);
  if (name == "replace") return replace(runtime, self, arguments);
  if (name == "join") return join(runtime, self, arguments);
  if (name == "format") return runtime.text(TRY(format_braces(runtime, self, arguments)));
  if (name == "splitlines") {
    TRY(bind(arguments, name, {}));
    return texts(runtime, split_lines(self));
  }
  if (name == "partition" || name == "rpartition") {
    return partition(runtime, self, arguments, name[0] == 'r' ? Side::right : Side::left);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    return remove_affix(runtime, self, name, arguments);
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count") {
    return search(self, name, arguments);
  }
  if (name == "center" || name == "ljust" || name == "rjust" || name == "zfill") {
    return pad(runtime, self, name, arguments);
  }
  if (name.starts_with("is")) return classify(self, name, arguments);
  return change_case(runtime, self, name, arguments);
}

}  // namespace nibble::jinja
