// The two old ways of formatting in Python.
#include "text/jinja/format.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/access.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

constexpr int kWidthMax = 4096;

struct Spec {
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& arguments)
      : runtime_(runtime), format_(format), bytes_(format.bytes()), arguments_(arguments) {
    const bool tuple =
        arguments.is(Kind::sequence) && arguments.as_sequence().kind == SequenceKind::tuple;
    if (tuple) {
      values_ = arguments.as_sequence().items;
    } else {
      values_.push_back(arguments);
    }
    mapping_ = arguments.is(Kind::dict);
  }

  Result<Text> run() {
    while (position_ < bytes_.size()) {
      const size_t percent = std::min(bytes_.find('%', position_), bytes_.size());
      out_.append(format_.slice(position_, percent));
      position_ = percent;
      if (position_ == bytes_.size()) break;
      ++position_;
      TRY(one());
      if (out_.size() > runtime_.limits().output_bytes_max) break;
    }
    if (next_ < values_.size() && !mapping_ && !named_) {
      return fail("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char peek() const { return position_ < bytes_.size() ? bytes_[position_] : '\0'; }

  Result<int> small_number() {
    int value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++position_) {
      value = value * 10 + (peek() - '0');
      if (value > kWidthMax) return fail(concat("a width over ", kWidthMax, " in a % format"));
    }
    return value;
  }

  Result<void> one() {
    const size_t start = position_;
    Value named;
    bool has_name = false;
    if (peek() == '(') {
      const size_t end = bytes_.find(')', position_);
      if (end == std::string::npos) return fail("incomplete format key");
      if (!mapping_) return fail("format requires a mapping");
      const std::string key(bytes_.substr(position_ + 1, end - position_ - 1));
      const Value* found = arguments_.as_dict().find(key);
      if (found == nullptr) return fail(repr_text(key));
      named = *found;
      has_name = named_ = true;
      position_ = end + 1;
    }
    Spec spec;
    while (std::string_view("-+ 0#").find(peek()) != std::string_view::npos && peek() != '\0') {
      spec.flags.push_back(bytes_[position_++]);
    }
    spec.width = TRY(small_number());
    if (peek() == '.') {
      ++position_;
      spec.precision = TRY(small_number());
    }
    if (position_ >= bytes_.size()) return fail("incomplete format");
    spec.kind = bytes_[position_++];
    const Origin origin = format_.origin_at(start - 1);
    if (spec.kind == '%') {
      out_.append("%", origin);
      return {};
    }
    if (!has_name) {
      if (next_ >= values_.size()) return fail("not enough arguments for format string");
      named = values_[next_++];
    }
    return convert(spec, named);
  }

  Result<void> convert(const Spec& spec, const Value& value) {
    switch (spec.kind) {
      case 's':
      case 'r':
      case 'a': {
        if (spec.kind == 'a') return fail("%a is not supported");
        Text text = TRY(spec.kind == 's' ? to_text(runtime_, value) : to_repr(runtime_, value));
        if (spec.precision >= 0) {
          text =
              text.slice(0, byte_of_character(text.bytes(), static_cast<size_t>(spec.precision)));
        }
        return padded(spec, text);
      }
      case 'c': {
        if (value.is(Kind::string) && count_characters(value.as_bytes()) == 1) {
          return padded(spec, value.as_text());
        }
        return fail("%c requires int or char");
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return floating(spec, value);
      default:
        break;
    }
    return fail(concat("unsupported format character '", spec.kind, "' in a % format"));
  }

  Result<void> integer(const Spec& spec, const Value& value) {
    const bool decimal = spec.kind == 'd' || spec.kind == 'i' || spec.kind == 'u';
    const bool usable = decimal ? value.is_number() : value.is_integral();
    if (!usable) {
      return fail(concat("%", spec.kind, " format: ", decimal ? "a real number" : "an integer",
                         " is required, not ", type_name(value)));
    }
    const double real = value.as_double();
    if (!(std::fabs(real) < 9e18)) return fail("integer overflow: integers have 64 bits here");
    const int64_t number = value.is_integral() ? value.as_int() : static_cast<int64_t>(real);
    if (number < 0 && !decimal) return fail("a negative number in a %x or %o format");
    const char kind = decimal ? 'd' : spec.kind;
    return print(spec, concat("ll", kind), value.origin(), static_cast<long long>(number));
  }

  Result<void> floating(const Spec& spec, const Value& value) {
    if (!value.is_number()) return fail(concat("must be real number, not ", type_name(value)));
    return print(spec, std::string(1, spec.kind), value.origin(), value.as_double());
  }

  template <typename Number>
  Result<void> print(const Spec& spec, const std::string& kind, Origin origin, Number number) {
    std::string format = concat("%", spec.flags);
    if (spec.width > 0) format += concat(spec.width);
    if (spec.precision >= 0) format += concat(".", spec.precision);
    format += kind;
    char buffer[2 * kWidthMax + 400];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int length = std::snprintf(buffer, sizeof buffer, format.c_str(), number);
#pragma GCC diagnostic pop
    if (length < 0 || static_cast<size_t>(length) >= sizeof buffer) return fail("a % format fails");
    out_.append(std::string_view(buffer, static_cast<size_t>(length)), origin);
    return {};
  }

  Result<void> padded(const Spec& spec, const Text& text) {
    const auto length =
        static_cast<int>(std::min<size_t>(count_characters(text.bytes()), kWidthMax));
    const std::string fill(static_cast<size_t>(std::max(spec.width - length, 0)), ' ');
    const bool left = spec.flags.find('-') != std::string::npos;
    if (!left) out_.append(fill, Origin::from_template);
    out_.append(text);
    if (left) out_.append(fill, Origin::from_template);
    return {};
  }

  Runtime& runtime_;
  const Text& format_;
  std::string_view bytes_;
  const Value& arguments_;
  std::vector<Value> values_;
  size_t next_ = 0;
  size_t position_ = 0;
  bool mapping_ = false;
  bool named_ = false;
  Text out_;
};

/// The value a replacement field names: "0", "name", "" (the next), then .attribute and [item].
Result<Value> field_value(Runtime& runtime, std::string_view field, const Arguments& arguments,
                          size_t& next) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string name(field.substr(0, end));
  Value value;
  if (name.empty() || name.find_first_not_of("0123456789") == std::string::npos) {
    size_t index = next;
    if (name.empty()) {
      ++next;
    } else {
      index = name.size() > 6 ? SIZE_MAX : static_cast<size_t>(std::atoi(name.c_str()));
    }
    if (index >= arguments.positional.size()) {
      return fail("tuple index out of range");
    }
    value = arguments.positional[index];
  } else {
    bool found = false;
    for (const auto& [keyword, given] : arguments.keyword) {
      if (keyword != name) continue;
      value = given;
      found = true;
    }
    if (!found) return fail(repr_text(name));
  }
  for (size_t at = end; at < field.size();) {
    const bool item = field[at] == '[';
    const size_t stop =
        std::min(item ? field.find(']', at) : field.find_first_of(".[", at + 1), field.size());
    const std::string key(field.substr(at + 1, stop - at - 1));
    const bool number = item && !key.empty() && key.size() < 10 &&
                        key.find_first_not_of("0123456789") == std::string::npos;
    value =
        TRY(!item ? get_attribute(runtime, value, key)
                  : get_item(runtime, value,
                             number ? Value(int64_t{std::atoi(key.c_str())}) : Value(Text(key))));
    at = item ? stop + 1 : stop;
  }
  return value;
}

}  // namespace

