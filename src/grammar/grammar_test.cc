// The answers that each kind of structure allows, over a vocabulary of bytes, a few longer tokens
// and tags; what is refused, and where.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "grammar/grammar_compiler.h"
#include "grammar/schema_check.h"
#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

GrammarCompiler& compiler() {
  static GrammarCompiler made(vocabulary);
  return made;
}

using Bits = std::vector<uint32_t>;
constexpr size_t kWords = (kVocab + 31) / 32;

bool allowed(TokenConstraint& constraint, int32_t token, std::span<const int32_t> drafted = {}) {
  Bits bits(kWords, ~0U);
  constraint.mask(drafted, bits);
  return (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0;
}

std::vector<int32_t> ids(const std::string& text) {
  std::vector<int32_t> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

/// True if `said`, token by token, passes the masks and may end there.
bool passes(const GrammarSource& source, const std::vector<int32_t>& said) {
  const auto constraint = make_grammar_constraint(compiler().compile(source).value(), -1);
  for (const int32_t token : said) {
    if (!allowed(*constraint, token)) return false;
    EXPECT_EQ(constraint->accept({&token, 1}), std::nullopt);
  }
  return allowed(*constraint, kEnd);
}
bool passes(const GrammarSource& source, const std::string& text) {
  return passes(source, ids(text));
}

TEST(Grammar, JsonSchema) {
  EXPECT_TRUE(passes(schema(kPerson), R"({"name": "Ada", "age": 36})"));
  EXPECT_TRUE(passes(schema(kPerson), "{\n  \"name\":\"\xC3\x89lu\",\"age\":-3}"));
  EXPECT_TRUE(passes(schema(kPerson), "{\"name\":\"\",\"age\":0}"));
  EXPECT_FALSE(passes(schema(kPerson), R"({"name": "Ada"})"));
  EXPECT_FALSE(passes(schema(kPerson), R"({"name": "Ada", "age": "36"})"));
  EXPECT_FALSE(passes(schema(kPerson), R"({"name": "Ada", "age": 3.5})"));
  EXPECT_FALSE(passes(schema(kPerson), R"({"name": "Ada", "age": 36} yes)"));
  EXPECT_FALSE(passes(schema(kPerson), "Sure: {"));
  std::vector<int32_t> longer = {260};
  for (const int32_t id : ids("name")) longer.push_back(id);
  longer.push_back(261);
  for (const int32_t id : ids("\"x\",\"age\":1}")) longer.push_back(id);
  EXPECT_TRUE(passes(schema(kPerson), longer));
}

TEST(Grammar, NoMoreThanTwentyFourSpacesInARow) {
  const auto spaced = [](size_t count) {
    return concat("{", std::string(count, ' '), R"("name":"","age":1})");
  };
  EXPECT_TRUE(passes(schema(kPerson), spaced(24)));
  EXPECT_FALSE(passes(schema(kPerson), spaced(25)));
}

TEST(Grammar, OtherKinds) {
  const GrammarSource object{.kind = GrammarSource::Kind::json_object};
  EXPECT_TRUE(passes(object, R"({"a": [1, {"b": null}], "c": "d"})"));
  EXPECT_FALSE(passes(object, R"([1])"));
  const GrammarSource regex{.kind = GrammarSource::Kind::regex, .text = "[A-Z]{2}-[0-9]+"};
  EXPECT_TRUE(passes(regex, "AB-123"));
  EXPECT_FALSE(passes(regex, "AB-"));
  const GrammarSource choice{.kind = GrammarSource::Kind::choice,
                             .choices = {"yes", "no", "\"q\""}};
  EXPECT_TRUE(passes(choice, "no"));
  EXPECT_TRUE(passes(choice, "\"q\""));
  EXPECT_FALSE(passes(choice, "maybe"));
  const GrammarSource ebnf{.kind = GrammarSource::Kind::ebnf,
                           .text = "root ::= sum\nsum ::= [0-9]+ (\"+\" sum)?"};
  EXPECT_TRUE(passes(ebnf, "1+22+333"));
  EXPECT_FALSE(passes(ebnf, "1+"));
}

GrammarSource calls(bool parallel) {
  GrammarSource source{.kind = GrammarSource::Kind::tool_calls,
                       .parallel_calls = parallel,
                       .tool_begin = kToolBegin,
                       .tool_end = kToolEnd};
  const char* weather = R"({"type":"object","properties":{"at":{"type":"string"},
      "days":{"type":"integer"}},"required":["at"]})";
  source.tools = {{.name = "weather", .parameters = parse_json(weather, "t").value()},
                  {.name = "now", .parameters = {}}};
  return source;
}

