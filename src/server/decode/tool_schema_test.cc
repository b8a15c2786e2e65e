// Values of parameters as their schemas mean them.
#include "server/decode/tool_schema.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "server/decode/output_parser.h"

namespace nibble {
namespace {

ToolSchemas schemas() {
  return ToolSchemas(parse_json(R"([{"type":"function","function":{"name":"f","parameters":{
      "type":"object","properties":{
        "free":{"type":"string"},
        "short":{"type":"string","maxLength":4},
        "some":{"type":"string","minLength":1},
        "date":{"type":"string","format":"date"},
        "either":{"anyOf":[{"type":"string","maxLength":4},{"type":"null"}]},
        "maybe":{"type":"string","nullable":true},
        "some_days":{"type":["integer","null"]},
        "any":{"description":"anything"},
        "days":{"type":"integer"},
        "unit":{"enum":["day","1",2,"of "]},
        "only":{"const":"so"}}}}}])",
                                "the tools")
                         .value());
}

struct Value {
  const char* parameter;
  const char* text;
  const char* json;
};

void expect_values(std::initializer_list<Value> values) {
  const ToolSchemas tools = schemas();
  for (const Value& value : values)
    EXPECT_EQ(tools.json_of("f", value.parameter, value.text), value.json)
        << value.parameter << ": " << value.text;
}

TEST(ToolSchemas, WhiteSpaceAroundABoundedStringIsOfTheForm) {
  expect_values({
      {"free", " \n a ", R"(" \n a ")"},
      {"short", "a b", R"("a b")"},
      {"short", " a ", R"(" a ")"},  // it fits
      {"short", "\n\n abc\n", R"("abc")"},
      {"short", "äöüß\n", R"("äöüß")"},
      {"some", "\n a \n", R"("a")"},
      {"date", "\n2026-01-02\n", R"("2026-01-02")"},
      {"either", " abcd ", R"("abcd")"},
      {"either", "null", "null"},
      {"days", " 3\n", "3"},
  });
}

/// White space around it is of the form, unless it is of the value; what looks like a number is one
/// where the value is no string of that name.
TEST(ToolSchemas, AStringThatTheSchemaNamesIsMeant) {
  expect_values({
      {"unit", "day", R"("day")"},
      {"unit", "\n day\n", R"("day")"},
      {"unit", "1", R"("1")"},
      {"unit", "2", "2"},
      {"unit", "of ", R"("of ")"},
      {"only", " so ", R"("so")"},
  });
}

TEST(ToolSchemas, NullIsNullOnlyWhereTheSchemaAllowsIt) {
  expect_values({
      {"free", "null", R"("null")"},
      {"days", "null", R"("null")"},
      {"days", "None", R"("None")"},
      {"maybe", "null", "null"},
      {"maybe", "nothing", R"("nothing")"},
      {"some_days", "null", "null"},
      {"some_days", "None", "null"},
      {"some_days", "3", "3"},
      {"any", "null", "null"},
      {"any", "None", "null"},
      {"either", "null", "null"},
  });
}

std::string arguments_of(ParseTools parse, std::string_view inside) {
  OutputParser parser(StartIn::content, parse, schemas());
  parser.marker(Marker::tool_begin);
  parser.text(inside);
  parser.marker(Marker::tool_end);
  parser.finish();
  std::string arguments;
  for (const OutputEvent& event : parser.take())
    if (event.kind == OutputEvent::Kind::tool_arguments) arguments += event.text;
  return arguments;
}

TEST(ToolSchemas, HeldToAGrammarOnlyItsEndEndsAValue) {
  constexpr auto kForgotten =
      "\n<function=f>\n<parameter=free>\na\n<parameter=days>\n3\n</parameter>\n</function>\n";
  EXPECT_EQ(arguments_of(ParseTools::yes, kForgotten), R"({"free": "a", "days": 3})");
  EXPECT_EQ(arguments_of(ParseTools::sound, kForgotten), R"({"free": "a\n<parameter=days>\n3"})");
}

TEST(ToolSchemas, NumbersKeepTheirDigits) {
  expect_values({{"any", "9.0000000000000000000001", "9.0000000000000000000001"},
                 {"any", " 12345678901234567890 ", "12345678901234567890"},
                 {"days", "7", "7"}});
}

}  // namespace
}  // namespace nibble