Result<Text> format_percent(Runtime& runtime, const Text& format, const Value& arguments) {
  if (format.markup) return fail("% on a 'safe' string is not supported");
  return PercentFormatter(runtime, format, arguments).run();
}

Result<Text> format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  if (format.markup) return fail("format of a 'safe' string is not supported");
  Text out;
  const std::string_view bytes = format.bytes();
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format.slice(at, brace));
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format.slice(brace, brace + 1));
      at = brace + 2;
      continue;
    }
    if (bytes[brace] == '}') return fail("Single '}' encountered in format string");
    const size_t end = bytes.find('}', brace);
    if (end == std::string_view::npos) {
      return fail(brace + 1 == bytes.size() ? "Single '{' encountered in format string"
                                            : "expected '}' before end of string");
    }
    std::string_view field = bytes.substr(brace + 1, end - brace - 1);
    if (field.find_first_of("{:") != std::string_view::npos) {
      return fail("a format spec inside str.format is not supported");
    }
    const size_t bang = field.find('!');
    const std::string_view conversion =
        bang == std::string_view::npos ? "" : field.substr(bang + 1);
    if (bang != std::string_view::npos && conversion != "s" && conversion != "r") {
      return fail("this conversion in str.format is not supported");
    }
    const Value value = TRY(field_value(runtime, field.substr(0, bang), arguments, next));
    out.append(TRY(conversion == "r" ? to_repr(runtime, value) : to_text(runtime, value)));
    if (out.size() > runtime.limits().output_bytes_max) break;
    at = end + 1;
  }
  return out;
}

}  // namespace nibble::jinja
