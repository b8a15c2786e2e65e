// The template language: every snippet of the golden table against Jinja2's answer, errors with
// their lines, and limits at their edges.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "testing/source_dir.h"
#include "text/chat_template.h"

namespace nibble {
namespace {

Result<RenderedPrompt> render(std::string_view source, TemplateInput input = {},
                              TemplateLimits limits = {}) {
  if (input.messages.is_null()) input.messages = Json(Json::Array{});
  const auto compiled = TRY(ChatTemplate::compile(source, "t", {.limits = limits}));
  return compiled.render(input);
}

std::string text_of(std::string_view source, TemplateLimits limits = {}) {
  const auto prompt = render(source, {}, limits);
  return prompt.ok() ? prompt.value().flat() : concat("error: ", prompt.error().message);
}

std::string error_of(std::string_view source, TemplateLimits limits = {}) {
  const auto prompt = render(source, {}, limits);
  return prompt.ok() ? "no error" : prompt.error().message;
}

std::string times(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// The line that an error names, or 0.
int line_of(const std::string& message) {
  const size_t at = message.rfind(", line ");
  return at == std::string::npos ? 0 : std::atoi(message.c_str() + at + 7);
}

TEST(JinjaTemplate, SnippetsEqualJinja2) {
  const auto text =
      read_text_file(NIBBLE_SOURCE_DIR "/tests/golden/templates/snippets.json", uint64_t{1} << 24);
  ASSERT_TRUE(text.ok());
  const auto golden = parse_json(text.value(), "snippets.json");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  TemplateInput input;
  input.messages = *golden.value().find("messages");
  input.kwargs = *golden.value().find("kwargs");
  input.now =
      std::chrono::local_seconds(std::chrono::seconds(golden.value().find("now")->as_int()));
  const auto& cases = golden.value().find("cases")->as_array();
  EXPECT_GE(cases.size(), 400u);
  const ChatTemplate::Options options{.special_tokens = *golden.value().find("special_tokens")};
  for (const Json& one : cases) {
    const std::string& source = one.find("source")->as_string();
    const auto compiled = ChatTemplate::compile(source, "t", options);
    ASSERT_TRUE(compiled.ok()) << source << "\n" << compiled.error().message;
    const auto prompt = compiled.value().render(input);
    if (const Json* expected = one.find("text")) {
      ASSERT_TRUE(prompt.ok()) << source << "\n" << prompt.error().message;
      EXPECT_EQ(prompt.value().flat(), expected->as_string()) << source;
      continue;
    }
    ASSERT_FALSE(prompt.ok()) << source;
    const std::string& expected = one.find("error")->as_string();
    const std::string& message = prompt.error().message;
    if (one.find("raised")->as_bool()) {
      EXPECT_EQ(message, expected) << source;
    } else {
      EXPECT_EQ(message, concat(expected, " (t, line ", line_of(message), ")")) << source;
      const bool expression = source.starts_with("{{ ");
      const auto later = ChatTemplate::compile(
          expression ? concat("{{\n\n", source.substr(3)) : concat("\n\n", source), "t", options);
      EXPECT_EQ(later.value().render(input).error().message,
                concat(expected, " (t, line ", line_of(message) + 2, ")"))
          << source;
    }
  }
}

TEST(JinjaTemplate, ErrorsNameTheConstructAndTheLine) {
  EXPECT_EQ(error_of("a\nb {{ x|frobnicate }}"),
            "t line 2: the filter 'frobnicate' does not exist");
  EXPECT_EQ(error_of("{{ x is frobnicated }}"), "t line 1: the test 'frobnicated' does not exist");
  EXPECT_EQ(error_of("\n\n{% frobnicate %}"), "t line 3: unknown tag 'frobnicate'");
  EXPECT_EQ(error_of("{% include 'secret' %}"),
            "t line 1: the tag 'include' is not supported by Nibble's template interpreter");
  EXPECT_EQ(error_of("\n{{ x.encode() }}"),
            "t line 2: the method 'encode' is not supported by Nibble's template interpreter");
  EXPECT_EQ(error_of("{% if x %}\n"),
            "t line 1: expected the tag 'endif', found the end of the "
            "template");
  EXPECT_EQ(error_of("{{ (1 }}"), "t line 1: unexpected '}', expected ')'");
  EXPECT_EQ(error_of("{{ 'abc }}"), "t line 1: a string has no closing quote");
  EXPECT_EQ(ChatTemplate::compile("{% include 'x' %}", "t").error().code, ErrorCode::unsupported);
  EXPECT_EQ(ChatTemplate::compile("{{", "t").error().code, ErrorCode::corrupt);
}

TEST(JinjaTemplate, AMacroMayHaveTheNameOfAMethod) {
  EXPECT_EQ(text_of("{% macro encode(a) %}<{{ a }}>{% endmacro %}{{ encode('x') }}"), "<x>");
}

TEST(JinjaTemplate, SeparatorsOfJsonAreTwoTexts) {
  for (const char* separators : {"[',']", "[1, ':']", "[',', 1]", "'abc'"})
    EXPECT_EQ(error_of(concat("{{ [1]|tojson(separators=", separators, ") }}")),
              "tojson separators must be two strings (t, line 1)");
  EXPECT_EQ(text_of("{{ {'a': [1, 2]}|tojson(separators=[';', '=']) }}"), R"({"a"=[1;2]})");
}

TEST(JinjaTemplate, RuntimeErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ 1 + 1 }}\n{{ missing.x }}"), "'missing' is undefined (t, line 3)");
  EXPECT_EQ(error_of("{% macro m(a) %}\n{{ a + 1 }}{% endmacro %}\n\n{{ m('x') }}"),
            "can only concatenate str (not \"int\") to str (t, line 2)");
  EXPECT_EQ(error_of("\n\n{% set a, b = 1, 2, 3 %}"),
            "too many values to unpack (expected 2) (t, line 3)");
  EXPECT_EQ(error_of("\n{{ raise_exception('No\nluck') }}"), "No\nluck");
}

TEST(JinjaTemplate, StepsAreLimited) {
  const TemplateLimits few{.steps_max = 10'000};
  EXPECT_EQ(
      error_of("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", few),
      "the template takes more than 10000 steps (t, line 1)");
  EXPECT_EQ(text_of("{% for a in range(99) %}{% endfor %}ok", few), "ok");
  const auto takes = [](int64_t steps) {  // one for the loop, one an item
    return error_of("{% for a in range(100) %}{% endfor %}", {.steps_max = steps}) == "no error";
  };
  int64_t least = 1;
  while (!takes(least)) ++least;
  EXPECT_GE(least, 100);
  EXPECT_TRUE(takes(least + 1));
  EXPECT_EQ(error_of("{% for a in range(101) %}{% endfor %}", {.steps_max = least}),
            concat("the template takes more than ", least, " steps (t, line 1)"));
  // Structure shared a billion times over costs what walking it costs.
  const std::string doubling =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_NE(error_of(doubling).find("parts (t, line 1)"), std::string::npos);
}

TEST(JinjaTemplate, TextIsLimited) {
  const TemplateLimits small{.output_bytes_max = 1000};
  const std::string over = "the template makes a text of more than 1000 bytes (t, line 1)";
  EXPECT_EQ(text_of("{{ 'x' * 1000 }}", small).size(), 1000u);
  EXPECT_EQ(error_of("{{ 'x' * 1001 }}", small), over);
  EXPECT_EQ(error_of("{{ 'x' * 9999999999 }}", small), over);
  EXPECT_EQ(error_of("{{ 'x' * 1000 }}y", small), over);
  EXPECT_EQ(error_of("{% set a = 'x' * 600 %}{{ a ~ a }}", small), over);
  EXPECT_EQ(error_of("{% set a = 'x' * 600 %}{% set b = a ~ a %}", small), over);
  EXPECT_EQ(error_of("{{ ('x' * 900).replace('x', 'yyy') }}", small), over);
  EXPECT_EQ(error_of("{{ ('x' * 900)|list|join('--') }}", small), over);
  EXPECT_EQ(error_of("{{ ('x' * 900)|list|tojson }}", small), over);
}

TEST(JinjaTemplate, NestingIsLimited) {
  EXPECT_NE(error_of(concat("{{ ", times("(", 300), "1", times(")", 300), " }}")).find("deeper"),
            std::string::npos);
  EXPECT_NE(error_of(concat("{{ ", times("not ", 5000), "1 }}")).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(concat("{{ ", times("- ", 5000), "1 }}")).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(concat("{{ 1", times(" + 1", 5000), " }}")).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(concat("{{ a", times(".a", 5000), " }}")).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(times("{% if 1 %}", 5000)).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(concat("{{ ", times("1 if 1 else ", 5000), "1 }}")).find("deeper"),
            std::string::npos);
  EXPECT_EQ(text_of(concat("{{ ", times("(", 150), "1", times(")", 150), " }}")), "1");
  EXPECT_EQ(text_of(concat(times("{% if 1 %}", 150), "x", times("{% endif %}", 150))), "x");
  // Expressions that follow one another are not nested.
  EXPECT_EQ(text_of(times("{{ not 0 }}", 201)), times("True", 201));
  // Refused when compiled: even what is never evaluated is walked when it is freed.
  EXPECT_FALSE(ChatTemplate::compile(concat("{{ 1", times(" + 1", 201), " }}"), "t").ok());
  const std::string values =
      "{% set ns = namespace(x=[]) %}{% for i in range(201) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(error_of(values), "the template nests values deeper than 200 (t, line 1)");
}

TEST(JinjaTemplate, RecursionIsLimited) {
  const std::string macro = "{% macro m(n) %}{{ m(n - 1) if n else 'x' }}{% endmacro %}";
  EXPECT_EQ(text_of(concat(macro, "{{ m(199) }}")), "x");
  EXPECT_EQ(error_of(concat(macro, "{{ m(200) }}")),
            "the template calls macros deeper than 200 levels (t, line 1)");
  // The widest frames there are, until the limit on nesting ends it.
  const std::string wide =
      concat("{% macro m(n) %}{% for a in [1] %}{% if 1 %}{% with b = 2 %}{{ ", times("(1 + ", 60),
             "m(n)|length", times(")", 60),
             " }}{% endwith %}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}");
  EXPECT_NE(error_of(wide).find("deeper than"), std::string::npos);
}

TEST(JinjaTemplate, SourceIsLimited) {
  EXPECT_EQ(text_of("12345", {.source_bytes_max = 5}), "12345");
  EXPECT_EQ(error_of("123456", {.source_bytes_max = 5}),
            "t is too large for a chat template: expected at most 5 bytes, found 6");
}

TEST(JinjaTemplate, IntegersDoNotWrap) {
  EXPECT_EQ(text_of("{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}"),
            "9223372036854775807 -9223372036854775808");
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 4294967296 * 4294967296 }}", "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ 1e300|int }}", "{{ (-9223372036854775807 - 1)|abs }}"}) {
    EXPECT_NE(error_of(source).find("integer overflow"), std::string::npos) << source;
  }
}

TEST(JinjaTemplate, CyclesEndAndDoNotLeak) {
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}").find("itself"),
            std::string::npos);
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.x = [ns] %}ok"), "ok");
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}"
                    "{{ ns.l.index }}"),
            "1");
}

TEST(JinjaTemplate, DamagedTextDoesNoHarm) {
  TemplateInput input;
  input.kwargs.set("s", Json(std::string("a\xFF\xC3(\xE2\x82\x80\xF0")));
  const auto prompt = render(
      "{{ s|length }}{{ s|upper }}{{ s[::-1] }}{{ s|tojson }}{{ [s] }}{{ s.split() }}", input);
  EXPECT_TRUE(prompt.ok());
}

}  // namespace
}  // namespace nibble
