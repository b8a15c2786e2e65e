// How many schemas, levels and values a schema may have, however they are held.
#include <gtest/gtest.h>

#include "grammar/schema_check.h"

namespace nibble {
namespace {

std::string refusal_of(const std::string& schema) {
  const Result<void> checked = check_schema(parse_json(schema, "t").value());
  return checked.ok() ? "" : checked.error().message;
}

TEST(SchemaCheckLimits, AnEnumHasItsBound) {
  const auto of = [](int count) {
    std::string values;
    for (int i = 0; i < count; ++i) values += concat(i > 0 ? "," : "", i);
    return refusal_of(concat(R"({"enum":[)", values, "]}"));
  };
  EXPECT_EQ(of(1), "");
  EXPECT_EQ(of(1024), "");
  for (const int count : {0, 1025})
    EXPECT_NE(of(count).find("the schema at #/enum: expected a list of 1 to 1024 values"),
              std::string::npos)
        << of(count);
  EXPECT_NE(refusal_of(R"({"enum":1})"), "");
}

/// A schema is one level below the one that holds it, whatever holds it.
TEST(SchemaCheckLimits, EveryHolderOfSchemasIsALevel) {
  const char* const kHolders[] = {R"({"items":%})",
                                  R"({"items":[{},%]})",
                                  R"({"prefixItems":[%]})",
                                  R"({"anyOf":[{},{},%]})",
                                  R"({"not":%})",
                                  R"({"properties":{"a":%}})",
                                  R"({"$defs":{"a":{},"b":%}})",
                                  R"({"dependentSchemas":{"a":%}})",
                                  R"({"dependencies":{"a":["b"],"c":%}})",
                                  R"({"additionalProperties":%})"};
  for (const std::string_view holder : kHolders)
    for (const int levels : {7, 8, 9}) {
      std::string schema = R"({"type":"null"})";
      for (int i = 1; i < levels; ++i)
        schema = std::string(holder).replace(holder.find('%'), 1, schema);
      const auto checked = check_schema(parse_json(schema, "t").value(), {.depth_max = 8});
      EXPECT_EQ(checked.ok(), levels <= 8) << holder << levels;
      if (!checked.ok()) {
        EXPECT_NE(checked.error().message.find("at most 8 levels"), std::string::npos) << holder;
      }
    }
}

/// So is the target of a reference that no keyword leads to.
TEST(SchemaCheckLimits, WhatAReferenceMakesASchemaIsALevel) {
  const auto chain = [](int length) {
    std::string all = R"("$ref":"#/x0")";
    for (int i = 0; i < length; ++i)
      all +=
          concat(",\"x", i,
                 "\":", i + 1 < length ? concat(R"({"$ref":"#/x)", i + 1, "\"}") : R"({"not":{}})");
    return refusal_of(concat("{", all, "}"));
  };
  EXPECT_EQ(chain(30), "");  // the root, 30 targets and what the last holds
  EXPECT_NE(chain(31).find("at most 32 levels"), std::string::npos) << chain(31);
}

TEST(SchemaCheckLimits, AllSchemasCount) {
  const auto told = [](std::string_view schema, int most) {
    const auto checked = check_schema(parse_json(schema, "t").value(), {.nodes_max = most});
    return checked.ok() ? "" : checked.error().message;
  };
  for (const auto& [schema, nodes] :
       {std::pair(R"({"anyOf":[{},{"not":{}}],"items":[{},true]})", 5),
        std::pair(R"({"properties":{"a":{},"b":{}},"dependencies":{"a":{},"b":["a"]}})", 4),
        std::pair(R"({"$ref":"#/x","x":{"not":{}}})", 3)}) {
    EXPECT_EQ(told(schema, nodes), "") << schema;
    EXPECT_NE(told(schema, nodes - 1).find(concat("at most ", nodes - 1, " schemas in all")),
              std::string::npos)
        << schema;
  }
}

}  // namespace
}  // namespace nibble