std::vector<int32_t> call(const std::string& inside) {
  std::vector<int32_t> said = {kToolBegin};
  for (const int32_t id : ids(inside)) said.push_back(id);
  said.push_back(kToolEnd);
  return said;
}

TEST(Grammar, ToolCallsByTagId) {
  const auto one = call(
      "\n<function=weather>\n<parameter=at>\nRome\n</parameter>\n<parameter=days>\n3\n</"
      "parameter>\n"
      "</function>\n");
  EXPECT_TRUE(passes(calls(false), one));
  EXPECT_TRUE(passes(calls(false), call("\n<function=now>\n</function>\n")));
  EXPECT_FALSE(passes(calls(false), call("\n<function=other>\n\n</function>\n")));
  EXPECT_FALSE(passes(calls(false), call("\n<function=weather>\n<parameter=days>\n3\n</parameter>\n"
                                         "</function>\n")));  // `at` is required
  EXPECT_FALSE(passes(calls(false), "<tool_call>"));          // the text of the tag is no tag
  EXPECT_FALSE(passes(calls(false), ids("")));
  std::vector<int32_t> two = one;
  two.push_back('\n');
  two.insert(two.end(), one.begin(), one.end());
  EXPECT_TRUE(passes(calls(true), two));
  EXPECT_FALSE(passes(calls(false), two));
}

TEST(Grammar, StringsOfALengthEndWithTheirParameter) {
  const auto passes_as = [&](const char* limits, const std::string& value) {
    GrammarSource source = calls(false);
    const std::string schema =
        concat(R"({"type":"object","properties":{"at":{"type":"string",)", limits,
               R"(}},"required":["at"],"additionalProperties":false})");
    source.tools = {{.name = "f", .parameters = parse_json(schema, "t").value()}};
    return passes(source, call(concat("\n<function=f>\n<parameter=at>\n", value,
                                      "\n</parameter>\n</function>\n")));
  };
  EXPECT_TRUE(passes_as(R"("maxLength":40)", "Rome"));
  EXPECT_TRUE(passes_as(R"("maxLength":4)", "Rome"));
  EXPECT_FALSE(passes_as(R"("maxLength":3)", "Rome"));
  EXPECT_TRUE(passes_as(R"("maxLength":3)", ""));
  EXPECT_FALSE(passes_as(R"("maxLength":40)", "a\n</parameter>\n<parameter=b>\n1"));
  EXPECT_FALSE(passes_as(R"("maxLength":40)", "a<b"));
  for (const char* limits :
       {R"("minLength":1,"maxLength":1)", R"("minLength":1,"maxLength":9)", R"("minLength":1)"}) {
    EXPECT_TRUE(passes_as(limits, "a")) << limits;
    EXPECT_FALSE(passes_as(limits, "")) << limits;
    EXPECT_FALSE(passes_as(limits, " \n ")) << limits;
  }
  EXPECT_TRUE(passes_as(R"("minLength":2)", "a < b\n<p>c</p></div>d"));
  EXPECT_FALSE(passes_as(R"("minLength":2)", "ab\n</parameter>\n<parameter=b>\n1"));
  EXPECT_TRUE(passes_as(R"("minLength":3,"maxLength":5)", "a b"));
  EXPECT_FALSE(passes_as(R"("minLength":3,"maxLength":5)", "ab"));
  EXPECT_FALSE(passes_as(R"("minLength":3,"maxLength":5)", "abcdef"));
}

