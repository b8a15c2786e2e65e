// The fixed set is well formed, and decisions are told apart as people would.
#include "eval/canary.h"

#include <gtest/gtest.h>

#include <set>

#include "eval/task_check.h"

namespace nibble {
namespace {

std::vector<TaskItem> fixed_set() {
  const auto items = parse_tasks(builtin_canary().front().text, "the canary");
  CHECK(items.ok(), items.error().message);
  return items.value();
}

TEST(Canary, TheFixedSetHasEveryKind) {
  std::set<std::string> kinds;
  for (const TaskItem& item : fixed_set()) kinds.insert(item.task);
  EXPECT_EQ(kinds, (std::set<std::string>{"date", "discount-cs", "discount-en", "enum", "id",
                                          "json", "tool"}));
}

TaskItem item_of(Check check) {
  TaskItem item;
  item.check = check;
  return item;
}

TEST(Canary, SameDecisionsHaveTheSameText) {
  const auto said = [](Check check, std::string content) {
    return decision_of(item_of(check), {.content = std::move(content)});
  };
  EXPECT_EQ(said(Check::letter, "B"), said(Check::letter, "The answer is **B**."));
  EXPECT_NE(said(Check::letter, "B"), said(Check::letter, "A"));
  EXPECT_EQ(said(Check::exact, " 2026-01-02\n"), said(Check::exact, "2026-01-02"));
  EXPECT_NE(said(Check::exact, "2026-01-02"), said(Check::exact, "2026-01-03"));
  EXPECT_EQ(said(Check::json, R"({"a":1,"b":[{"d":2.0,"c":null}]})"),
            said(Check::json, R"( {"b": [{"c": null, "d": 2}], "a": 1} )"));
  EXPECT_NE(said(Check::json, R"({"a":1})"), said(Check::json, R"({"a":true})"));
  EXPECT_NE(said(Check::json, R"({"a":1})"), said(Check::json, R"({"a":1)"));
  const auto call = [](std::string name, std::string arguments) {
    return decision_of(item_of(Check::tool_call), {.calls = {{name, arguments}}});
  };
  EXPECT_EQ(call("f", R"({"a":1,"b":2})"), call("f", R"({"b":2.0,"a":1})"));
  EXPECT_NE(call("f", "{}"), call("g", "{}"));
  EXPECT_NE(call("f", "{}"), said(Check::tool_call, "f"));
}

TEST(Canary, StructureIsWhatHasNoLetters) {
  for (const char* text : {"{", "\"", "\":", "}}", "\n", ", ", " [", "]"})
    EXPECT_TRUE(is_structural(text)) << text;
  for (const char* text : {"", "a", "\"a", "1", "}é", "\xc3"}) EXPECT_FALSE(is_structural(text));
}

}  // namespace
}  // namespace nibble
