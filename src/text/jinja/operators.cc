// Arithmetic, comparison, membership.
#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"

namespace nibble::jinja {

namespace {

constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

std::string_view symbol(Operator op) { return kSymbols[static_cast<size_t>(op)]; }

Error bad_operands(Operator op, const Value& left, const Value& right) {
  return fail(concat("unsupported operand type(s) for ", symbol(op), ": '", type_name(left),
                     "' and '", type_name(right), "'"));
}

Error overflow() { return fail("integer overflow: integers have 64 bits here"); }

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(double(base), double(exponent)));
  }
  int64_t out = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) return overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value(out);
}

Result<Value> integers(Operator op, int64_t left, int64_t right) {
  int64_t out = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(left, right, &out)) return overflow();
      return Value(out);
    case Operator::subtract:
      if (__builtin_sub_overflow(left, right, &out)) return overflow();
      return Value(out);
    case Operator::multiply:
      if (__builtin_mul_overflow(left, right, &out)) return overflow();
      return Value(out);
    case Operator::divide:
      if (right == 0) return fail("division by zero");
      return Value(double(left) / double(right));
    case Operator::power:
      return power(left, right);
    default:
      break;
  }
  const bool modulo = op == Operator::modulo;
  if (right == 0)
    return fail(modulo ? "integer modulo by zero" : "integer division or modulo by zero");
  if (right == -1) return modulo ? Value(int64_t{0}) : integers(Operator::subtract, 0, left);
  int64_t quotient = left / right;
  int64_t remainder = left % right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    --quotient;
    remainder += right;
  }
  return Value(modulo ? remainder : quotient);
}

Result<Value> floats(Operator op, double left, double right) {
  switch (op) {
    case Operator::add:
      return Value(left + right);
    case Operator::subtract:
      return Value(left - right);
    case Operator::multiply:
      return Value(left * right);
    case Operator::divide:
      if (right == 0) return fail("float division by zero");
      return Value(left / right);
    case Operator::power: {
      if (left == 0 && right < 0) return fail("0.0 cannot be raised to a negative power");
      if (left < 0 && std::trunc(right) != right) return fail("complex numbers are not supported");
      return Value(std::pow(left, right));
    }
    default:
      break;
  }
  const bool modulo = op == Operator::modulo;
  if (right == 0) return fail(modulo ? "float modulo" : "float floor division by zero");
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    quotient -= 1;
  } else if (remainder == 0) {
    remainder = std::copysign(0.0, right);
  }
  if (modulo) return Value(remainder);
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1 : floored);
}

Result<Value> join_texts(Runtime& runtime, const Text& left, const Text& right) {
  const bool markup = left.markup || right.markup;
  Text out = markup && !left.markup ? escape_html(left) : left;
  out.append(markup && !right.markup ? escape_html(right) : right);
  out.markup = markup;
  return runtime.text(std::move(out));
}

Result<Value> add(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is(Kind::string)) {
    if (right.is(Kind::string)) return join_texts(runtime, left.as_text(), right.as_text());
    return fail(concat("can only concatenate str (not \"", type_name(right), "\") to str"));
  }
  if (left.is(Kind::sequence)) {
    const Sequence& first = left.as_sequence();
    const bool list = first.kind == SequenceKind::list || first.kind == SequenceKind::tuple;
    if (!list) return bad_operands(Operator::add, left, right);
    if (!right.is(Kind::sequence) || right.as_sequence().kind != first.kind) {
      return fail(concat("can only concatenate ", first.type, " (not \"", type_name(right),
                         "\") to ", first.type));
    }
    std::vector<Value> items = first.items;
    const auto& more = right.as_sequence().items;
    items.insert(items.end(), more.begin(), more.end());
    return runtime.list(std::move(items), first.kind, first.type);
  }
  return bad_operands(Operator::add, left, right);
}

Result<Value> repeat(Runtime& runtime, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is(Kind::string)) {
    const Text& text = value.as_text();
    if (!text.empty() && count > runtime.limits().output_bytes_max / text.size()) {
      return fail(concat("the template makes a text of more than ",
                         runtime.limits().output_bytes_max, " bytes"));
    }
    TRY(runtime.charge(static_cast<int64_t>(count)));
    Text out;
    out.markup = text.markup;
    for (size_t i = 0; i < count && !text.empty(); ++i) out.append(text);
    return runtime.text(std::move(out));
  }
  const Sequence& sequence = value.as_sequence();
  if (sequence.items.empty()) return runtime.list({}, sequence.kind, sequence.type);
  const auto most = static_cast<size_t>(runtime.limits().steps_max) / sequence.items.size();
  TRY(runtime.charge(static_cast<int64_t>(std::min(count, most + 1) * sequence.items.size())));
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return runtime.list(std::move(items), sequence.kind, sequence.type);
}

bool repeatable(const Value& value) {
  if (value.is(Kind::string)) return true;
  if (!value.is(Kind::sequence)) return false;
  const auto kind = value.as_sequence().kind;
  return kind == SequenceKind::list || kind == SequenceKind::tuple;
}