TEST(Grammar, NoTagStandsInAParameter) {
  const auto constraint = make_grammar_constraint(compiler().compile(calls(false)).value(), -1);
  std::vector<int32_t> said = call("\n<function=weather>\n<parameter=at>\nRo");
  said.pop_back();
  EXPECT_EQ(constraint->accept(said), std::nullopt);
  EXPECT_TRUE(allowed(*constraint, 'm'));
  EXPECT_FALSE(allowed(*constraint, kToolEnd));
  EXPECT_FALSE(allowed(*constraint, kToolBegin));
}

TEST(Grammar, FreeTextWithSoundCalls) {
  GrammarSource source = calls(true);
  source.kind = GrammarSource::Kind::free_calls;
  EXPECT_TRUE(passes(source, "no call at all: {<tool"));
  std::vector<int32_t> said = ids("I look.");
  for (const int32_t id :
       call("\n<function=weather>\n<parameter=at>\nRome\n</parameter>\n</function>\n"))
    said.push_back(id);
  EXPECT_TRUE(passes(source, said));
  const auto spoken = ids("\nAnd more.");
  said.insert(said.end(), spoken.begin(), spoken.end());
  EXPECT_TRUE(passes(source, said));
  EXPECT_FALSE(passes(source, call("\n<function=weather>\n</function>\n")));
}

TEST(Grammar, BeginsAfterThinking) {
  const auto constraint =
      make_grammar_constraint(compiler().compile(schema(kPerson)).value(), kThinkEnd);
  for (const int32_t token : ids("let me see")) {
    EXPECT_TRUE(allowed(*constraint, token));
    EXPECT_EQ(constraint->accept({&token, 1}), std::nullopt);
  }
  const int32_t end[] = {kThinkEnd};
  EXPECT_FALSE(allowed(*constraint, 'S', end));  // a draft that ends thinking
  EXPECT_TRUE(allowed(*constraint, '{', end));
  EXPECT_TRUE(allowed(*constraint, 'S'));
  EXPECT_EQ(constraint->accept(end), std::nullopt);
  EXPECT_FALSE(allowed(*constraint, 'S'));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(allowed(*constraint, '\n'));
    const int32_t line = '\n';
    EXPECT_EQ(constraint->accept({&line, 1}), std::nullopt);
  }
  EXPECT_TRUE(allowed(*constraint, '{'));
  EXPECT_FALSE(allowed(*constraint, '\n'));
  constraint->rollback(3);
  EXPECT_TRUE(allowed(*constraint, 'S'));
}

