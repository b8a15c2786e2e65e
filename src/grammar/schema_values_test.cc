// Which schemas exclude each other by the numbers that they take, and how deep a value is looked
// at.
#include <gtest/gtest.h>

#include "grammar/schema_facts.h"

namespace nibble {
namespace {

bool apart(const std::string& a, const std::string& b) {
  const Json root(true);
  const Json first = parse_json(a, "a").value();
  const Json second = parse_json(b, "b").value();
  return SchemaFacts(root).apart({{&first, "#/a"}}, {{&second, "#/b"}}).value();
}

/// At a bound of both, one of them has to leave the number out.
TEST(SchemaValues, RangesOfNumbersExcludeEachOther) {
  const struct {
    const char* low;
    const char* high;
    bool excluded;
  } kRanges[] = {{R"("maximum":2)", R"("minimum":3)", true},
                 {R"("maximum":3)", R"("minimum":3)", false},
                 {R"("maximum":4)", R"("minimum":3)", false},
                 {R"("exclusiveMaximum":3)", R"("minimum":3)", true},
                 {R"("exclusiveMaximum":4)", R"("minimum":3)", false},
                 {R"("maximum":3)", R"("exclusiveMinimum":3)", true},
                 {R"("maximum":4)", R"("exclusiveMinimum":3)", false},
                 {R"("exclusiveMaximum":3)", R"("exclusiveMinimum":3)", true},
                 {R"("exclusiveMaximum":4)", R"("exclusiveMinimum":3)", false},
                 {R"("maximum":4,"exclusiveMaximum":2)", R"("minimum":3)", true},
                 {R"("maximum":2)", R"("minimum":1,"exclusiveMinimum":3)", true}};
  for (const char* type : {"integer", "number"})
    for (const auto& [low, high, excluded] : kRanges) {
      const std::string below = concat(R"({"type":")", type, "\",", low, "}");
      const std::string above = concat(R"({"type":")", type, "\",", high, "}");
      EXPECT_EQ(apart(below, above), excluded) << below << above;
      EXPECT_EQ(apart(above, below), excluded) << above << below;
    }
}

TEST(SchemaValues, AreFollowedThroughSixtyFourLevels) {
  const auto checked = [](int levels) {
    Json schema = parse_json(R"({"const":1})", "schema").value();
    for (int i = 0; i < levels; ++i)
      schema = json_object({{"allOf", Json(Json::Array{std::move(schema)})}});
    SchemaFacts facts(schema);
    const auto is_valid = [&](int value) { return facts.valid({&schema, ""}, Json(value)); };
    EXPECT_EQ(is_valid(1).ok(), is_valid(2).ok());
    EXPECT_TRUE(!is_valid(1).ok() || (is_valid(1).value() && !is_valid(2).value()));
    return is_valid(1).ok();
  };
  EXPECT_TRUE(checked(64));
  EXPECT_FALSE(checked(65));
}

}  // namespace
}  // namespace nibble
