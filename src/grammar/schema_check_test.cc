// The keywords and formats that a schema may use, each by itself, and what is refused by its place.
#include "grammar/schema_check.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

std::string refusal_of(const std::string& schema) {
  const Result<void> checked = check_schema(parse_json(schema, "t").value());
  return checked.ok() ? "" : checked.error().message;
}

TEST(SchemaCheck, TakesEveryKeywordThatIsEnforcedOrSaysNothingOfValues) {
  for (const char* member : {R"("type":"object")",
                             R"("properties":{"a":{}})",
                             R"("required":["a"])",
                             R"("additionalProperties":false)",
                             R"("additionalProperties":{})",
                             R"("patternProperties":{"a":{}})",
                             R"("propertyNames":{})",
                             R"("minProperties":1)",
                             R"("maxProperties":1)",
                             R"("items":{})",
                             R"("items":false)",
                             R"("prefixItems":[{}])",
                             R"("minItems":1)",
                             R"("maxItems":1)",
                             R"("minLength":1)",
                             R"("maxLength":1)",
                             R"("pattern":"a")",
                             R"("format":"date")",
                             R"("minimum":1)",
                             R"("maximum":1)",
                             R"("exclusiveMinimum":1)",
                             R"("exclusiveMaximum":1)",
                             R"("type":"integer","multipleOf":1)",
                             R"("type":"integer","multipleOf":7)",
                             R"("enum":[1])",
                             R"("const":1)",
                             R"("anyOf":[{}])",
                             R"("oneOf":[{}])",
                             R"("allOf":[{}])",
                             R"("$ref":"#")",
                             R"("$defs":{"a":{}})",
                             R"("definitions":{"a":{}})",
                             R"("not":{"type":"null"})",
                             R"("if":{"minimum":1},"then":{},"else":{})",
                             R"("contains":{},"minContains":1,"maxContains":2)",
                             R"("dependentRequired":{"a":["b"]})",
                             R"("dependentSchemas":{"a":{"required":["b"]}})",
                             R"("dependencies":{"a":["b"],"b":{}})",
                             R"("title":"t")",
                             R"("description":"d")",
                             R"("default":1)",
                             R"("examples":[1])",
                             R"("example":1)",
                             R"("deprecated":true)",
                             R"("readOnly":true)",
                             R"("writeOnly":true)",
                             R"("$schema":"s")",
                             R"("$id":"i")",
                             R"("$comment":"c")",
                             R"("strict":true)",
                             R"("type":"string","id":"http://a.example/b")",
                             R"("type":"string","readonly":true)",
                             R"("type":"string","propertyOrder":1)",
                             R"("type":"string","links":[{"rel":"self"}])",
                             R"("type":"string","note":"n")",
                             R"("type":"string","_format":"date")",
                             R"("x-required":true)",
                             R"("type":"string","":1)",
                             R"("type":"string","$default":{"anyOf":{}})"})
    EXPECT_EQ(refusal_of(concat("{", member, "}")), "") << member;
}

TEST(SchemaCheck, TakesEveryFormatOfTheCompiler) {
  for (const char* format :
       {"email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri",
        "uri-reference", "uri-template", "json-pointer", "relative-json-pointer", "idn-email",
        "idn-hostname", "iri", "iri-reference", "regex"})
    EXPECT_EQ(refusal_of(concat(R"({"type":"string","format":")", format, "\"}")), "") << format;
}

TEST(SchemaCheck, RefusesValuesOfTheWrongKindByTheirPlace) {
  const std::pair<const char*, const char*> kRefused[] = {
      {R"({"properties":[]})", "the schema at #/properties: expected an object of schemas"},
      {R"({"$defs":1})", "the schema at #/$defs: expected an object of schemas"},
      {R"({"anyOf":{}})", "the schema at #/anyOf: expected a list of schemas"},
      {R"({"not":1})", "the schema at #/not: expected a schema"},
      {R"({"minContains":1.5})", "the schema at #/minContains: expected a whole number"},
      {R"({"dependentRequired":[]})",
       "the schema at #/dependentRequired: expected an object of names"},
      {R"({"dependentRequired":{"a/b":1}})",
       "the schema at #/dependentRequired/a~1b: expected a list of names"},
      {R"({"dependencies":{"a":["b",1]}})", "the schema at #/dependencies/a: expected a list"},
      {R"({"dependencies":{"a":1}})", "the schema at #/dependencies/a: expected a schema"},
      {R"({"anyOf":[]})", "the schema at #/anyOf: expected a list of schemas"},
  };
  for (const auto& [schema, words] : kRefused)
    EXPECT_NE(refusal_of(schema).find(words), std::string::npos)
        << schema << ": " << refusal_of(schema);
}

