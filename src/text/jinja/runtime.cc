// Budgets and constructors.
#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace nibble::jinja {

// Evaluation nests more deeply than source or calls: one macro call passes through several nodes.
constexpr int kNodesPerLevel = 10;

Result<void> Runtime::charge(int64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.steps_max) return {};
  return fail(concat("the template takes more than ", limits_.steps_max, " steps"));
}

Result<Value> Runtime::text(Text text) {
  if (text.size() > limits_.output_bytes_max) {
    return fail(
        concat("the template makes a text of more than ", limits_.output_bytes_max, " bytes"));
  }
  TRY(charge(1 + static_cast<int64_t>(text.size() / 64)));
  return Value(std::move(text));
}

Result<void> Runtime::check_container(int64_t weight, int depth) {
  if (depth > limits_.depth_max) {
    return fail(concat("the template nests values deeper than ", limits_.depth_max));
  }
  if (weight > limits_.steps_max) {
    return fail(concat("the template makes a value of more than ", limits_.steps_max, " parts"));
  }
  return {};
}

Result<Value> Runtime::list(std::vector<Value> items, SequenceKind kind, std::string_view type) {
  TRY(charge(1 + static_cast<int64_t>(items.size())));
  Sequence sequence{.kind = kind, .type = std::string(type), .items = std::move(items)};
  for (const Value& item : sequence.items) {
    sequence.weight = std::min(sequence.weight + item.weight(), limits_.steps_max + 1);
    sequence.depth = std::max(sequence.depth, 1 + item.depth());
  }
  TRY(check_container(sequence.weight, sequence.depth));
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

Result<Value> Runtime::dict(std::vector<DictEntry> entries) {
  TRY(charge(1 + 2 * static_cast<int64_t>(entries.size())));
  Dict dict;
  dict.entries.reserve(entries.size());
  for (DictEntry& entry : entries) {
    const auto [slot, added] = dict.index.emplace(TRY(dict_key(entry.key)), dict.entries.size());
    dict.weight =
        std::min(dict.weight + entry.key.weight() + entry.value.weight(), limits_.steps_max + 1);
    dict.depth = std::max({dict.depth, 1 + entry.key.depth(), 1 + entry.value.depth()});
    if (added) {
      dict.entries.push_back(std::move(entry));
    } else {
      dict.entries[slot->second].value = std::move(entry.value);
    }
  }
  TRY(check_container(dict.weight, dict.depth));
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Result<void> Runtime::enter() {
  if (depth_ >= limits_.depth_max * kNodesPerLevel) {
    return fail(concat("the template nests deeper than ", limits_.depth_max, " levels"));
  }
  ++depth_;
  return charge(1);
}

Result<void> Runtime::enter_macro() {
  if (macro_depth_ >= limits_.depth_max) {
    return fail(concat("the template calls macros deeper than ", limits_.depth_max, " levels"));
  }
  ++macro_depth_;
  return {};
}

Result<Value> from_json(Runtime& runtime, const Json& json, Origin origin) {
  if (json.is_string()) return runtime.text(json.as_string(), origin);
  Value value;
  if (json.is_bool()) {
    value = Value(json.as_bool());
  } else if (json.is_int()) {
    value = Value(json.as_int());
  } else if (json.is_double()) {
    value = Value(json.as_double());
  } else if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(TRY(from_json(runtime, item, origin)));
    value = TRY(runtime.list(std::move(items)));
  } else if (json.is_object()) {
    std::vector<DictEntry> entries;
    entries.reserve(json.as_object().size());
    for (const auto& [key, member] : json.as_object()) {
      entries.push_back({Value(Text(key, origin)), TRY(from_json(runtime, member, origin))});
    }
    value = TRY(runtime.dict(std::move(entries)));
  }
  return value.tag(origin);
}

Result<std::vector<Value>> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is(Kind::undefined)) return items;
  if (value.is(Kind::sequence)) {
    const auto [begin, end] = value.as_sequence().visit();
    items.assign(begin, end);
  } else if (value.is(Kind::dict)) {
    for (const DictEntry& entry : value.as_dict().entries) items.push_back(entry.key);
  } else if (value.is(Kind::string)) {
    const Text& text = value.as_text();
    TRY(runtime.charge(static_cast<int64_t>(text.size()) * 2));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = next_character(text.bytes(), begin);
      items.push_back(Value(text.slice(begin, end)));
      begin = end;
    }
  } else {
    return fail(concat("'", type_name(value), "' object is not iterable"));
  }
  TRY(runtime.charge(static_cast<int64_t>(items.size())));
  return items;
}

}  // namespace nibble::jinja
