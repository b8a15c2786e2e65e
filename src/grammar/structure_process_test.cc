// Structures compiled in processes of their own: the same masks, the limits on memory and time, and
// what happens to a child whose client leaves or that crashes.
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "grammar/test_vocabulary.h"
#include "grammar/test_worker.h"
#include "testing/soon.h"

namespace nibble {
namespace {

using std::chrono::milliseconds;
using testing::soon;

/// Draws an answer, one token at a time; the masks of both are the same at each.
void expect_same(const std::shared_ptr<const Grammar>& one,
                 const std::shared_ptr<const Grammar>& other) {
  std::mt19937 random(7);
  for (int answer = 0; answer < 3; ++answer) {
    const auto first = make_grammar_constraint(one, -1);
    const auto second = make_grammar_constraint(other, -1);
    for (int step = 0; step < 40; ++step) {
      std::vector<uint32_t> bits((kVocab + 31) / 32, ~0U), others = bits;
      ASSERT_EQ(first->mask({}, bits), second->mask({}, others));
      ASSERT_EQ(bits, others);
      std::vector<int32_t> may;
      for (int32_t token = 0; token < kVocab; ++token)
        if ((bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0) may.push_back(token);
      ASSERT_FALSE(may.empty());
      const int32_t token = may[random() % may.size()];
      if (first->accept({&token, 1})) {
        EXPECT_TRUE(second->accept({&token, 1}));
        break;
      }
      ASSERT_FALSE(second->accept({&token, 1}));
    }
  }
}

TEST(StructureProcess, GivesTheMasksThatAreCompiledHere) {
  GrammarCompiler here(vocabulary);
  const auto there = with_worker();
  const Json person = parse_json(kPerson, "a schema").value();
  const GrammarSource sources[] = {
      {.kind = GrammarSource::Kind::json_object},
      schema(kPerson),
      schema(R"({"type":"array","items":{"type":"string","pattern":"^[a-z]{2,5}$"},"maxItems":9})"),
      schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":["object","number"],)"
             R"("additionalProperties":{"$ref":"#/$defs/a"}}}})"),
      regex("(a|bb){1,40}[^c]*"),
      {.kind = GrammarSource::Kind::choice, .choices = {"yes", "no", "\n"}},
      {.kind = GrammarSource::Kind::ebnf, .text = R"(root ::= "a" root "b" | "c")"},
      {.kind = GrammarSource::Kind::tool_calls,
       .tools = {{.name = "f", .parameters = person}, {.name = "g", .parameters = Json()}},
       .tool_begin = kToolBegin,
       .tool_end = kToolEnd},
      {.kind = GrammarSource::Kind::free_calls,
       .tools = {{.name = "f", .parameters = person}},
       .parallel_calls = false,
       .tool_begin = kToolBegin,
       .tool_end = kToolEnd}};
  for (const GrammarSource& source : sources) {
    const auto made = there->compile(source);
    ASSERT_TRUE(made.ok()) << made.error().message;
    expect_same(here.compile(source).value(), made.value());
  }
}

TEST(StructureProcess, RefusesWithTheSameWords) {
  GrammarCompiler here(vocabulary);
  const auto there = with_worker();
  for (const GrammarSource& source :
       {schema(R"({"type":"object","properties":{"a":{"uniqueItems":true}}})"), regex("a("),
        GrammarSource{.kind = GrammarSource::Kind::ebnf, .text = "root ::= root"},
        schema(R"({"type":"string","maxLength":4096,"pattern":"^(a|b)*$"})")}) {
    const auto expected = here.compile(source);
    const auto found = there->compile(source);
    ASSERT_EQ(expected.ok(), found.ok()) << source.text;
    if (expected.ok()) continue;
    EXPECT_EQ(expected.error().message, found.error().message);
    EXPECT_EQ(expected.error().code, found.error().code);
  }
}

/// Patterns of a few bytes each that compile to some hundred kilobytes each.
std::string counted_patterns(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += concat("([", std::string(1, static_cast<char>('a' + i % 24)), "-z]{1,", 60 + i,
                   "}){1,100}");
  return text;
}

TEST(StructureMemory, CompilingHasItsMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has reserved all of its address space before";
#endif
  constexpr size_t kMemory = size_t{16} << 20;
  const auto limited =
      with_worker({.time_max = std::chrono::minutes(2), .memory_bytes_max = kMemory});
  const std::string many = counted_patterns(160);
  std::string properties;
  for (int i = 0; i < 160; ++i)
    properties +=
        concat(i > 0 ? "," : "", "\"p", i, R"(":{"type":"string","pattern":"^)",
               counted_patterns(i + 1).substr(i == 0 ? 0 : counted_patterns(i).size()), "$\"}");
  const GrammarSource sources[] = {
      regex(many),
      {.kind = GrammarSource::Kind::ebnf, .text = concat("root ::= ", many)},
      schema(concat(R"({"type":"object","properties":{)", properties, "}}"))};
  for (const GrammarSource& source : sources) {
    const auto refused = limited->compile(source);
    ASSERT_FALSE(refused.ok()) << source.text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(concat("at most ", kMemory, " bytes")),
              std::string::npos)
        << refused.error().message;
    const auto next = limited->compile(regex("[a-z]{1,100}"));  // it has it all
    EXPECT_TRUE(next.ok()) << next.error().message;
  }
}

/// A structure that takes too long leaves the compiler to the others.
TEST(StructureProcess, CompilingEndsWithItsTime) {
  const auto limited = with_worker({.time_max = milliseconds(500)});
  const auto slow = limited->compile(slow_source());
  ASSERT_FALSE(slow.ok());
  EXPECT_EQ(slow.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(slow.error().message.find("at most 500 ms"), std::string::npos) << slow.error().message;
  EXPECT_TRUE(limited->compile(schema(kPerson)).ok());
}

TEST(StructureProcess, AChildEndsWhenItsClientLeaves) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  std::atomic<bool> left = false;
  Result<std::shared_ptr<const Grammar>> found = std::shared_ptr<const Grammar>();
  std::thread client(
      [&] { found = compiler->compile(slow_source(), [&] { return left.load(); }); });
  EXPECT_TRUE(soon([&] { return children_of(compiler->worker()).size() == 1; }));
  left = true;
  client.join();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(soon([&] { return children_of(compiler->worker()).empty(); }));
}

TEST(StructureProcess, WaitsForTheOneThatAnotherCompiles) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  std::atomic<bool> left = false;
  const auto wait = [&] {
    EXPECT_EQ(compiler->compile(slow_source(), [&] { return left.load(); }).error().code,
              ErrorCode::cancelled);
  };
  std::thread first(wait);
  EXPECT_TRUE(soon([&] { return children_of(compiler->worker()).size() == 1; }));
  std::thread second(wait);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(children_of(compiler->worker()).size(), 1U);
  left = true;
  first.join();
  second.join();
}

TEST(StructureProcess, AChildThatCrashesIsARefusalAndNothingElse) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  std::thread killer([&] {
    EXPECT_TRUE(soon([&] { return children_of(compiler->worker()).size() == 1; }));
    for (const pid_t child : children_of(compiler->worker())) ::kill(child, SIGSEGV);
  });
  const auto found = compiler->compile(slow_source());
  killer.join();
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("cannot be compiled"), std::string::npos)
      << found.error().message;
  EXPECT_TRUE(compiler->compile(regex("a{1,9}")).ok());
}