TEST(SchemaCheck, RefusesNamesThatAreNearlyKeywords) {
  const std::pair<const char*, const char*> kMeant[] = {
      {"requred", "required"},
      {"minLenght", "minLength"},
      {"maxitems", "maxItems"},
      {"types", "type"},
      {"item", "items"},
      {"definitons", "definitions"},
      {"exclusiveMax", ""},
      {"AnyOf", "anyOf"},
      {"Pattern", "pattern"},
      {"patternProperty", ""},
      {"additionalPropertys", "additionalProperties"},
      {"dependantRequired", "dependentRequired"}};
  for (const auto& [name, keyword] : kMeant) {
    const std::string told =
        refusal_of(concat(R"({"properties":{"a":{"title":"t",")", name, "\":1}}}"));
    if (*keyword == '\0')
      EXPECT_EQ(told, "") << name;
    else
      EXPECT_EQ(told, concat("the schema at #/properties/a/", name,
                             ": expected a keyword of JSON Schema, such as ", keyword,
                             "; a name of your own begins with x-"));
  }
  for (const char* name : {"$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy"})
    EXPECT_EQ(refusal_of(concat("{\"", name, "\":1}")),
              concat("the schema at #/", name,
                     ": expected keywords that are enforced here; this one is not"));
}

TEST(SchemaCheck, RefusesWhatIsNoSchema) {
  const std::string words = ": expected keywords that are enforced here; this one is not";
  EXPECT_EQ(refusal_of(R"({"name":"n","schema":{"type":"object"}})"),
            "the schema at #/name" + words);
  EXPECT_EQ(refusal_of(R"({"properties":{"a":{"schema":{}}}})"),
            "the schema at #/properties/a/schema" + words);
  for (const char* nothing : {"{}", R"({"title":"t","name":"n"})", R"({"x-name":"n"})"})
    EXPECT_EQ(refusal_of(nothing), "") << nothing;
}

/// Before draft 6 an `id` was an address, from which references below it counted.
TEST(SchemaCheck, RefusesReferencesBelowAnOldAddress) {
  const std::string refusal =
      "the schema at #/properties/a/id: expected no address above a reference, which drafts read "
      "differently";
  const auto told = [](std::string_view inner) {
    return refusal_of(concat(R"({"id":"http://a.example/","properties":{"a":{"id":"b",)", inner,
                             R"(},"b":{"$ref":"#/properties/c"},"c":{}}})"));
  };
  EXPECT_EQ(told(R"("$ref":"#/properties/c")"), refusal);
  EXPECT_EQ(told(R"("items":{"$ref":"#"})"), refusal);
  EXPECT_EQ(told(R"("items":{"type":"string","id":"c"})"), "");
}

/// Each keyword with a value that it may have and one that it may not.
TEST(SchemaCheck, KnowsTheKindOfEveryKeywordsValue) {
  const struct {
    std::vector<const char*> keywords;
    std::vector<const char*> taken;
    std::vector<const char*> refused;
  } kKinds[] = {
      {{"additionalProperties", "propertyNames", "additionalItems", "unevaluatedItems",
        "unevaluatedProperties", "contentSchema", "not", "if", "then", "else", "contains"},
       {"{}", "true", "false"},
       {"[]", "1", "\"a\"", "null", "[{}]"}},
      {{"items"}, {"{}", "true", "[{}]", "[{},false]"}, {"[]", "1", "\"a\"", "null", "[1]"}},
      {{"prefixItems", "anyOf", "oneOf", "allOf"},
       {"[{}]", "[{},true]"},
       {"[]", "{}", "1", "null", "[{},1]"}},
      {{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"},
       {"{}", R"({"a":{}})", R"({"a":{},"b":false})"},
       {"[]", "1", "true", "null", R"({"a":1})", R"({"a":{},"b":["a"]})"}},
      {{"dependentRequired"},
       {"{}", R"({"a":[]})", R"({"a":["b","c"]})"},
       {"[]", "1", R"({"a":{}})", R"({"a":["b",1]})", R"({"a":"b"})"}},
      {{"dependencies"},
       {"{}", R"({"a":[]})", R"({"a":["b","c"],"b":{},"c":true})"},
       {"[]", "1", R"({"a":1})", R"({"a":["b",1]})", R"({"a":"b"})"}},
      {{"required"}, {"[]", R"(["a","b"])"}, {"{}", "true", R"(["a",1])", "\"a\""}},
      {{"minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength",
        "minContains", "maxContains"},
       {"0", "1", "2.0", "4096"},
       {"-1", "1.5", "4097", "\"1\"", "null", "[]", "{}", "true"}},
      {{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
       {"3", "0.5", "1e300"},
       {"\"1\"", "null", "true", "[]", "{}"}},
      {{"type", "uniqueItems", "pattern", "format", "contentEncoding", "contentMediaType", "const",
        "$ref"},
       {"\"a\""},
       {}},
      {{"title", "description", "default", "examples", "example", "deprecated", "readOnly",
        "writeOnly", "$schema", "$id", "$comment", "strict", "discriminator", "nullable", "$anchor",
        "$dynamicAnchor"},
       {"1", "\"a\"", "{}"},
       {}},
  };
  for (const auto& kind : kKinds)
    for (const char* keyword : kind.keywords) {
      for (const char* value : kind.taken)
        EXPECT_EQ(refusal_of(concat("{\"", keyword, "\":", value, "}")), "") << keyword << value;
      for (const char* value : kind.refused)
        EXPECT_NE(refusal_of(concat("{\"", keyword, "\":", value, "}"))
                      .find(concat("the schema at #/", keyword)),
                  std::string::npos)
            << keyword << value;
    }
}

}  // namespace
}  // namespace nibble
