// Filters of lists and dicts.
#include <algorithm>
#include <bit>
#include <unordered_set>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

bool flag(const Value* value) { return value != nullptr && truthy(*value); }

Value ignore_case(const Value& value) {
  return value.is(Kind::string) ? Value(to_lower(value.as_text())) : value;
}

/// The key that orders an item: its attribute, or the list of several ("a,b"), without case unless
/// asked.
struct SortKey {
  const Value* attribute = nullptr;
  bool case_sensitive = false;

  Result<Value> of(Runtime& runtime, const Value& item) const {
    TRY(runtime.charge(1));
    if (attribute == nullptr || attribute->is(Kind::none)) {
      return case_sensitive ? item : ignore_case(item);
    }
    const bool several =
        attribute->is(Kind::string) && attribute->as_bytes().find(',') != std::string::npos;
    if (!several) {
      const Value part = TRY(get_path(runtime, item, *attribute));
      return case_sensitive ? part : ignore_case(part);
    }
    std::vector<Value> parts;
    const std::string& names = attribute->as_bytes();
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      const Value name(Text(names.substr(begin, end - begin)));
      const Value part = TRY(get_path(runtime, item, name));
      parts.push_back(case_sensitive ? part : ignore_case(part));
      begin = end + 1;
    }
    return runtime.list(std::move(parts));
  }
};

/// Stable, like Python's; the first comparison that fails is the result.
Result<std::vector<Value>> sorted(Runtime& runtime, std::vector<Value> items, const SortKey& key,
                                  bool reverse) {
  std::vector<std::pair<Value, size_t>> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    keys.emplace_back(TRY(key.of(runtime, items[i])), i);
    const auto rounds = std::bit_width(items.size());
    TRY(runtime.charge(rounds * keys.back().first.weight()));
  }
  Result<void> outcome;
  std::ranges::stable_sort(keys, [&](const auto& left, const auto& right) {
    if (!outcome.ok()) return false;
    const auto& low = reverse ? right.first : left.first;
    const auto& high = reverse ? left.first : right.first;
    const auto sign = order(low, high);
    if (!sign.ok()) outcome = sign.error();
    return sign.ok() && sign.value() < 0;
  });
  TRY(std::move(outcome));
  std::vector<Value> out;
  for (const auto& [unused, index] : keys) out.push_back(items[index]);
  return out;
}

Result<Value> sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"}));
  const SortKey key{bound[2], flag(bound[1])};
  std::vector<Value> items = TRY(iterate(runtime, value));
  return runtime.list(TRY(sorted(runtime, std::move(items), key, flag(bound[0]))));
}

Result<Value> dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"}));
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (!value.is(Kind::dict)) {
    return fail(concat("'", type_name(value), "' object has no attribute 'items'"));
  }
  std::string by = "key";
  if (bound[1] != nullptr) by = TRY(text_argument(*bound[1], "dictsort"))->bytes();
  if (by != "key" && by != "value") {
    return fail("You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> pairs;
  for (const DictEntry& entry : value.as_dict().entries) {
    pairs.push_back(TRY(runtime.list({entry.key, entry.value}, SequenceKind::tuple, "tuple")));
  }
  const Value index(int64_t{by == "key" ? 0 : 1});
  const SortKey key{&index, flag(bound[0])};
  return runtime.list(TRY(sorted(runtime, std::move(pairs), key, flag(bound[2]))));
}

Result<Value> unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "unique", {"case_sensitive", "attribute"}));
  const SortKey key{bound[1], flag(bound[0])};
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : TRY(iterate(runtime, value))) {
    const Value item_key = TRY(key.of(runtime, item));
    TRY(runtime.charge(item_key.weight()));
    if (seen.insert(TRY(dict_key(item_key))).second) out.push_back(item);
  }
  return runtime.list(std::move(out), SequenceKind::iterator, "generator");
}

Result<Value> extreme(Runtime& runtime, const Value& value, const Arguments& arguments, int sign) {
  const auto bound = TRY(bind(arguments, "min", {"case_sensitive", "attribute"}));
  const SortKey key{bound[1], flag(bound[0])};
  const std::vector<Value> items = TRY(iterate(runtime, value));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = TRY(key.of(runtime, items[0]));
  for (size_t i = 1; i < items.size(); ++i) {
    const Value item_key = TRY(key.of(runtime, items[i]));
    TRY(runtime.charge(item_key.weight()));
    if (sign * TRY(order(item_key, best_key, sign < 0 ? ">" : "<")) >= 0) continue;
    best = i;
    best_key = item_key;
  }
  return items[best];
}
Result<Value> minimum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return extreme(runtime, value, arguments, 1);
}
Result<Value> maximum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return extreme(runtime, value, arguments, -1);
}