TEST(StructureProcess, AWorkerThatWasKilledIsStartedAgain) {
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  const pid_t before = compiler->worker();
  ASSERT_GT(before, 0);
  ::kill(before, SIGKILL);
  EXPECT_TRUE(compiler->compile(regex("a{1,9}")).ok());
  EXPECT_NE(compiler->worker(), before);
}

TEST(StructureProcess, AProgramThatCannotRunIsNamed) {
  GrammarCompiler compiler(vocabulary, {}, {"/nonexistent/nibble"});
  const auto found = compiler.compile(schema(kPerson));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::io);
  EXPECT_NE(found.error().message.find("/nonexistent/nibble"), std::string::npos);
}

/// Six that take long, and one that takes a moment: it is compiled before any of the six has
/// ended, however busy the machine is.
TEST(StructureProcess, AnInnocentStructureIsNotHeldUp) {
  const auto compiler = with_worker({.time_max = std::chrono::minutes(2)});
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  std::atomic<bool> left = false;
  std::vector<std::thread> hostile;
  for (int i = 0; i < 6; ++i)
    hostile.emplace_back(
        [&, i] { (void)compiler->compile(slow_source(i), [&] { return left.load(); }); });
  std::vector<pid_t> slow;
  EXPECT_TRUE(soon([&] { return (slow = children_of(compiler->worker())).size() == 6; }));
  EXPECT_TRUE(compiler->compile(regex("(a|b){2,60}")).ok());
  const std::vector<pid_t> now = children_of(compiler->worker());  // and perhaps its own
  for (const pid_t child : slow) EXPECT_NE(std::ranges::find(now, child), now.end());
  left = true;
  for (std::thread& each : hostile) each.join();
}

/// The cache counts what the allocator gave out for it.
TEST(StructureMemory, TheCacheCountsItsMemory) {
  const auto allocated = [] {
    const auto all = mallinfo2();
    return all.uordblks + all.hblkhd;
  };
  const auto compiler = with_worker();
  ASSERT_TRUE(compiler->compile(schema(kPerson)).ok());
  const size_t before = allocated();
  if (before == 0) GTEST_SKIP() << "the sanitizer's allocator does not count";
  const size_t kept_before = compiler->kept_bytes();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(compiler
                    ->compile(schema(concat(R"({"type":"object","properties":{"name":)",
                                            R"({"type":"string","maxLength":)", 40 + i,
                                            R"(}},"required":["name"]})")))
                    .ok());
    ASSERT_TRUE(compiler->compile(regex(concat("([a-z]{1,", 30 + i, "} ){1,9}"))).ok());
  }
  const auto held = static_cast<double>(allocated() - before);
  const auto counted = static_cast<double>(compiler->kept_bytes() - kept_before);
  EXPECT_GE(counted, held);
  EXPECT_LE(counted, 2.0 * held);
}

}  // namespace
}  // namespace nibble
