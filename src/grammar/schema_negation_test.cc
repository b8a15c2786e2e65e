// Contraries of schemas: each keyword that is a bound, and how deep schemas may be inside others.
#include "grammar/schema_negation.h"

#include <gtest/gtest.h>

#include "base/concat.h"

namespace nibble {
namespace {

std::string contrary(const std::string& text) {
  const Json schema = parse_json(text, "schema").value();
  const auto made = negated(schema, schema);
  return made ? made->dump() : "nothing";
}

/// Other types meet a bound, so that its contrary names the type.
TEST(SchemaNegation, ABoundIsMetOnItsOtherSide) {
  const std::pair<const char*, const char*> kBounds[] = {
      {R"({"minimum":2.5})", R"({"type":"number","exclusiveMaximum":2.5})"},
      {R"({"maximum":2.5})", R"({"type":"number","exclusiveMinimum":2.5})"},
      {R"({"exclusiveMinimum":2.5})", R"({"type":"number","maximum":2.5})"},
      {R"({"exclusiveMaximum":2.5})", R"({"type":"number","minimum":2.5})"},
      {R"({"minLength":2})", R"({"type":"string","maxLength":1})"},
      {R"({"maxLength":2})", R"({"type":"string","minLength":3})"},
      {R"({"minItems":2})", R"({"type":"array","maxItems":1})"},
      {R"({"maxItems":2})", R"({"type":"array","minItems":3})"},
      {R"({"minProperties":2})", R"({"type":"object","maxProperties":1})"},
      {R"({"maxProperties":2})", R"({"type":"object","minProperties":3})"},
      {R"({"minLength":0})", "false"},
      {R"({"minItems":0})", "false"},
      {R"({"minProperties":0})", "false"}};
  for (const auto& [bound, other] : kBounds) EXPECT_EQ(contrary(bound), other) << bound;
}

TEST(SchemaNegation, ABoundThatIsNoNumberHasNoContrary) {
  for (const char* keyword :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
        "minItems", "maxItems", "minProperties", "maxProperties"})
    for (const char* value : {"\"2\"", "null", "[2]", "true"})
      EXPECT_EQ(contrary(concat("{\"", keyword, "\":", value, "}")), "nothing") << keyword << value;
}

TEST(SchemaNegation, EveryHolderOfSchemasIsALevel) {
  for (const std::string_view holder :
       {R"({"items":%})", R"({"contains":%})", R"({"properties":{"a":%}})", R"({"allOf":[%]})",
        R"({"anyOf":[%]})", R"({"if":%,"then":false})", R"({"if":true,"then":%})",
        R"({"if":true,"then":true,"else":%})"})
    for (const int levels : {12, 13}) {
      std::string schema = R"({"type":"null"})";
      for (int i = 0; i < levels; ++i)
        schema = std::string(holder).replace(holder.find('%'), 1, schema);
      EXPECT_EQ(contrary(schema) != "nothing", levels == 12) << holder << levels;
    }
}

}  // namespace
}  // namespace nibble
