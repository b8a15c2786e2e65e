// Schemas, patterns and formats as the text that xgrammar reads, whole: goldens see what a sample
// of answers would not. tests/serve/schema_suite.py says whether such texts mean the right thing.
#include <gtest/gtest.h>

#include "grammar/schema_addresses.h"
#include "grammar/schema_grammar.h"
#include "grammar/schema_negation.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

const char* const kSchemas[] = {
    "true",
    "false",
    "{}",
    "5",
    R"({"type":"null"})",
    R"({"type":"boolean"})",
    R"({"type":"integer"})",
    R"({"type":"number"})",
    R"({"type":"string"})",
    R"({"type":"array"})",
    R"({"type":"object"})",
    R"({"type":["string","null"]})",
    R"({"type":"odd"})",
    R"({"type":[]})",
    R"({"type":"string","nullable":true})",
    R"({"const":5})",
    R"({"const":{"a":[1,"x"]}})",
    R"({"enum":[1,"a",null,true,[2]]})",
    R"({"enum":[]})",
    R"({"enum":["a",1],"type":"string"})",
    R"({"type":"integer","minimum":0})",
    R"({"type":"integer","minimum":-5,"maximum":17})",
    R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":100})",
    R"({"type":"integer","maximum":-3})",
    R"({"type":"integer","multipleOf":5})",
    R"({"type":"integer","multipleOf":7,"minimum":1,"maximum":50})",
    R"({"type":"number","minimum":0})",
    R"({"type":"number","minimum":-1.5,"maximum":2.25})",
    R"({"type":"number","exclusiveMinimum":0})",
    R"({"type":"number","multipleOf":0.5})",
    R"({"type":"number","multipleOf":0.01})",
    R"({"type":"number","minimum":5,"maximum":4})",
    R"({"type":"string","minLength":2})",
    R"({"type":"string","maxLength":3})",
    R"({"type":"string","minLength":1,"maxLength":3,"pattern":"^a"})",
    R"({"type":"string","pattern":"^[a-c]+$"})",
    R"({"type":"string","format":"date"})",
    R"({"type":"string","format":"uuid","maxLength":5})",
    R"({"type":"string","format":"nope"})",
    R"({"type":"string","contentEncoding":"base64"})",
    R"({"type":"array","items":{"type":"null"}})",
    R"({"type":"array","items":false})",
    R"({"type":"array","minItems":2,"items":{"const":1}})",
    R"({"type":"array","minItems":1,"maxItems":3,"items":{"const":1}})",
    R"({"type":"array","maxItems":0})",
    R"({"type":"array","prefixItems":[{"const":1},{"const":2}]})",
    R"({"type":"array","prefixItems":[{"const":1}],"items":{"const":2},"minItems":2})",
    R"({"type":"array","prefixItems":[{"const":1}],"items":false})",
    R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2}})",
    R"({"type":"array","contains":{"const":1}})",
    R"({"type":"array","contains":{"const":1},"minContains":2,"maxContains":3})",
    R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2]}})",
    R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}}})",
    R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["b"]})",
    R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":false})",
    R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},)"
    R"("required":["a","c"],"additionalProperties":false})",
    R"({"type":"object","additionalProperties":{"type":"integer"}})",
    R"({"type":"object","patternProperties":{"^x":{"const":1}},"additionalProperties":false})",
    R"({"type":"object","propertyNames":{"pattern":"^[a-z]$"}})",
    R"({"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"const":1}})",
    R"({"type":"object","required":["a"]})",
    R"({"type":"object","minProperties":3})",
    R"({"type":"object","properties":{"a":{}},"dependentRequired":{"a":["b"]}})",
    R"({"type":"object","properties":{"a":{"const":1}},"dependentSchemas":)"
    R"({"a":{"required":["b"]}}})",
    R"({"type":"object","dependencies":{"a":["b"]}})",
    R"({"type":"object","properties":{"a":{"const":1}},"unevaluatedProperties":false})",
    R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":false})",
    R"({"anyOf":[{"const":1},{"const":"a"}]})",
    R"({"oneOf":[{"const":1},{"const":2}]})",
    R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":5}]})",
    R"({"allOf":[{"type":"integer"},{"minimum":3}]})",
    R"({"allOf":[{"properties":{"a":{"const":1}}},{"properties":{"b":{"const":2}},)"
    R"("required":["b"]}],"type":"object"})",
    R"({"not":{"type":"string"}})",
    R"({"not":{"const":1},"type":"integer"})",
    R"({"not":{}})",
    R"({"not":{"enum":["a","b"]},"type":"string","maxLength":2})",
    R"({"type":"object","properties":{"a":{"enum":[1,2]}},"if":{"properties":{"a":{"const":1}}},)"
    R"("then":{"required":["b"]},"else":{"required":["c"]}})",
    R"({"type":"object","discriminator":{"propertyName":"k"},"oneOf":[{"properties":)"
    R"({"k":{"const":"x"}},"required":["k"]},{"properties":{"k":{"const":"y"}},)"
    R"("required":["k"]}]})",
    R"({"$ref":"#/$defs/a","$defs":{"a":{"const":1}}})",
    R"({"$ref":"#/definitions/a","definitions":{"a":{"type":"array","items":{"$ref":"#"}}}})",
    R"({"type":"object","properties":{"next":{"$ref":"#"}}})",
    R"({"$ref":"#/nope"})",
    R"({"$ref":"#a","$defs":{"x":{"$anchor":"a","const":2}}})",
    R"({"$id":"http://x/y","$ref":"z","$defs":{"q":{"$id":"z","const":3}}})",
    R"({"oneOf":[{"enum":[1,2]},{"enum":["x",3]}]})",
    R"({"oneOf":[{"enum":[1,2]},{"enum":[2]}]})",
    R"({"oneOf":[{"type":"object","properties":{"k":{"enum":["x","y"]}},"required":["k"]},)"
    R"({"type":"object","properties":{"k":{"enum":["z"]}},"required":["k"]}]})",
    R"({"oneOf":[{"type":"string"},{"enum":[1]}]})",
    R"({"oneOf":[{"const":1},{"type":"integer"}]})",
    R"({"oneOf":[{"type":"array","items":{"const":1},"minItems":1},)"
    R"({"type":"array","maxItems":0}]})",
    R"({"type":"integer","multipleOf":7,"minimum":1,"maximum":6})",
    R"({"type":"string","pattern":"^a$","minLength":2})",
    R"({"type":"number","multipleOf":0.25,"minimum":-1,"maximum":1})",
    R"({"type":"number","multipleOf":3})",
    R"({"type":"number","multipleOf":3,"maximum":10})",
    R"({"type":"number","minimum":0.1,"maximum":0.35})",
    R"({"type":"number","maximum":-0.5})",
    R"({"type":"number","exclusiveMinimum":1,"exclusiveMaximum":1.5})",
    R"({"type":"number","minimum":1e2,"maximum":123.45})",
    R"({"type":"integer","minimum":-105,"maximum":-7,"multipleOf":4})",
    R"({"type":["integer","string"],"minimum":3,"maxLength":1})",
    R"({"not":{"type":"object","required":["a"]},"type":"object","properties":{"a":{"const":1}}})",
    R"({"not":{"type":"integer","minimum":3},"type":"integer"})",
    R"({"not":{"anyOf":[{"type":"string"},{"type":"number"}]}})",
    R"({"not":{"allOf":[{"type":"integer"},{"minimum":3}]},"type":"integer"})",
    R"({"not":{"not":{"const":5}}})",
    R"({"not":{"pattern":"^a"},"type":"string"})",
    R"({"not":{"minLength":2},"type":"string"})",
    R"({"not":{"maxItems":1},"type":"array"})",
    R"({"not":{"required":["a"]},"type":"object","additionalProperties":{"const":1}})",
    R"({"if":{"type":"integer"},"then":{"minimum":5},"else":{"type":"string"}})",
    R"({"type":"object","properties":{"a":false,"b":true},"required":["b"]})",
    R"({"title":"t","description":"d","default":1,"examples":[1],"readOnly":true,"const":1})"};