Result<int> order_sequences(const Sequence& left, const Sequence& right, std::string_view op) {
  const size_t common = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(left.items[i], right.items[i])) return order(left.items[i], right.items[i], op);
  }
  if (left.items.size() == right.items.size()) return 0;
  return left.items.size() < right.items.size() ? -1 : 1;
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::string: {
      if (!item.is(Kind::string)) {
        return fail(concat("'in <string>' requires string as left operand, not ", type_name(item)));
      }
      return container.as_bytes().find(item.as_bytes()) != std::string::npos;
    }
    case Kind::dict: {
      const std::string key = TRY(dict_key(item));
      return container.as_dict().index.contains(key);
    }
    case Kind::sequence: {
      TRY(runtime.charge(container.weight()));
      const auto [begin, end] = container.as_sequence().visit();
      return std::any_of(begin, end, [&](const Value& other) { return equals(item, other); });
    }
    default:
      return fail(concat("argument of type '", type_name(container), "' is not iterable"));
  }
}

}  // namespace

Text escape_html(const Text& text) {
  static constexpr std::string_view kSpecial = "&<>'\"";
  static constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  Text out;
  const std::string_view bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t special = std::min(bytes.find_first_of(kSpecial, begin), bytes.size());
    out.append(text.slice(begin, special));
    if (special == bytes.size()) break;
    out.append(kEscapes[kSpecial.find(bytes[special])], text.origin_at(special));
    begin = special + 1;
  }
  out.markup = true;
  return out;
}

Result<Value> arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  const Origin origin = left.origin() == Origin::from_user ? left.origin() : right.origin();
  if (op == Operator::modulo && left.is(Kind::string)) {
    return runtime.text(TRY(format_percent(runtime, left.as_text(), right)));
  }
  if (left.is(Kind::undefined)) return fail(left.undefined_message());
  if (right.is(Kind::undefined)) return fail(right.undefined_message());
  if (left.is_number() && right.is_number()) {
    const bool whole = left.is_integral() && right.is_integral();
    Value out = TRY(whole ? integers(op, left.as_int(), right.as_int())
                          : floats(op, left.as_double(), right.as_double()));
    return out.tag(origin);
  }
  if (op == Operator::add) return add(runtime, left, right);
  if (op == Operator::multiply) {
    if (repeatable(left) && right.is_integral()) return repeat(runtime, left, right.as_int());
    if (repeatable(right) && left.is_integral()) return repeat(runtime, right, left.as_int());
    if (repeatable(left) || repeatable(right)) {
      return fail(concat("can't multiply sequence by non-int of type '",
                         type_name(repeatable(left) ? right : left), "'"));
    }
  }
  return bad_operands(op, left, right);
}

Result<int> order(const Value& left, const Value& right, std::string_view op) {
  if (left.is(Kind::undefined)) return fail(left.undefined_message());
  if (right.is(Kind::undefined)) return fail(right.undefined_message());
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int() ? 1 : 0;
    }
    return left.as_double() < right.as_double() ? -1 : left.as_double() > right.as_double() ? 1 : 0;
  }
  if (left.is(Kind::string) && right.is(Kind::string)) {
    const int sign = left.as_bytes().compare(right.as_bytes());
    return sign < 0 ? -1 : sign > 0 ? 1 : 0;
  }
  if (repeatable(left) && repeatable(right) && left.kind() == right.kind() &&
      left.as_sequence().kind == right.as_sequence().kind) {
    return order_sequences(left.as_sequence(), right.as_sequence(), op);
  }
  return fail(concat("'", op, "' not supported between instances of '", type_name(left), "' and '",
                     type_name(right), "'"));
}

Result<bool> compare(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  TRY(runtime.charge(1 + std::min(left.weight(), right.weight())));
  if (op == Operator::equal) return equals(left, right);
  if (op == Operator::not_equal) return !equals(left, right);
  if (op == Operator::in) return contains(runtime, right, left);
  if (op == Operator::not_in) return !TRY(contains(runtime, right, left));
  const int sign = TRY(order(left, right, symbol(op)));
  if (op == Operator::less) return sign < 0;
  if (op == Operator::less_equal) return sign <= 0;
  return op == Operator::greater ? sign > 0 : sign >= 0;
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (value.is(Kind::floating)) return Value(-value.as_double()).tag(value.origin());
  if (!value.is_integral()) {
    return fail(concat("bad operand type for unary -: '", type_name(value), "'"));
  }
  Value out = TRY(integers(Operator::subtract, 0, value.as_int()));
  return out.tag(value.origin());
}

Result<Value> plus(const Value& value) {
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (value.is(Kind::floating)) return value;
  if (value.is_integral()) return Value(value.as_int()).tag(value.origin());
  return fail(concat("bad operand type for unary +: '", type_name(value), "'"));
}

}  // namespace nibble::jinja
