// Filters that apply other filters and tests to every item: map, select, reject and their siblings.
#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/tests.h"

namespace nibble::jinja {

namespace {

Result<Value> generator(Runtime& runtime, std::vector<Value> items) {
  return runtime.list(std::move(items), SequenceKind::iterator, "generator");
}

/// The positional arguments from `begin` on, with all keyword ones.
Arguments rest_of(const Arguments& arguments, size_t begin) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(begin),
                         arguments.positional.end());
  rest.keyword = arguments.keyword;
  return rest;
}

Result<Value> map_attribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "map", {"attribute", "default"}, 1));
  const bool has_default = bound[1] != nullptr && !bound[1]->is(Kind::none);
  std::vector<Value> out;
  for (const Value& item : TRY(iterate(runtime, value))) {
    Value part = TRY(get_path(runtime, item, *bound[0]));
    if (has_default && part.is(Kind::undefined)) part = *bound[1];
    out.push_back(std::move(part));
  }
  return generator(runtime, std::move(out));
}

Result<Value> map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!truthy(value)) return generator(runtime, {});
  const bool by_attribute = std::ranges::any_of(
      arguments.keyword, [](const auto& pair) { return pair.first == "attribute"; });
  if (arguments.positional.empty() && by_attribute) {
    return map_attribute(runtime, value, arguments);
  }
  if (arguments.positional.empty()) return fail("map requires a filter argument");
  const Text* name = TRY(text_argument(arguments.positional[0], "map"));
  const FilterFunction filter = find_filter(name->bytes());
  if (filter == nullptr) return fail(concat("No filter named '", name->bytes(), "'."));
  const Arguments rest = rest_of(arguments, 1);
  std::vector<Value> out;
  TRY(runtime.enter());
  for (const Value& item : TRY(iterate(runtime, value))) {
    out.push_back(TRY(filter(runtime, item, rest)));
  }
  runtime.leave();
  return generator(runtime, std::move(out));
}

enum class Keep { matching, others };

Result<Value> filtered(Runtime& runtime, const Value& value, const Arguments& arguments, Keep keep,
                       size_t test_position) {
  if (!truthy(value)) return generator(runtime, {});
  if (arguments.positional.size() < test_position) {
    return fail("Missing parameter for attribute name");
  }
  TestFunction test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > test_position) {
    const Text* name = TRY(text_argument(arguments.positional[test_position], "select"));
    test = find_test(name->bytes());
    if (test == nullptr) return fail(concat("No test named '", name->bytes(), "'."));
    rest = rest_of(arguments, test_position + 1);
  }
  std::vector<Value> out;
  for (const Value& item : TRY(iterate(runtime, value))) {
    const Value subject =
        test_position == 0 ? item : TRY(get_path(runtime, item, arguments.positional[0]));
    const bool matches = test != nullptr ? TRY(test(runtime, subject, rest)) : truthy(subject);
    if (matches == (keep == Keep::matching)) out.push_back(item);
  }
  return generator(runtime, std::move(out));
}

template <Keep keep, size_t test_position>
Result<Value> selector(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return filtered(runtime, value, arguments, keep, test_position);
}

constexpr NamedFilter kFilters[] = {{"map", map},
                                    {"select", selector<Keep::matching, 0>},
                                    {"reject", selector<Keep::others, 0>},
                                    {"selectattr", selector<Keep::matching, 1>},
                                    {"rejectattr", selector<Keep::others, 1>}};

}  // namespace

FilterFunction find_select_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found != std::end(kFilters) ? found->function : nullptr;
}

}  // namespace nibble::jinja
