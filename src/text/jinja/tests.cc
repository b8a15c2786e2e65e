// The tests of Jinja.
#include "text/jinja/tests.h"

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace nibble::jinja {

namespace {

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

template <auto predicate>
Result<bool> simple(Runtime&, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "test", {}));
  return predicate(value);
}

template <Operator op>
Result<bool> comparison(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "test", {"other"}, 1));
  return compare(runtime, op, value, *bound[0]);
}

Result<bool> remainder_is(Runtime& runtime, const Value& value, int64_t divisor,
                          int64_t remainder) {
  const Value rest = TRY(arithmetic(runtime, Operator::modulo, value, Value(divisor)));
  return equals(rest, Value(remainder));
}
Result<bool> odd(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "odd", {}));
  return remainder_is(runtime, value, 2, 1);
}
Result<bool> even(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "even", {}));
  return remainder_is(runtime, value, 2, 0);
}
Result<bool> divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "divisibleby", {"num"}, 1));
  const Value rest = TRY(arithmetic(runtime, Operator::modulo, value, *bound[0]));
  return equals(rest, Value(int64_t{0}));
}

Result<bool> letter_case(Runtime& runtime, const Value& value, std::string_view method) {
  const Text text = TRY(to_text(runtime, value));
  return TRY(call_text_method(runtime, text, method, {})).as_bool();
}
Result<bool> lower(Runtime& runtime, const Value& value, const Arguments&) {
  return letter_case(runtime, value, "islower");
}
Result<bool> upper(Runtime& runtime, const Value& value, const Arguments&) {
  return letter_case(runtime, value, "isupper");
}

Result<bool> same_as(Runtime&, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "sameas", {"other"}, 1));
  const Value& other = *bound[0];
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::none)) return true;
  if (value.is(Kind::boolean)) return value.as_bool() == other.as_bool();
  return fail("'is sameas' is supported only for none, true and false");
}

Result<bool> is_filter(Runtime&, const Value& value, const Arguments&) {
  return value.is(Kind::string) && find_filter(value.as_bytes()) != nullptr;
}
Result<bool> is_test(Runtime&, const Value& value, const Arguments&) {
  return value.is(Kind::string) && find_test(value.as_bytes()) != nullptr;
}

bool is_iterable(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::sequence) || value.is(Kind::dict) ||
         value.is(Kind::undefined) || value.is(Kind::loop);
}
bool is_sequence(const Value& value) {
  if (value.is(Kind::sequence)) {
    const auto kind = value.as_sequence().kind;
    return kind != SequenceKind::view && kind != SequenceKind::iterator;
  }
  return value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::undefined);
}

template <Kind kind>
bool is_kind(const Value& value) {
  return value.is(kind);
}

constexpr NamedTest kTests[] = {
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible},
    {"defined", simple<[](const Value& value) { return !value.is(Kind::undefined); }>},
    {"undefined", simple<is_kind<Kind::undefined>>},
    {"filter", is_filter},
    {"test", is_test},
    {"none", simple<is_kind<Kind::none>>},
    {"boolean", simple<is_kind<Kind::boolean>>},
    {"false", simple<[](const Value& v) { return v.is(Kind::boolean) && !v.as_bool(); }>},
    {"true", simple<[](const Value& v) { return v.is(Kind::boolean) && v.as_bool(); }>},
    {"integer", simple<is_kind<Kind::integer>>},
    {"float", simple<is_kind<Kind::floating>>},
    {"lower", lower},
    {"upper", upper},
    {"string", simple<is_kind<Kind::string>>},
    {"mapping", simple<is_kind<Kind::dict>>},
    {"number", simple<[](const Value& value) { return value.is_number(); }>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable>},
    {"callable", simple<[](const Value& value) {
       return value.is(Kind::callable) || value.is(Kind::loop) || value.is(Kind::undefined);
     }>},
    {"sameas", same_as},
    {"escaped", simple<[](const Value& v) { return v.is(Kind::string) && v.as_text().markup; }>},
    {"in", comparison<Operator::in>},
    {"==", comparison<Operator::equal>},
    {"eq", comparison<Operator::equal>},
    {"equalto", comparison<Operator::equal>},
    {"!=", comparison<Operator::not_equal>},
    {"ne", comparison<Operator::not_equal>},
    {">", comparison<Operator::greater>},
    {"gt", comparison<Operator::greater>},
    {"greaterthan", comparison<Operator::greater>},
    {"ge", comparison<Operator::greater_equal>},
    {">=", comparison<Operator::greater_equal>},
    {"<", comparison<Operator::less>},
    {"lt", comparison<Operator::less>},
    {"lessthan", comparison<Operator::less>},
    {"<=", comparison<Operator::less_equal>},
    {"le", comparison<Operator::less_equal>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace nibble::jinja
