// References by address become pointers from the root. That they mean what `jsonschema` takes them
// for is tested by tests/serve/schema_suite.py.
#include "grammar/schema_addresses.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "grammar/schema_pointer.h"

namespace nibble {
namespace {

/// A schema whose property `v` is a reference, beside other members.
std::string referring(const std::string& reference, const std::string& members) {
  return concat(R"({"properties":{"v":{"$ref":")", reference, R"("}},)", members, "}");
}

/// The pointer that the reference of `v` becomes, or the message of the refusal.
std::string becomes(const std::string& reference, const std::string& members) {
  const auto made = with_pointers(parse_json(referring(reference, members), "a schema").value());
  if (!made.ok()) return made.error().message;
  return made.value().find("properties")->find("v")->find("$ref")->as_string();
}

TEST(SchemaAddresses, ReferencesAreResolvedAgainstTheirBase) {
  const std::string inner = R"("$defs":{"a":{"$id":"../c/a.json","$anchor":"n"}})";
  const std::string named = concat(R"("$id":"http://h/b/r.json",)", inner);
  const std::pair<const char*, const char*> kCases[] = {
      {"#", "#"},
      {"", "#"},
      {"#/$defs/a", "#/$defs/a"},
      {"r.json", "#"},
      {"./r.json", "#"},
      {"/b/r.json", "#"},
      {"//h/b/r.json#/$defs/a", "#/$defs/a"},
      {"//h/b/x/../r.json", "#"},
      {"http://h/b/x/../r.json", "#"},
      {"../c/a.json", "#/$defs/a"},
      {"/c/a.json#n", "#/$defs/a"},
      {"http://h/c/a.json", "#/$defs/a"},
      // Other documents, for others to refuse.
      {"http://h/c/a.json?q", "http://h/c/a.json?q"},
      {"https://h/c/a.json", "https://h/c/a.json"},
      {"a.json", "a.json"},
      {"#n", "#n"},
  };
  for (const auto& [reference, pointer] : kCases)
    EXPECT_EQ(becomes(reference, named), pointer) << reference;
}

TEST(SchemaAddresses, NamesMayHoldWhatPointersAndFragmentsEscape) {
  const std::string members = R"("$anchor":"r","$defs":{"a/b~c%d":{"$anchor":"n"}})";
  EXPECT_EQ(becomes("#n", members), "#/$defs/a~1b~0c%25d");
  EXPECT_EQ(becomes("#/$defs/a~1b~0c%25d", members), "#/$defs/a~1b~0c%25d");
  EXPECT_EQ(becomes("#/%24defs/a~1b%7E0c%25d", members), "#/$defs/a~1b~0c%25d");
}

TEST(SchemaAddresses, WhatHasNoAddressesIsLeftAlone) {
  for (const char* text : {R"({"$ref":"#/x-defs/a","x-defs":{"a":{}}})",
                           R"({"$id":"http://h/r","$ref":"#/examples/0","examples":[{}]})",
                           R"({"enum":[{"$id":"a","$ref":"b"}]})"}) {
    const Json schema = parse_json(text, "a schema").value();
    const auto made = with_pointers(schema);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made.value().dump(), schema.dump());
  }
}

TEST(SchemaAddresses, RefusesWhatIsNotOnePlaceForSure) {
  const auto refused = [](const std::string& reference, const std::string& members,
                          std::string_view words) {
    const std::string why = becomes(reference, members);
    EXPECT_NE(why.find(words), std::string::npos) << why;
  };
  refused("a", R"("$defs":{"a":{"$id":"a"},"b":{"$id":"a"}})",
          "the schema at #/properties/v/$ref: expected an address that one schema has");
  refused("a#/enum/0", R"("$defs":{"a":{"$id":"a","enum":[{"$ref":"#"}]}})",
          "the schema at #/properties/v/$ref: expected a reference to a schema");
  refused("#",
          R"("allOf":[{"$id":"http://h/a","$ref":"b"}],)"
          R"("$defs":{"b":{"$id":"b"},"c":{"$id":"http://h/b"}})",
          "the schema at #/allOf/0/$id: expected no address beside a reference");
}

TEST(SchemaAddresses, APointerLeadsToEachItemOfAList) {
  std::string items;
  for (int i = 0; i < 120; ++i) items += concat(i > 0 ? "," : "", R"({"const":)", i, "}");
  const Json schema = parse_json(concat(R"({"anyOf":[)", items, "]}"), "a schema").value();
  const auto& list = schema.find("anyOf")->as_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const PointedAt found = pointed_at(schema, concat("/anyOf/", i));
    EXPECT_EQ(found.value, &list[i]) << i;
    EXPECT_TRUE(found.is_schema) << i;
  }
  for (const char* none : {"/anyOf/120", "/anyOf/", "/anyOf/-1", "/anyOf/1a", "/anyOf/:"})
    EXPECT_EQ(pointed_at(schema, none).value, nullptr) << none;
}

}  // namespace
}  // namespace nibble
