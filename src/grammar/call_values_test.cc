// The values that texts of parameters become under the schemas of a call whose text followed a
// grammar.
#include "grammar/call_values.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace nibble {
namespace {

std::string value_of(const std::string& schema, std::string_view text) {
  const std::string all = concat(R"({"type":"object","properties":{"v":)", schema, "}}");
  return call_value(parse_json(all, "t").value(), "v", text).value_or("none");
}

TEST(CallValues, AreReadAsTheSchemaAllows) {
  const struct {
    const char* schema;
    const char* text;
    const char* json;
  } cases[] = {
      {R"({"type":"string"})", "5", R"("5")"},
      {R"({"type":"string"})", "\"a\"", R"("\"a\"")"},
      {R"({"type":"string","pattern":"^ a $"})", " a ", R"(" a ")"},
      {R"({"type":"integer"})", "5", "5"},
      {R"({"type":"integer"})", "123456789012345678901234567890", "123456789012345678901234567890"},
      {R"({"type":"integer"})", "five", "none"},
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", "5", "5"},
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", "5 apples", R"("5 apples")"},
      {R"({"anyOf":[{"type":"integer","minimum":9},{"type":"string"}]})", "5", R"("5")"},
      {R"({"anyOf":[{"type":"integer","exclusiveMinimum":5},{"type":"string"}]})", "4", R"("4")"},
      {R"({"anyOf":[{"type":"integer","exclusiveMinimum":5},{"type":"string"}]})", "5", R"("5")"},
      {R"({"anyOf":[{"type":"integer","exclusiveMinimum":5},{"type":"string"}]})", "6", "6"},
      {R"({"anyOf":[{"type":"integer","exclusiveMaximum":5},{"type":"string"}]})", "4", "4"},
      {R"({"anyOf":[{"type":"integer","exclusiveMaximum":5},{"type":"string"}]})", "5", R"("5")"},
      {R"({"anyOf":[{"type":"integer","exclusiveMaximum":5},{"type":"string"}]})", "6", R"("6")"},
      {R"({"enum":["5",true]})", "5", R"("5")"},
      {R"({"enum":["5",true]})", "true", "true"},
      {R"({"type":"string","nullable":true})", "null", "null"},
      {R"({"type":"string"})", "null", R"("null")"},
      {R"({"type":["string","null"]})", "null", "null"},
      {R"({"type":"array","items":{"type":"number"}})", " [1,\n\t2.50 ]\n", "[1, 2.50]"},
      {R"({"type":"object"})", R"({"a":1,"a":2})", R"({"a": 1, "a": 2})"},
      {R"({"type":"array"})", R"([ "a, b:\" ", 1 ])", R"(["a, b:\" ", 1])"},
      {"true", "{", R"("{")"},
  };
  for (const auto& [schema, text, json] : cases)
    EXPECT_EQ(value_of(schema, text), json) << schema << ": " << text;
}

TEST(CallValues, OfNamesThatOnlyPatternsOrOthersGive) {
  const Json schema = parse_json(R"({"type":"object","properties":{"a":{"type":"string"}},
      "patternProperties":{"^n":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
                                 "t")
                          .value();
  EXPECT_EQ(call_value(schema, "a", "1"), R"("1")");
  EXPECT_EQ(call_value(schema, "n1", "1"), "1");
  EXPECT_EQ(call_value(schema, "x", "1"), R"("1")");
}

TEST(CallValues, OfAlternativesOfAllParameters) {
  const Json schema = parse_json(R"({"anyOf":[
      {"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}}},
      {"type":"object","properties":{"k":{"const":"b"},"y":{"type":"string"}}}]})",
                                 "t")
                          .value();
  EXPECT_EQ(call_value(schema, "k", "b"), R"("b")");
  EXPECT_EQ(call_value(schema, "x", "1"), "1");
  EXPECT_EQ(call_value(schema, "y", "1"), R"("1")");
}

}  // namespace
}  // namespace nibble