Result<Value> first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "first", {}));
  const Value empty = Value::undefined("No first item, sequence was empty.");
  if (value.is(Kind::sequence)) {
    const Sequence& sequence = value.as_sequence();
    if (sequence.consumed >= sequence.items.size()) return empty;
    const bool iterator = sequence.kind == SequenceKind::iterator;
    return sequence.items[iterator ? sequence.consumed++ : 0];
  }
  if (value.is(Kind::string) && !value.as_text().empty()) {
    const size_t end = next_character(value.as_bytes(), 0);
    return Value(value.as_text().slice(0, end));
  }
  const std::vector<Value> items = TRY(iterate(runtime, value));
  return items.empty() ? empty : items.front();
}

Result<Value> last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "last", {}));
  const bool iterator =
      value.is(Kind::sequence) && value.as_sequence().kind == SequenceKind::iterator;
  const bool reversible = value.is(Kind::sequence) || value.is(Kind::string) ||
                          value.is(Kind::dict) || value.is(Kind::undefined);
  if (iterator || !reversible) {
    return fail(concat("'", type_name(value), "' object is not reversible"));
  }
  const std::vector<Value> items = TRY(iterate(runtime, value));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "list", {}));
  std::vector<Value> items = TRY(iterate(runtime, value));
  Value out = TRY(runtime.list(std::move(items)));
  return out.tag(value.origin());
}

Result<Value> reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "reverse", {}));
  if (value.is(Kind::string)) return get_slice(runtime, value, {{}, {}, Value(int64_t{-1})});
  auto items = iterate(runtime, value);
  if (!items.ok()) return fail("argument must be iterable");
  std::vector<Value> reversed = std::move(items).value();
  std::ranges::reverse(reversed);
  const bool iterator =
      value.is(Kind::sequence) && value.as_sequence().kind == SequenceKind::iterator;
  if (iterator) return runtime.list(std::move(reversed));
  return runtime.list(std::move(reversed), SequenceKind::iterator,
                      type_name(value) == "list" ? "list_reverseiterator" : "reversed");
}

Result<Value> batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "batch", {"linecount", "fill_with"}, 1));
  const int64_t size = TRY(int_argument(*bound[0]));
  if (size < 1 || size > 100'000) return fail("batch takes a line count from 1 to 100000");
  std::vector<Value> rows;
  std::vector<Value> row;
  const std::vector<Value> items = TRY(iterate(runtime, value));
  for (size_t i = 0; i < items.size(); ++i) {
    row.push_back(items[i]);
    const bool full = static_cast<int64_t>(row.size()) == size;
    if (!full && i + 1 < items.size()) continue;
    const bool fills = bound[1] != nullptr && !bound[1]->is(Kind::none);
    if (fills) row.resize(static_cast<size_t>(size), *bound[1]);
    rows.push_back(TRY(runtime.list(std::exchange(row, {}))));
  }
  return runtime.list(std::move(rows), SequenceKind::iterator, "generator");
}

Result<Value> slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "slice", {"slices", "fill_with"}, 1));
  const int64_t count = TRY(int_argument(*bound[0]));
  if (count < 1 || count > 100'000) return fail("slice takes a number of slices from 1 to 100000");
  const std::vector<Value> items = TRY(iterate(runtime, value));
  const auto slices = static_cast<size_t>(count);
  const size_t size = items.size() / slices;
  const size_t longer = items.size() % slices;
  const bool fills = bound[1] != nullptr && !bound[1]->is(Kind::none);
  std::vector<Value> out;
  auto begin = items.begin();
  for (size_t i = 0; i < slices; ++i) {
    const auto end = begin + static_cast<ptrdiff_t>(size + (i < longer ? 1 : 0));
    std::vector<Value> part(begin, end);
    begin = end;
    if (fills && i >= longer) part.push_back(*bound[1]);
    out.push_back(TRY(runtime.list(std::move(part))));
  }
  return runtime.list(std::move(out), SequenceKind::iterator, "generator");
}

constexpr NamedFilter kFilters[] = {
    {"sort", sort},       {"dictsort", dictsort}, {"unique", unique}, {"min", minimum},
    {"max", maximum},     {"first", first},       {"last", last},     {"list", list},
    {"reverse", reverse}, {"batch", batch},       {"slice", slice},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found != std::end(kFilters) ? found->function : nullptr;
}

}  // namespace nibble::jinja
