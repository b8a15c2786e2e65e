// How many schemas may be inside each other, and that those beside each other do not count.
#include <gtest/gtest.h>

#include "grammar/schema_conditions.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_grammar.h"
#include "grammar/schema_negation.h"

namespace nibble {
namespace {

TEST(SchemaLevels, AContraryHasAtMostTwelveLevels) {
  const auto has_contrary = [](int levels) {
    Json schema = parse_json(R"({"const":1})", "schema").value();
    for (int i = 0; i < levels; ++i)
      schema = json_object({{"allOf", Json(Json::Array{std::move(schema)})}});
    return negated(schema, schema).has_value();
  };
  EXPECT_TRUE(has_contrary(12));
  EXPECT_FALSE(has_contrary(13));
}

/// Each of the schemas leads to the next in two steps; 64 steps are looked at.
TEST(SchemaLevels, AValueIsFollowedThroughThirtyTwoSchemas) {
  const auto is_valid = [](int count, int value) {
    std::string schemas = concat("\"s", count - 1, R"(":{"type":"integer","minimum":3})");
    for (int i = 0; i < count - 1; ++i)
      schemas += concat(",\"s", i, R"(":{"allOf":[{"$ref":"#/$defs/s)", i + 1, R"("}]})");
    const Json schema =
        parse_json(concat(R"({"$ref":"#/$defs/s0","$defs":{)", schemas, "}}"), "schema").value();
    return SchemaFacts(schema).valid({&schema, ""}, Json(value));
  };
  EXPECT_TRUE(is_valid(32, 3).value());
  EXPECT_FALSE(is_valid(32, 2).value());
  EXPECT_FALSE(is_valid(33, 3).ok());
}

/// Levels count where one is inside the other, not beside it.
TEST(SchemaLevels, HaveMoreThanTwoHundredSchemasBesideEachOther) {
  std::string properties;
  for (int i = 0; i < 250; ++i)
    properties += concat(i == 0 ? "" : ",", "\"p", i, R"(":{"type":"integer","minimum":)", i, "}");
  const std::string schema = concat(R"({"type":"object","properties":{)", properties, "}}");
  const auto made = schema_grammar(parse_json(schema, "schema").value(), 3);
  EXPECT_TRUE(made.ok()) << made.error().message;
}

/// The schema itself is one of them.
TEST(SchemaLevels, HaveAtMostTwentyThousandSchemasInAll) {
  const auto told = [](size_t schemas) {
    const Json each{Json::Object{}};
    const Json schema = json_object({{"anyOf", Json(Json::Array(schemas - 1, each))}});
    const auto made = without_conditions(schema);
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(told(20000), "");
  EXPECT_NE(told(20001).find("at most 20000 schemas"), std::string::npos) << told(20001);
}

}  // namespace
}  // namespace nibble
