// Look-ups. Nothing is reachable but data and the methods listed in methods.cc: the sandbox is the
// absence of anything else.
#include "text/jinja/access.h"

#include <algorithm>
#include <optional>

#include "text/jinja/arguments.h"
#include "text/jinja/methods.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

Value missing_attribute(const Value& value, std::string_view name) {
  return Value::undefined(
      concat(repr_text(object_name(value)), " has no attribute ", repr_text(name)));
}

Value unsafe_attribute(const Value& value, std::string_view name) {
  return Value::undefined(concat("access to attribute ", repr_text(name), " of ",
                                 repr_text(type_name(value)), " object is unsafe."));
}

Value loop_property(const Loop& loop, std::string_view name) {
  const auto& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index0);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index0") return Value(index);
  if (name == "index") return Value(index + 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 >= length);
  if (name == "length") return Value(length);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    return index > 0 ? items[loop.index0 - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? items[loop.index0 + 1] : Value::undefined("there is no next item");
  }
  return Value::undefined("");
}

/// The attribute that Python's getattr finds, or nothing.
Result<std::optional<Value>> own_attribute(const Value& value, std::string_view name) {
  switch (method_access(value, name)) {
    case MethodAccess::callable: {
      Callable method{.kind = Callable::Kind::method, .name = std::string(name), .self = value};
      return std::optional(Value(std::make_shared<const Callable>(std::move(method))));
    }
    case MethodAccess::forbidden:
      return std::optional(unsafe_attribute(value, name));
    case MethodAccess::unsupported:
      return fail(concat("the method '", name, "' is not supported"));
    case MethodAccess::none:
      break;
  }
  if (name.starts_with("__") && name.ends_with("__")) {
    return std::optional(unsafe_attribute(value, name));
  }
  if (value.is(Kind::name_space)) {
    for (const auto& [key, attribute] : value.as_namespace().attributes) {
      if (key == name) return std::optional(attribute);
    }
  }
  if (value.is(Kind::loop)) {
    Value property = loop_property(value.as_loop(), name);
    const bool known = !property.is(Kind::undefined) || !property.undefined_message().empty();
    if (known) return std::optional(std::move(property));
  }
  if (value.is(Kind::callable)) {
    return fail(concat("attribute ", repr_text(name), " of a function is not supported"));
  }
  return std::optional<Value>();
}

/// The position a Python index means, or nothing if out of range.
std::optional<size_t> position(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return {};
  return static_cast<size_t>(index);
}

bool subscriptable(const Sequence& sequence) {
  return sequence.kind != SequenceKind::view && sequence.kind != SequenceKind::iterator;
}

std::optional<Value> own_item(const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    const auto name = dict_key(key);
    if (!name.ok()) return {};
    const Dict& dict = value.as_dict();
    const auto found = dict.index.find(name.value());
    if (found == dict.index.end()) return {};
    return dict.entries[found->second].value;
  }
  if (!key.is_integral()) return {};
  if (value.is(Kind::sequence) && subscriptable(value.as_sequence())) {
    const auto& items = value.as_sequence().items;
    const auto index = position(key.as_int(), items.size());
    if (index) return items[*index];
  }
  if (value.is(Kind::string)) {
    const Text& text = value.as_text();
    const auto index = position(key.as_int(), count_characters(text.bytes()));
    if (!index) return {};
    const size_t begin = byte_of_character(text.bytes(), *index);
    return Value(text.slice(begin, next_character(text.bytes(), begin)));
  }
  return {};
}

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

/// Python's slice.indices(length).
Result<SliceRange> slice_range(const Value (&bounds)[3], size_t size) {
  const auto length = static_cast<int64_t>(size);
  int64_t step = 1;
  if (!bounds[2].is(Kind::none)) step = TRY(int_argument(bounds[2]));
  if (step == 0) return fail("slice step cannot be zero");
  step = std::clamp(step, -length - 1, length + 1);
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? length - 1 : length;
  int64_t ends[2] = {step < 0 ? high : low, step < 0 ? low : high};
  for (int i = 0; i < 2; ++i) {
    if (bounds[i].is(Kind::none)) continue;
    int64_t bound = TRY(int_argument(bounds[i]));
    if (bound < 0) bound = std::max(bound, -length - 2) + length;
    ends[i] = std::clamp(bound, low, high);
  }
  const int64_t distance = step > 0 ? ends[1] - ends[0] : ends[0] - ends[1];
  const int64_t stride = step > 0 ? step : -step;
  return SliceRange{ends[0], step, distance > 0 ? (distance + stride - 1) / stride : 0};
}

