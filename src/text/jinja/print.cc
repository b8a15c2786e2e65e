// str() and repr() as Python prints them.
#include "text/jinja/print.h"

#include "base/json.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

std::string float_text(double value) {
  std::string out;
  append_json_double(out, value);
  if (out == "NaN") return "nan";
  if (out == "Infinity") return "inf";
  return out == "-Infinity" ? "-inf" : out;
}

void append_hex_escape(std::string& out, uint32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out.push_back(kHex[c >> shift & 15]);
}

class Printer {
 public:
  explicit Printer(Runtime& runtime) : runtime_(runtime) {}

  Result<Text> take() && { return std::move(out_); }

  Result<void> print(const Value& value) {
    if (out_.size() > runtime_.limits().output_bytes_max) {
      return fail(concat("the template makes a text of more than ",
                         runtime_.limits().output_bytes_max, " bytes"));
    }
    switch (value.kind()) {
      case Kind::none:
        return scalar("None", value);
      case Kind::undefined:
        return scalar("Undefined", value);
      case Kind::boolean:
        return scalar(value.as_bool() ? "True" : "False", value);
      case Kind::integer:
        return scalar(concat(value.as_int()), value);
      case Kind::floating:
        return scalar(float_text(value.as_double()), value);
      case Kind::string:
        return string(value.as_text());
      case Kind::sequence:
        return sequence(value);
      case Kind::dict:
        return dict(value);
      case Kind::name_space:
        return name_space(value);
      case Kind::loop: {
        const Loop& loop = value.as_loop();
        return scalar(concat("<LoopContext ", loop.index0 + 1, "/", loop.items->items.size(), ">"),
                      value);
      }
      case Kind::callable:
        break;
    }
    const Callable& callable = value.as_callable();
    if (callable.kind == Callable::Kind::macro) {
      return scalar(concat("<Macro ", repr_text(callable.name), ">"), value);
    }
    return fail(concat("the function '", callable.name, "' is printed instead of called"));
  }

 private:
  Result<void> scalar(std::string_view text, const Value& value) {
    out_.append(text, value.origin());
    return {};
  }
  Result<void> string(const Text& text) {
    const std::string repr = repr_text(text.bytes());
    out_.append(text.markup ? concat("Markup(", repr, ")") : repr, text.origin());
    return {};
  }
  Result<void> items(const Sequence& sequence, Origin origin) {
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.append(", ", origin);
      TRY(print(sequence.items[i]));
    }
    return {};
  }
  Result<void> sequence(const Value& value) {
    const Sequence& sequence = value.as_sequence();
    const Origin origin = value.origin();
    if (sequence.kind == SequenceKind::iterator || sequence.kind == SequenceKind::range) {
      return fail(concat("a ", sequence.type, " is printed; make it a list first"));
    }
    const bool tuple = sequence.kind == SequenceKind::tuple;
    const bool view = sequence.kind == SequenceKind::view;
    if (view) out_.append(concat(sequence.type, "("), origin);
    out_.append(tuple ? "(" : "[", origin);
    TRY(items(sequence, origin));
    if (tuple && sequence.items.size() == 1) out_.append(",", origin);
    out_.append(tuple ? ")" : "]", origin);
    if (view) out_.append(")", origin);
    return {};
  }
  Result<void> dict(const Value& value) {
    const Origin origin = value.origin();
    out_.append("{", origin);
    bool first = true;
    for (const DictEntry& entry : value.as_dict().entries) {
      if (!std::exchange(first, false)) out_.append(", ", origin);
      TRY(print(entry.key));
      out_.append(": ", origin);
      TRY(print(entry.value));
    }
    out_.append("}", origin);
    return {};
  }
  Result<void> name_space(const Value& value) {
    if (++namespaces_ > 8) return fail("a namespace that contains itself is printed");
    out_.append("<Namespace {", value.origin());
    bool first = true;
    for (const auto& [name, attribute] : value.as_namespace().attributes) {
      if (!std::exchange(first, false)) out_.append(", ", value.origin());
      out_.append(concat(repr_text(name), ": "), value.origin());
      TRY(runtime_.charge(attribute.weight()));
      TRY(print(attribute));
    }
    out_.append("}>", value.origin());
    return {};
  }

  Runtime& runtime_;
  Text out_;
  int namespaces_ = 0;
};

}  // namespace

std::string repr_text(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t position = 0; position < text.size();) {
    const size_t end = next_character(text, position);
    const uint32_t c = code_point_at(text, position);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(position, end - position);
    } else {
      append_hex_escape(out, c);
    }
    position = end;
  }
  out.push_back(quote);
  return out;
}

Result<Text> to_repr(Runtime& runtime, const Value& value) {
  TRY(runtime.charge(value.weight()));
  Printer printer(runtime);
  TRY(printer.print(value));
  return std::move(printer).take();
}

Result<Text> to_text(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) {
    TRY(runtime.charge(value.weight()));
    return value.as_text();
  }
  if (value.is(Kind::undefined)) return Text();
  return to_repr(runtime, value);
}

Result<Value> to_text_value(Runtime& runtime, const Value& value) {
  if (value.is(Kind::string)) return value;
  return runtime.text(TRY(to_text(runtime, value)));
}

}  // namespace nibble::jinja