/// Random walks that roll back and look ahead give the masks of a walk that never did.
TEST(Grammar, DraftsAndRollbacksLeaveNoTrace) {
  std::mt19937 random(3);
  const auto grammar = compiler().compile(schema(kPerson)).value();
  for (int walk = 0; walk < 30; ++walk) {
    const auto plain = make_grammar_constraint(grammar, -1);
    const auto tried = make_grammar_constraint(grammar, -1);
    for (int step = 0; step < 60; ++step) {
      Bits expected(kWords, ~0U);
      plain->mask({}, expected);
      Bits found(kWords, ~0U);
      tried->mask({}, found);
      ASSERT_EQ(found, expected) << "walk " << walk << ", step " << step;
      std::vector<int32_t> may;
      for (int32_t token = 0; token < kVocab; ++token)
        if ((expected[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0)
          may.push_back(token);
      ASSERT_FALSE(may.empty());
      const int32_t token = may[random() % may.size()];
      if (token == kEnd) break;
      const int32_t wrong = may[random() % may.size()];
      if (wrong != kEnd) {
        Bits ahead(kWords, ~0U);
        tried->mask({&wrong, 1}, ahead);
        EXPECT_EQ(tried->accept({&wrong, 1}), std::nullopt);
        tried->rollback(1);
      }
      EXPECT_EQ(plain->accept({&token, 1}), std::nullopt);
      EXPECT_EQ(tried->accept({&token, 1}), std::nullopt);
    }
  }
}

/// The grammar rules nothing that follows the end of an answer.
TEST(Grammar, ADraftedEndIsFollowedByAnything) {
  const auto constraint = make_grammar_constraint(compiler().compile(schema(kPerson)).value(), -1);
  for (const int32_t token : ids(R"({"name": "A", "age": 1})"))
    ASSERT_EQ(constraint->accept({&token, 1}), std::nullopt);
  EXPECT_FALSE(allowed(*constraint, 'x'));
  EXPECT_TRUE(allowed(*constraint, kEnd));
  const std::vector<int32_t> drafted = {kEnd, 'x'};
  for (size_t count = 1; count <= drafted.size(); ++count) {
    Bits bits(kWords, ~0U);
    EXPECT_EQ(constraint->mask(std::span(drafted).first(count), bits),
              TokenConstraint::MaskState::open)
        << count;
    EXPECT_EQ(bits, Bits(kWords, ~0U)) << count;
  }
  EXPECT_FALSE(allowed(*constraint, 'x'));
}

TEST(Grammar, NamesHaveTheirLengths) {
  const auto lengths = schema(R"({"type":"object","propertyNames":{"minLength":2,"maxLength":3}})");
  for (const char* name : {"ab", "abc", "\u00e9\u00e9"})
    EXPECT_TRUE(passes(lengths, concat("{\"", name, "\": 1}"))) << name;
  for (const char* name : {"", "a", "abcd"})
    EXPECT_FALSE(passes(lengths, concat("{\"", name, "\": 1}"))) << name;
}

/// Looking past drafts that the grammar refuses, at any place in them, moves nothing.
TEST(Grammar, RefusedDraftsLeaveNoTrace) {
  const auto constraint = make_grammar_constraint(compiler().compile(schema(kPerson)).value(), -1);
  const std::vector<int32_t> said = ids(R"({"name": "A)");
  const std::vector<std::string> drafts = {"}", "}}", "\"}", "\", }", "\", \"age\": x1"};
  const auto mask = [&](std::span<const int32_t> drafted) {
    Bits bits(kWords, ~0U);
    constraint->mask(drafted, bits);
    return bits;
  };
  for (const int32_t token : said) {
    const Bits before = mask({});
    for (const std::string& draft : drafts) {
      const std::vector<int32_t> drafted = ids(draft);
      for (size_t count = 1; count <= drafted.size(); ++count)
        mask(std::span(drafted).first(count));
      ASSERT_EQ(mask({}), before) << draft << " before " << token;
    }
    ASSERT_EQ(constraint->accept({&token, 1}), std::nullopt);
  }
}

/// Whatever is chosen among what may come, the result parses and is what the schema says.
TEST(Grammar, EveryWalkEndsInTheSchema) {
  std::mt19937 random(5);
  const auto grammar = compiler().compile(schema(kPerson)).value();
  for (int walk = 0; walk < 50; ++walk) {
    const auto constraint = make_grammar_constraint(grammar, -1);
    std::string said;
    for (int step = 0; step < 400; ++step) {
      std::vector<int32_t> may;
      for (int32_t token = 0; token < kVocab; ++token)
        if (allowed(*constraint, token)) may.push_back(token);
      ASSERT_FALSE(may.empty()) << said;
      // Mostly what closes strings and numbers, so that walks end.
      int32_t token = may[random() % may.size()];
      for (const int32_t closing : {kEnd, static_cast<int32_t>('}'), static_cast<int32_t>('"')})
        if (random() % 3 != 0 && std::ranges::find(may, closing) != may.end()) token = closing;
      if (token == kEnd) break;
      EXPECT_EQ(constraint->accept({&token, 1}), std::nullopt);
      said += tokens()[static_cast<size_t>(token)];
    }
    if (!allowed(*constraint, kEnd)) continue;  // long strings
    const auto json = parse_json(said, "the walk");
    ASSERT_TRUE(json.ok()) << json.error().message << "\n" << said;
    EXPECT_TRUE(json.value().find("name")->is_string()) << said;
    EXPECT_TRUE(json.value().find("age")->is_int() || json.value().find("age")->is_double())
        << said;
    EXPECT_EQ(json.value().as_object().size(), 2U) << said;
  }
}

TEST(Grammar, RefusesWithReasons) {
  const auto why = [](const GrammarSource& source) {
    const auto compiled = compiler().compile(source);
    return compiled.ok() ? std::string() : compiled.error().message;
  };
  EXPECT_NE(why(schema("{")).find("the schema is not valid JSON"), std::string::npos);
  EXPECT_NE(why({.kind = GrammarSource::Kind::regex, .text = "(a"}), "");
  EXPECT_NE(why({.kind = GrammarSource::Kind::ebnf, .text = "root ::= other"}), "");
  EXPECT_NE(why({.kind = GrammarSource::Kind::choice}), "");
  EXPECT_NE(why({.kind = GrammarSource::Kind::regex, .text = std::string(70000, 'a')}), "");
  const struct {
    const char* schema;
    const char* place;
  } cases[] = {
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"properties":{"a/b":{"$dynamicRef":"#a"}}})", "#/properties/a~1b/$dynamicRef"},
      {R"({"anyOf":[{"type":"string"},{"$recursiveRef":"#"}]})", "#/anyOf/1/$recursiveRef"},
      {R"({"type":"number","multipleOf":0.12345})", "#/multipleOf"},
      {R"({"type":"string","pattern":"a+","minLength":3000})", "#/minLength"},
      {R"({"type":"string","pattern":"a\\bc"})", "#/pattern"},
      {R"({"type":"string","format":"colour"})", "#/format"},
      {R"({"oneOf":[{"type":"integer","multipleOf":2},{"type":"integer","multipleOf":3}]})",
       "#/oneOf"},
      {R"({"allOf":[]})", "#/allOf"},
      {R"({"$ref":"#"})", "does not lead to itself"},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "something that fulfils it"},
      {R"({"type":"object","additionalProperties":{},"minProperties":2})", "#/minProperties"},
      {R"({"$ref":"http://x/y"})", "#/$ref"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref"},
      {R"({"$ref":"#/default","default":{"anyOf":{}}})", "#/default/anyOf: expected a list"},
      {R"({"items":{"$ref":"#/links/0"},"links":[{"not":7}]})", "#/links/0/not: expected a schema"},
      {R"({"$ref":"#/a/b","a":{"b":{"$ref":"#/c"}},"c":{"then":7}})",
       "#/c/then: expected a schema"},
      {R"({"$ref":"#/a","a":7})", "#/a: expected a schema"},
      {R"({"type":"array","maxItems":5000})", "#/maxItems"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"items":7})", "#/items"},
      {R"(7)", "the schema at #"},
  };
  for (const auto& bad : cases)
    EXPECT_NE(why(schema(bad.schema)).find(bad.place), std::string::npos)
        << bad.schema << ": " << why(schema(bad.schema));
  GrammarSource tools = calls(true);
  tools.tools[0].parameters = parse_json(R"({"type":"object","$dynamicRef":"#a"})", "t").value();
  EXPECT_NE(why(tools).find("function weather"), std::string::npos) << why(tools);
}

TEST(Grammar, RefusesWhatHasNoEnd) {
  using Kind = GrammarSource::Kind;
  const auto refused = [](Kind kind, const char* text) {
    const auto compiled = compiler().compile({.kind = kind, .text = text});
    return !compiled.ok() && compiled.error().message.find("comes to an end") != std::string::npos;
  };
  EXPECT_TRUE(refused(Kind::ebnf, "root ::= root"));
  EXPECT_TRUE(refused(Kind::ebnf, "root ::= a\na ::= \"x\" b\nb ::= \"y\" a | [0-9] b"));
  EXPECT_FALSE(refused(Kind::ebnf, "root ::= a\na ::= \"x\" b\nb ::= \"y\" a | \"z\""));
  EXPECT_FALSE(refused(Kind::ebnf, "root ::= a{0,9}\na ::= \"x\" a"));
  EXPECT_TRUE(refused(Kind::ebnf, "root ::= a{200,900}\na ::= \"x\" a"));
  EXPECT_TRUE(refused(Kind::json_schema,
                      R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"));
  EXPECT_FALSE(refused(Kind::json_schema, R"({"type":"object","properties":{"a":{"$ref":"#"}}})"));
  EXPECT_FALSE(refused(Kind::regex, ""));
}

TEST(Grammar, TakesWhatSchemasSay) {
  for (
      const char* good :
      {R"({"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"object","properties":)"
       R"({"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}}})",
       R"({"type":["string","null"],"description":"d","default":null})",
       R"({"type":"string","enum":["a","b"]})", R"({"const":{"a":1}})",
       R"({"type":"object","additionalProperties":{"type":"integer"}})",
       R"({"type":"string","format":"date-time"})",
       R"({"type":"string","minLength":2,"maxLength":4})",
       R"({"type":"integer","minimum":3,"exclusiveMaximum":9})",
       R"({"type":"array","prefixItems":[{"type":"string"}],"items":false,"uniqueItems":false})",
       R"({"oneOf":[{"type":"string"},{"type":"integer"}]})", R"({"allOf":[{"type":"string"}]})",
       R"({"type":"object","id":"http://a.example/b","links":[{"not":7}],"properties":{)"
       R"("a":{"$ref":"#/definitions/b/items"}},)"
       R"("definitions":{"b":{"items":{"type":"null","readonly":true}}}})",
       R"({"$ref":"#/a/b","a":{"b":{"anyOf":[{"type":"null"},{"type":"array","items":)"
       R"({"$ref":"#/a/b"}}]}}})",
       R"(true)", R"({})"}) {
    const auto compiled = compiler().compile(schema(good));
    EXPECT_TRUE(compiled.ok()) << good << ": " << compiled.error().message;
  }
  EXPECT_TRUE(passes(schema(R"({"type":"string","minLength":2,"maxLength":4})"), "\"abc\""));
  EXPECT_FALSE(passes(schema(R"({"type":"string","minLength":2,"maxLength":4})"), "\"abcde\""));
  EXPECT_FALSE(passes(schema(R"({"type":"integer","minimum":3,"exclusiveMaximum":9})"), "9"));
  const char* annotated = R"({"type":"integer","minimum":3,"propertyOrder":1,"readonly":true})";
  EXPECT_TRUE(passes(schema(annotated), "3"));
  EXPECT_FALSE(passes(schema(annotated), "2"));
}

TEST(Grammar, CompilesOnceAndForgetsTheOldest) {
  const auto first = compiler().compile(schema(kPerson)).value();
  EXPECT_EQ(compiler().compile(schema(kPerson)).value(), first);
  GrammarCompiler small(
      [] {
        return GrammarCompiler::Vocabulary{tokens(), {kEnd}, {kToolBegin, kToolEnd}};
      },
      {.cache_bytes_max = 1});
  const auto once = small.compile(schema(kPerson)).value();
  EXPECT_NE(small.compile(schema(kPerson)).value(), once);
}

TEST(Grammar, AnIgnoredStopEndsTheAnswer) {
  const auto constraint = make_grammar_constraint(
      compiler().compile({.kind = GrammarSource::Kind::choice, .choices = {"no"}}).value(), -1);
  const auto no = ids("no");
  EXPECT_EQ(constraint->accept(no), std::nullopt);
  const int32_t end = kEnd;
  EXPECT_EQ(constraint->accept({&end, 1}), size_t{0});
}

}  // namespace
}  // namespace nibble