Result<Value> slice_text(Runtime& runtime, const Text& text, const Value (&bounds)[3]) {
  TRY(runtime.charge(static_cast<int64_t>(text.size() / 16)));
  const SliceRange range = TRY(slice_range(bounds, count_characters(text.bytes())));
  if (range.step == 1) {
    const size_t begin = byte_of_character(text.bytes(), static_cast<size_t>(range.start));
    const auto rest = std::string_view(text.bytes()).substr(begin);
    const size_t end = begin + byte_of_character(rest, static_cast<size_t>(range.count));
    return runtime.text(text.slice(begin, end));
  }
  std::vector<size_t> begins;
  TRY(runtime.charge(static_cast<int64_t>(text.size())));
  for (size_t at = 0; at < text.size(); at = next_character(text.bytes(), at)) begins.push_back(at);
  Text out;
  for (int64_t i = 0; i < range.count; ++i) {
    const size_t begin = begins[static_cast<size_t>(range.start + i * range.step)];
    const size_t end = next_character(text.bytes(), begin);
    out.append(std::string_view(text.bytes()).substr(begin, end - begin), text.origin_at(begin));
  }
  return runtime.text(std::move(out));
}

}  // namespace

Result<Value> get_attribute(Runtime&, const Value& value, std::string_view name) {
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  auto own = TRY(own_attribute(value, name));
  if (own) return std::move(*own);
  if (value.is(Kind::dict)) {
    if (const Value* entry = value.as_dict().find(name)) return *entry;
  }
  return missing_attribute(value, name);
}

Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (value.is(Kind::string)) {
    TRY(runtime.charge(static_cast<int64_t>(value.as_text().size() / 64)));
  }
  auto item = own_item(value, key);
  if (item) return std::move(*item);
  if (key.is(Kind::string)) {
    auto own = TRY(own_attribute(value, key.as_bytes()));
    return own ? std::move(*own) : missing_attribute(value, key.as_bytes());
  }
  const Text repr = TRY(to_repr(runtime, key));
  return Value::undefined(concat(object_name(value), " has no element ", repr.bytes()));
}

Result<Value> get_slice(Runtime& runtime, const Value& value, const Value (&bounds)[3]) {
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (value.is(Kind::dict)) return fail("unhashable type: 'slice'");
  const bool sliceable =
      value.is(Kind::string) || (value.is(Kind::sequence) && subscriptable(value.as_sequence()));
  if (!sliceable) return fail(concat("'", type_name(value), "' object is not subscriptable"));
  for (const Value& bound : bounds) {
    if (bound.is(Kind::none) || bound.is_integral()) continue;
    return fail("slice indices must be integers or None or have an __index__ method");
  }
  if (value.is(Kind::string)) return slice_text(runtime, value.as_text(), bounds);
  const Sequence& sequence = value.as_sequence();
  const SliceRange range = TRY(slice_range(bounds, sequence.items.size()));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(range.start + i * range.step)]);
  }
  Value out = TRY(runtime.list(std::move(items), sequence.kind, sequence.type));
  return out.tag(value.origin());
}

Result<Value> get_path(Runtime& runtime, const Value& value, const Value& path) {
  if (!path.is(Kind::string)) {
    return path.is(Kind::none) ? Result<Value>(value) : get_item(runtime, value, path);
  }
  Value at = value;
  const std::string& names = path.as_bytes();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool number = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    at = TRY(get_item(runtime, at, number ? Value(int64_t{std::stoi(name)}) : Value(Text(name))));
    begin = end + 1;
  }
  return at;
}

}  // namespace nibble::jinja
