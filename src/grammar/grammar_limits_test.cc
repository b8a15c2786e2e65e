// The limits of what a structure may be, and of the cache of compiled structures. Those of memory
// and time are in structure_process_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

TEST(Grammar, LimitsHoldExactlyAtTheirBound) {
  GrammarCompiler limited(
      vocabulary,
      {.text_bytes_max = 400, .choices_max = 6, .schema = {.depth_max = 6, .nodes_max = 12}});
  const auto nested = [](int depth) {
    std::string text = R"({"type":"string"})";
    for (int i = 1; i < depth; ++i) text = concat(R"({"type":"array","items":)", text, "}");
    return schema(text);
  };
  const auto wide = [](int nodes) {
    std::string members;
    for (int i = 1; i < nodes; ++i) members += concat(i > 1 ? "," : "", "\"p", i, "\":{}");
    return schema(concat(R"({"type":"object","properties":{)", members, "}}"));
  };
  const auto long_text = [](int bytes) {
    return GrammarSource{.kind = GrammarSource::Kind::regex,
                         .text = std::string(static_cast<size_t>(bytes), 'a')};
  };
  const auto many = [](int count) {
    GrammarSource source{.kind = GrammarSource::Kind::choice};
    for (int i = 0; i < count; ++i) source.choices.push_back(concat("c", i));
    return source;
  };
  const auto expect = [&](int bound, const auto& source_of) {
    for (const int used : {bound - 1, bound}) {
      const auto taken = limited.compile(source_of(used));
      EXPECT_TRUE(taken.ok()) << used << ": " << taken.error().message;
    }
    const auto refused = limited.compile(source_of(bound + 1));
    ASSERT_FALSE(refused.ok()) << bound;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(concat(bound)), std::string::npos)
        << refused.error().message;
  };
  expect(6, nested);
  expect(12, wide);
  expect(400, long_text);
  expect(6, many);
}

TEST(Grammar, RefusesWhatNoTokenMayBegin) {
  GrammarCompiler without_z([] {
    GrammarCompiler::Vocabulary made = vocabulary();
    made.tokens['z'].clear();
    return made;
  });
  const auto compiled = [&](const char* text) {
    return without_z.compile({.kind = GrammarSource::Kind::regex, .text = text});
  };
  EXPECT_TRUE(compiled("az?").ok());
  const auto refused = compiled("za?");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("no token of this model"), std::string::npos);
}

TEST(Grammar, WhatIsTooCostlyIsCounted) {
  GrammarCompiler limited(vocabulary, {.looks_max = 30000});
  const auto text_of = [](int characters) {
    return schema(concat(R"({"type":"string","maxLength":)", characters, "}"));
  };
  const auto refused = limited.compile(text_of(60));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("at most 30000 looks"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(limited.compile(text_of(60)).error().message, refused.error().message);
  EXPECT_TRUE(limited.compile(text_of(10)).ok());
}

/// An innocent structure is compiled beside costly ones of other threads.
TEST(Grammar, ThreadsCompileBesideEachOther) {
  GrammarCompiler shared(vocabulary);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&shared, i] {
      for (int k = 0; k < 20; ++k) {
        const auto made = shared.compile(schema(
            concat(R"({"type":"array","items":{"type":"string"},"maxItems":)", 2 + i + k, "}")));
        EXPECT_TRUE(made.ok()) << made.error().message;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Grammar, TheCacheHoldsItsBytesAndNoMore) {
  using Sources = std::vector<GrammarSource>;
  const auto keeps_all = [](size_t bytes, const Sources& sources) {
    GrammarCompiler limited(vocabulary, {.cache_bytes_max = bytes});
    std::vector<std::shared_ptr<const Grammar>> made;
    for (const GrammarSource& each : sources) made.push_back(limited.compile(each).value());
    return limited.compile(sources.front()).value() == made.front();
  };
  const auto bytes_of = [&](const Sources& sources) {  // the least that keeps them
    size_t too_few = 0, enough = size_t{1} << 20;
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      (keeps_all(middle, sources) ? enough : too_few) = middle;
    }
    return enough;
  };
  const Sources one = {{.kind = GrammarSource::Kind::choice, .choices = {"yes"}}};
  const Sources other = {{.kind = GrammarSource::Kind::choice, .choices = {"no", "never"}}};
  const size_t both = bytes_of(one) + bytes_of(other);
  EXPECT_FALSE(keeps_all(both - 1, {one[0], other[0]}));
  EXPECT_TRUE(keeps_all(both, {one[0], other[0]}));
  EXPECT_TRUE(keeps_all(both + 1, {one[0], other[0]}));
}

TEST(Grammar, TheCacheForgetsWhatWasUsedLongestAgo) {
  const auto choice = [](const char* word) {
    return GrammarSource{.kind = GrammarSource::Kind::choice, .choices = {word}};
  };
  const auto limited = [](size_t bytes) {
    return std::make_unique<GrammarCompiler>(vocabulary, GrammarLimits{.cache_bytes_max = bytes});
  };
  const auto keeps = [](GrammarCompiler& compiler, const GrammarSource& first,
                        const GrammarSource& then) {
    const auto made = compiler.compile(first).value();
    compiler.compile(then).value();
    return compiler.compile(first).value() == made;
  };
  // Room for two of three that are equally large.
  size_t bytes = 1024;
  while (!keeps(*limited(bytes), choice("aa"), choice("bb"))) bytes += bytes / 8;
  const auto compiler = limited(bytes);
  const auto oldest = compiler->compile(choice("aa")).value();
  const auto unused = compiler->compile(choice("bb")).value();
  EXPECT_EQ(compiler->compile(choice("aa")).value(), oldest);
  compiler->compile(choice("cc")).value();
  EXPECT_EQ(compiler->compile(choice("aa")).value(), oldest);
  EXPECT_NE(compiler->compile(choice("bb")).value(), unused);
}

/// In calls a name stands before a '>', in JSON texts it is quoted.
TEST(Grammar, NamesWithSignsOfCallsAreForJsonAlone) {
  GrammarCompiler compiler(vocabulary);
  for (const char* name : {"a>b", R"(a\nb)"}) {
    const std::string text = concat(R"({"type":"object","properties":{")", name, R"(":{}}})");
    const auto json = compiler.compile(schema(text));
    EXPECT_TRUE(json.ok()) << json.error().message;
    const auto call =
        compiler.compile({.kind = GrammarSource::Kind::tool_calls,
                          .tools = {{.name = "f", .parameters = parse_json(text, "t").value()}},
                          .tool_begin = kToolBegin,
                          .tool_end = kToolEnd});
    ASSERT_FALSE(call.ok()) << name;
    EXPECT_NE(call.error().message.find("a name without '>' and line breaks"), std::string::npos)
        << call.error().message;
  }
}

}  // namespace
}  // namespace nibble
