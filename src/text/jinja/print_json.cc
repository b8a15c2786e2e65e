// json.dumps with the arguments transformers' `tojson` accepts. Not base/json.h's writer: the
// separators, key conversions and errors are Python's.
#include <algorithm>

#include "base/json.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Result<void> print(const Value& value, int level) {
    if (value.origin() == Origin::from_user) origin_ = Origin::from_user;
    if (out_.size() > runtime_.limits().output_bytes_max) {
      return fail(concat("the template makes a text of more than ",
                         runtime_.limits().output_bytes_max, " bytes"));
    }
    if (value.is(Kind::sequence)) {
      const auto kind = value.as_sequence().kind;
      if (kind == SequenceKind::list || kind == SequenceKind::tuple) return list(value, level);
    }
    if (value.is(Kind::dict)) return dict(value, level);
    if (value.is(Kind::string)) {
      append_string(value.as_bytes());
    } else if (value.is(Kind::none)) {
      out_ += "null";
    } else if (value.is(Kind::boolean)) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is(Kind::integer)) {
      out_ += concat(value.as_int());
    } else if (value.is(Kind::floating)) {
      append_json_double(out_, value.as_double());
    } else {
      return fail(concat("Object of type ", type_name(value), " is not JSON serializable"));
    }
    return {};
  }

  Text take() && { return Text(std::move(out_), origin_); }

 private:
  void new_line(int level) {
    if (!style_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  Result<void> list(const Value& value, int level) {
    const auto& items = value.as_sequence().items;
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      TRY(print(items[i], level + 1));
    }
    if (!items.empty()) new_line(level);
    out_.push_back(']');
    return {};
  }

  Result<void> dict(const Value& value, int level) {
    std::vector<const DictEntry*> entries;
    for (const DictEntry& entry : value.as_dict().entries) entries.push_back(&entry);
    if (style_.sort_keys) TRY(sort(entries));
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      TRY(key(entries[i]->key));
      out_ += style_.key_separator;
      TRY(print(entries[i]->value, level + 1));
    }
    if (!entries.empty()) new_line(level);
    out_.push_back('}');
    return {};
  }

  Result<void> sort(std::vector<const DictEntry*>& entries) {
    for (const DictEntry* entry : entries) {
      if (!entry->key.is(Kind::string)) return fail("tojson sorts only text keys");
    }
    std::ranges::stable_sort(entries, [](const DictEntry* left, const DictEntry* right) {
      return left->key.as_bytes() < right->key.as_bytes();
    });
    return {};
  }

  Result<void> key(const Value& value) {
    if (value.is(Kind::string)) return print(value, 0);
    if (!value.is_number() && !value.is(Kind::none)) {
      return fail(concat("keys must be str, int, float, bool or None, not ", type_name(value)));
    }
    out_.push_back('"');
    TRY(print(value, 0));
    out_.push_back('"');
    return {};
  }

  void append_string(std::string_view text) {
    const size_t begin = out_.size();
    append_json_string(out_, text);
    if (!style_.ensure_ascii) return;
    const std::string plain = out_.substr(begin);
    out_.resize(begin);
    for (size_t position = 0; position < plain.size(); position = next_character(plain, position)) {
      const uint32_t c = code_point_at(plain, position);
      if (c >= 0x10000) {
        append_unit(0xD800 + ((c - 0x10000) >> 10));
        append_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else if (c >= 0x7F) {
        append_unit(c);
      } else {
        out_.push_back(static_cast<char>(c));
      }
    }
  }
  void append_unit(uint32_t unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_.push_back(kHex[unit >> shift & 15]);
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
  Origin origin_ = Origin::from_template;
};

}  // namespace

Result<Text> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  TRY(runtime.charge(value.weight()));
  JsonPrinter printer(runtime, style);
  TRY(printer.print(value, 0));
  return std::move(printer).take();
}

}  // namespace nibble::jinja
