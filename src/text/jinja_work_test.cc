// Work of templates: what an operation costs of the limit on steps, and how deep each construct may
// nest. The golden has the fewest steps that a template needs, so that none costs more or less by
// accident.
#include <gtest/gtest.h>

#include "testing/golden_text.h"
#include "text/chat_template.h"

namespace nibble {
namespace {

/// Says if the template ends within `steps_max`; any other error is a failure.
bool ends_within(std::string_view source, int64_t steps_max) {
  const auto compiled = ChatTemplate::compile(source, "t", {.limits = {.steps_max = steps_max}});
  if (!compiled.ok()) {
    ADD_FAILURE() << source << ": " << compiled.error().message;
    return true;
  }
  TemplateInput input;
  input.messages = Json(Json::Array{});
  const auto prompt = compiled.value().render(input);
  if (prompt.ok()) return true;
  const bool steps =
      prompt.error().message.find(concat("more than ", steps_max)) != std::string::npos;
  EXPECT_TRUE(steps) << source << ": " << prompt.error().message;
  return !steps;
}

int64_t fewest_steps(std::string_view source) {
  int64_t high = 1;
  while (!ends_within(source, high)) high *= 2;
  int64_t low = high / 2;  // too few
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (ends_within(source, middle) ? high : low) = middle;
  }
  return high;
}

// `s` is a text of 1,000 bytes and `l` a list of 100 numbers.
const char* const kOperations[] = {"s",
                                   "l",
                                   "s ~ s",
                                   "s + s",
                                   "s * 2",
                                   "l + l",
                                   "l * 2",
                                   "[1] * 100",
                                   "(1, 2, 3) * 33",
                                   "s == s",
                                   "s < s",
                                   "l == l",
                                   "s in s",
                                   "5 in l",
                                   "'no' in s",
                                   "s is eq(s)",
                                   "s is in [s]",
                                   "s is string",
                                   "s[5]",
                                   "s[5:900]",
                                   "s[::-1]",
                                   "l[5]",
                                   "l[5:90]",
                                   "s.upper()",
                                   "s.lower()",
                                   "s.strip()",
                                   "s.split('b')",
                                   "s.split()",
                                   "s.replace('b', 'cc')",
                                   "s.startswith('a')",
                                   "s.endswith('a')",
                                   "s.find('no')",
                                   "s.count('a')",
                                   "s.title()",
                                   "s.capitalize()",
                                   "s.splitlines()",
                                   "s.join(['a', 'b'])",
                                   "s.isdigit()",
                                   "s.lstrip('a')",
                                   "s.rstrip()",
                                   "l.index(50)",
                                   "l.count(50)",
                                   "d.items()",
                                   "d.keys()",
                                   "d.values()",
                                   "d.get(s)",
                                   "d[s]",
                                   "s|length",
                                   "l|length",
                                   "s|upper",
                                   "s|lower",
                                   "s|trim",
                                   "s|title",
                                   "s|capitalize",
                                   "s|replace('b', 'cc')",
                                   "s|escape",
                                   "s|indent",
                                   "s|center(2000)",
                                   "s|truncate(20)",
                                   "s|wordcount",
                                   "s|string",
                                   "l|string",
                                   "s|list",
                                   "l|list",
                                   "l|join(s)",
                                   "l|join",
                                   "l|sum",
                                   "l|first",
                                   "l|last",
                                   "l|max",
                                   "l|min",
                                   "l|sort|length",
                                   "l|unique|list",
                                   "l|reverse|list",
                                   "s|reverse",
                                   "l|map('string')|list",
                                   "l|select('odd')|list",
                                   "l|reject('odd')|list",
                                   "l|batch(7)|list",
                                   "l|slice(7)|list",

                                   "ds|map(attribute='k')|list",
                                   "ds|selectattr('k')|list",
                                   "ds|rejectattr('k')|list",
                                   "ds|sort(attribute='k')|length",
                                   "ds|unique(attribute='k')|list",
                                   "s|tojson",
                                   "l|tojson",
                                   "d|tojson",
                                   "ds|tojson",
                                   "d|dictsort",
                                   "d|items|list",
                                   "s|default('x')",
                                   "range(100)|list",
                                   "'%s'|format(s)",
                                   "namespace(x=s).x",
                                   "dict(x=s).x",
                                   "[s, s]",
                                   "{'k': s}",
                                   "s if s else l",
                                   "not s",
                                   "s and l",
                                   "-5",
                                   "2 ** 9",
                                   "'%s' % s"};

TEST(JinjaWork, OfEachOperation) {
  std::string all;
  for (const std::string_view operation : kOperations)
    all += concat(operation, ": ",
                  fewest_steps(concat("{% set s = 'ab' * 500 %}{% set l = range(100)|list %}"
                                      "{% set d = {s: l, 'k': s} %}{% set ds = [{'k': s}, {'k': "
                                      "'b'}, {'k': s}] %}{% set x = ",
                                      operation, " %}")),
                  "\n");
  for (const std::string_view source :
       {"{{ 'ab' * 500 }}", "{% for c in 'ab' * 500 %}{% endfor %}",
        "{% for i in range(100) %}{{ loop.index }}{% endfor %}",
        "{% for i in range(100) if i is odd %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% macro m(n) %}{{ n }}{% endmacro %}{{ m(5) }}{{ m('ab' * 500) }}",
        "{% set ns = namespace(x=0) %}{% for i in range(9) %}{% set ns.x = i %}{% endfor %}",
        "{% filter upper %}abc{% endfilter %}", "{% set x %}abc{% endset %}{{ x }}",
        "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}", "{% with a = 2 %}{{ a }}{% endwith %}"})
    all += concat(source, ": ", fewest_steps(source), "\n");
  expect_golden_text("templates/steps.txt", all);
}

std::string nested(const char* open, const char* close, int depth) {
  std::string source = "{{ ";
  for (int i = 0; i < depth; ++i) source += open;
  source += "1";
  for (int i = 0; i < depth; ++i) source += close;
  return source + " }}";
}

/// The largest depth that compiles, or 0 if there is no end of it.
int deepest(const char* open, const char* close) {
  const auto compiles = [&](int depth) {
    return ChatTemplate::compile(nested(open, close, depth), "t").ok();
  };
  int low = 0, high = 512;
  if (compiles(high)) return 0;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (compiles(middle) ? low : high) = middle;
  }
  return low;
}

TEST(JinjaWork, EveryConstructMayNestAsDeep) {
  const std::pair<const char*, const char*> kConstructs[] = {
      {"(", ")"},           {"[", "]"},         {"{1: ", "}"},
      {"f(", ")"},          {"f(x=", ")"},      {"1|d(", ")"},
      {"1 is eq(", ")"},    {"1 is eq [", "]"}, {"1 is eq {1: ", "}"},
      {"a[", "]"},          {"a[1:", "]"},      {"not ", ""},
      {"- ", ""},           {"+ ", ""},         {"1 + ", ""},
      {"1 * ", ""},         {"2 ** ", ""},      {"1 ~ ", ""},
      {"1 < ", ""},         {"1 and ", ""},     {"1 or ", ""},
      {"1 if 1 else ", ""}, {"", " + 1"},       {"", ".a"},
      {"", "[1]"},          {"", "()"},         {"", "|d"},
      {"", " if 1"},

      {"(1, ", ")"}};
  std::string all;
  for (const auto& [open, close] : kConstructs)
    all += concat(open, "1", close, ": ", deepest(open, close), "\n");
  expect_golden_text("templates/nesting.txt", all);
}

}  // namespace
}  // namespace nibble