/// Every grammar has these rules, after its root.
std::string common_rules(int whitespace_max) {
  const std::string text = schema_grammar(Json(true), whitespace_max).value();
  return text.substr(text.find("ws ::="));
}

std::string text_of(const Result<std::string>& grammar, const std::string& common) {
  if (!grammar.ok()) return concat("error: ", grammar.error().message, "\n");
  std::string text = grammar.value();
  const size_t at = text.find(common);
  if (at != std::string::npos) text.replace(at, common.size(), "(and the common rules)\n");
  return text;
}

TEST(SchemaTexts, OfSchemas) {
  std::string all = concat(common_rules(0), common_rules(3));
  for (const char* schema : kSchemas)
    all +=
        concat("==== ", schema, "\n",
               text_of(schema_grammar(parse_json(schema, "schema").value(), 3), common_rules(3)));
  expect_golden_text("grammar/schemas.txt", all);
}

TEST(SchemaTexts, AnAddressIsFollowedWhereverItIs) {
  const Json schema = parse_json(R"({"type":"object","properties":{"a":{"type":"array","items":)"
                                 R"({"$ref":"#x"}}},"$defs":{"q":{"$anchor":"x","const":1}}})",
                                 "schema")
                          .value();
  EXPECT_NE(with_pointers(schema).value().dump().find(R"({"$ref":"#/$defs/q"})"),
            std::string::npos);
}

TEST(SchemaTexts, AContraryNamesEachNumberOnce) {
  const auto contrary = [](const std::string& text) {
    const Json schema = parse_json(text, "schema").value();
    return negated(schema, schema);
  };
  EXPECT_EQ(contrary(R"({"enum":[2,1,2.0]})"), contrary(R"({"enum":[1,2]})"));
  EXPECT_TRUE(contrary(R"({"enum":[1,2]})").has_value());
}

TEST(SchemaTexts, AContraryHasAtMostSixteenParts) {
  const auto has_contrary = [](int parts) {
    Json::Array all;
    for (int i = 0; i < parts; ++i) all.push_back(json_object({{"minimum", Json(i)}}));
    const Json schema = json_object({{"allOf", Json(std::move(all))}});
    return negated(schema, schema).has_value();
  };
  EXPECT_TRUE(has_contrary(16));
  EXPECT_FALSE(has_contrary(17));
}

TEST(SchemaTexts, OfCalls) {
  const std::vector<std::string> kTools[] = {
      {"null"},
      {"true"},
      {"{}", R"({"type":"object","properties":{}})"},
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}})"},
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},)"
       R"("required":["b"],"additionalProperties":false})"},
      {R"({"type":"object","properties":{"a":{"type":["string","null"],"maxLength":3},)"
       R"("b":{"enum":["x","y"]},"c":{"type":"array","items":{"type":"string"}}},)"
       R"("required":["a","b","c"]})"},
      {R"({"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"boolean"}]}}})"},
      {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"const":"q"}}})"},
      {R"({"type":"object","additionalProperties":{"type":"string"},"minProperties":1})"},
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^a+$"}}})"},
      {R"({"type":"string"})"}};
  std::string all;
  for (const auto& schemas : kTools) {
    std::vector<CallableTool> tools;
    for (const std::string& schema : schemas) {
      tools.push_back({concat("tool", tools.size()), parse_json(schema, "schema").value()});
      all += concat("==== ", schema, "\n");
    }
    all += text_of(call_grammar(tools, 3), common_rules(3));
  }
  expect_golden_text("grammar/calls.txt", all);
}

}  // namespace
}  // namespace nibble
