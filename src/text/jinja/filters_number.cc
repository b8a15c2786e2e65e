// Filters of numbers: abs, int, float, round, sum.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace nibble::jinja {

namespace {

Error overflow() { return fail("integer overflow: integers have 64 bits here"); }

Result<Value> absolute(Runtime&, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "abs", {}));
  if (!value.is_number()) {
    return fail(concat("bad operand type for abs(): '", type_name(value), "'"));
  }
  if (value.is(Kind::floating)) return Value(std::fabs(value.as_double())).tag(value.origin());
  return value.as_int() < 0 ? negate(value) : plus(value);
}

/// Digits as Python's int() and float() take them: stripped, underscores only between digits.
std::optional<std::string> plain_digits(const Text& text) {
  const Text stripped = strip_text(text, nullptr, Ends::both);
  std::string out;
  const std::string& bytes = stripped.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      out.push_back(bytes[i]);
      continue;
    }
    const auto alnum = [&](size_t at) {
      return at < bytes.size() && std::isalnum(static_cast<unsigned char>(bytes[at])) != 0;
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return {};
  }
  return out;
}

Result<std::optional<int64_t>> parse_int(const Text& text, int64_t base) {
  if (base != 2 && base != 8 && base != 10 && base != 16) {
    return fail("the int filter supports the bases 2, 8, 10 and 16");
  }
  const auto digits = plain_digits(text);
  if (!digits) return std::optional<int64_t>();
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const char mark = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (mark != '\0' && rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == mark) {
    rest.remove_prefix(2);
  }
  const std::string signed_digits = concat(negative ? "-" : "", rest);
  if (rest.empty() || rest[0] == '-') return std::optional<int64_t>();
  int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto outcome = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if (outcome.ptr != end) return std::optional<int64_t>();
  if (outcome.ec == std::errc::result_out_of_range) return overflow();
  return std::optional(value);
}

std::optional<double> parse_float(const Text& text) {
  const auto digits = plain_digits(text);
  if (!digits || digits->empty()) return {};
  std::string_view rest = *digits;
  if (rest[0] == '+') rest.remove_prefix(1);
  if (rest.find_first_of("()+") == 0 || rest.find('(') != std::string_view::npos) return {};
  double value = 0;
  const auto outcome = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (outcome.ptr != rest.data() + rest.size()) return {};
  if (outcome.ec == std::errc::result_out_of_range) return std::strtod(digits->c_str(), nullptr);
  return value;
}

Result<Value> truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return overflow();
  return Value(static_cast<int64_t>(value));
}

Result<Value> to_int(Runtime&, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "int", {"default", "base"}));
  const int64_t base = bound[1] != nullptr ? TRY(int_argument(*bound[1])) : 10;
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  Value out = bound[0] != nullptr ? *bound[0] : Value(int64_t{0});
  if (value.is_integral()) {
    out = Value(value.as_int());
  } else if (value.is(Kind::floating)) {
    if (std::isnan(value.as_double())) return out;
    out = TRY(truncated(value.as_double()));
  } else if (value.is(Kind::string)) {
    const auto whole = TRY(parse_int(value.as_text(), base));
    const auto real = whole ? std::nullopt : parse_float(value.as_text());
    if (whole) {
      out = Value(*whole);
    } else if (real && std::isfinite(*real)) {
      out = TRY(truncated(*real));
    }
  }
  return out.tag(value.origin());
}

Result<Value> to_float(Runtime&, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "float", {"default"}));
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  Value out = bound[0] != nullptr ? *bound[0] : Value(0.0);
  if (value.is_number()) {
    out = Value(value.as_double());
  } else if (value.is(Kind::string)) {
    const auto real = parse_float(value.as_text());
    if (real) out = Value(*real);
  }
  return out.tag(value.origin());
}

double round_half_even(double value, int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 300) return value;
  if (digits < -300) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, double(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[700];  // 309 digits before the point and up to 300 after it
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Result<Value> round_value(Runtime&, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "round", {"precision", "method"}));
  const int64_t digits = bound[0] != nullptr ? TRY(int_argument(*bound[0])) : 0;
  std::string method = "common";
  if (bound[1] != nullptr) method = TRY(text_argument(*bound[1], "round"))->bytes();
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (method != "common" && method != "ceil" && method != "floor") {
    return fail("method must be common, ceil or floor");
  }
  if (!value.is_number()) {
    return fail(concat("type ", type_name(value), " doesn't define __round__ method"));
  }
  Value out = value;
  if (method != "common") {
    const double scale = std::pow(10.0, double(digits));
    const double scaled = value.as_double() * scale;
    out = Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  } else if (value.is(Kind::floating)) {
    out = Value(round_half_even(value.as_double(), digits));
  } else if (digits < 0) {
    return fail("round of an integer to tens is not supported");
  } else {
    out = Value(value.as_int());
  }
  return out.tag(value.origin());
}

Result<Value> sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "sum", {"attribute", "start"}));
  Value total = bound[1] != nullptr ? *bound[1] : Value(int64_t{0});
  if (total.is(Kind::string)) return fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : TRY(iterate(runtime, value))) {
    const bool path = bound[0] != nullptr && !bound[0]->is(Kind::none);
    const Value part = path ? TRY(get_path(runtime, item, *bound[0])) : item;
    total = TRY(arithmetic(runtime, Operator::add, total, part));
  }
  return total;
}

constexpr NamedFilter kFilters[] = {
    {"abs", absolute}, {"int", to_int}, {"float", to_float}, {"round", round_value}, {"sum", sum}};

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found != std::end(kFilters) ? found->function : nullptr;
}

}  // namespace nibble::jinja
