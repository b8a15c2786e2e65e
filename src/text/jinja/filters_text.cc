// Filters of text.
#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

Result<Value> trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "trim", {"chars"}));
  const Text text = TRY(to_text(runtime, value));
  const bool given = bound[0] != nullptr && !bound[0]->is(Kind::none);
  const Text* characters = given ? TRY(text_argument(*bound[0], "trim")) : nullptr;
  return runtime.text(strip_text(text, characters, Ends::both));
}

template <Text (*change)(const Text&)>
Result<Value> letter_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "case", {}));
  const Text text = TRY(to_text(runtime, value));
  TRY(runtime.charge(static_cast<int64_t>(text.size() / 8)));
  return runtime.text(change(text));
}

/// This is not str.title: words begin after "-", white space and opening brackets only.
Text title_words(const Text& text) {
  const auto separates = [&](size_t at) {
    const uint32_t c = code_point_at(text.bytes(), at);
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  Text out;
  for (size_t begin = 0; begin < text.size();) {
    const bool separator = separates(begin);
    size_t end = begin;
    while (end < text.size() && separates(end) == separator) {
      end = next_character(text.bytes(), end);
    }
    if (separator) {
      out.append(text.slice(begin, end));
    } else {
      const size_t second = next_character(text.bytes(), begin);
      out.append(to_upper(text.slice(begin, second)));
      out.append(to_lower(text.slice(second, end)));
    }
    begin = end;
  }
  return out;
}

Result<Value> replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "replace", {"old", "new", "count"}, 2));
  Text text = TRY(to_text(runtime, value));
  text.markup = false;
  const Text from = TRY(to_text(runtime, *bound[0]));
  const Text to = TRY(to_text(runtime, *bound[1]));
  int64_t limit = -1;
  if (bound[2] != nullptr && !bound[2]->is(Kind::none)) limit = TRY(int_argument(*bound[2]));
  return runtime.text(TRY(replace_text(runtime, text, from, to, limit)));
}

Result<Value> safe(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "safe", {}));
  Text text = TRY(to_text(runtime, value));
  text.markup = true;
  return runtime.text(std::move(text));
}

Result<Value> escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "escape", {}));
  if (value.is(Kind::string) && value.as_text().markup) return value;
  return runtime.text(escape_html(TRY(to_text(runtime, value))));
}

Result<Value> force_escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "forceescape", {}));
  return runtime.text(escape_html(TRY(to_text(runtime, value))));
}

Result<Text> indentation(const Value* width) {
  if (width != nullptr && width->is(Kind::string)) return width->as_text();
  const int64_t count = width != nullptr ? TRY(int_argument(*width)) : 4;
  if (count > 1000) return fail("indent takes a width of at most 1000");
  return Text(std::string(static_cast<size_t>(std::max<int64_t>(count, 0)), ' '));
}

Result<Value> indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "indent", {"width", "first", "blank"}));
  const Text margin = TRY(indentation(bound[0]));
  const bool first = bound[1] != nullptr && truthy(*bound[1]);
  const bool blank = bound[2] != nullptr && truthy(*bound[2]);
  if (value.is(Kind::undefined)) return fail(value.undefined_message());
  if (!value.is(Kind::string)) {
    return fail(concat("unsupported operand type(s) for +=: '", type_name(value), "' and 'str'"));
  }
  Text text = value.as_text();
  text.append("\n", Origin::from_template);
  const std::vector<Text> lines = split_lines(text);
  TRY(runtime.charge(static_cast<int64_t>(lines.size())));
  Text out;
  if (first) out.append(margin);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.append("\n", Origin::from_template);
      if (blank || !lines[i].empty()) out.append(margin);
    }
    out.append(lines[i]);
    if (out.size() > runtime.limits().output_bytes_max) break;
  }
  return runtime.text(std::move(out));
}

Result<Value> center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "center", {"width"}));
  const Text text = TRY(to_text(runtime, value));
  Arguments width;
  width.positional.push_back(bound[0] != nullptr ? *bound[0] : Value(int64_t{80}));
  return call_text_method(runtime, text, "center", width);
}

Result<Value> truncate(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "truncate", {"length", "killwords", "end", "leeway"}));
  if (!value.is(Kind::string)) return fail("truncate takes text");
  const Text& text = value.as_text();
  const int64_t length = bound[0] != nullptr ? TRY(int_argument(*bound[0])) : 255;
  const bool kill = bound[1] != nullptr && truthy(*bound[1]);
  Text end("...");
  if (bound[2] != nullptr) end = *TRY(text_argument(*bound[2], "truncate"));
  const bool has_leeway = bound[3] != nullptr && !bound[3]->is(Kind::none);
  const int64_t leeway = has_leeway ? TRY(int_argument(*bound[3])) : 5;
  const auto end_length = static_cast<int64_t>(count_characters(end.bytes()));
  if (length < end_length) {
    return fail(concat("expected length >= ", end_length, ", got ", length));
  }
  if (leeway < 0) return fail(concat("expected leeway >= 0, got ", leeway));
  const auto characters = static_cast<int64_t>(count_characters(text.bytes()));
  if (characters - length <= leeway) return value;
  Text out =
      text.slice(0, byte_of_character(text.bytes(), static_cast<size_t>(length - end_length)));
  if (!kill) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return runtime.text(std::move(out));
}

Result<Value> word_count(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind(arguments, "wordcount", {}));
  const Text text = TRY(to_text(runtime, value));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size(); at = next_character(text.bytes(), at)) {
    const uint32_t c = code_point_at(text.bytes(), at);
    const bool word = is_alnum(c) || c == '_';
    if (word && !inside) ++words;
    inside = word;
  }
  return Value(words);
}

Result<Value> format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Text text = TRY(to_text(runtime, value));
  Value given;
  if (!arguments.keyword.empty()) {
    if (!arguments.positional.empty()) {
      return fail("can't handle positional and keyword arguments at the same time");
    }
    std::vector<DictEntry> entries;
    for (const auto& [name, argument] : arguments.keyword) {
      entries.push_back({Value(Text(name)), argument});
    }
    given = TRY(runtime.dict(std::move(entries)));
  } else {
    given = TRY(runtime.list(arguments.positional, SequenceKind::tuple, "tuple"));
  }
  return runtime.text(TRY(format_percent(runtime, text, given)));
}

Result<Value> join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = TRY(bind(arguments, "join", {"d", "attribute"}));
  const Text separator = bound[0] != nullptr ? TRY(to_text(runtime, *bound[0])) : Text();
  const std::vector<Value> items = TRY(iterate(runtime, value));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    const bool path = bound[1] != nullptr && !bound[1]->is(Kind::none);
    const Value item = path ? TRY(get_path(runtime, items[i], *bound[1])) : items[i];
    out.append(TRY(to_text(runtime, item)));
    if (out.size() > runtime.limits().output_bytes_max) break;
  }
  return runtime.text(std::move(out));
}

constexpr NamedFilter kFilters[] = {
    {"trim", trim},
    {"upper", letter_case<to_upper>},
    {"lower", letter_case<to_lower>},
    {"capitalize", letter_case<to_capitalized>},
    {"title", letter_case<title_words>},
    {"replace", replace},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"format", format},
    {"join", join},
};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found != std::end(kFilters) ? found->function : nullptr;
}

}  // namespace nibble::jinja
