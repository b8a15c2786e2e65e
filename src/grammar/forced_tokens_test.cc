// Drafts that a grammar refuses, and the tokens that it forces, over a vocabulary of bytes, tags
// and a few longer tokens.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "grammar/grammar_compiler.h"
#include "grammar/slow_masks.h"
#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

using Tokens = std::vector<int32_t>;
constexpr size_t kMost = 40;

/// No mask is long, however busy the machine is: nothing is forced by a slow grammar.
const GrammarLimits kPatient{.mask_time_max = std::chrono::hours(1)};

std::shared_ptr<const Grammar> compiled(const GrammarSource& source) {
  GrammarCompiler compiler(encoding_vocabulary, kPatient);
  return compiler.compile(source).value();
}

std::unique_ptr<TokenConstraint> under(const GrammarSource& source, int32_t think_end = -1) {
  return make_grammar_constraint(compiled(source), think_end);
}

/// The tokens that are forced after `said`.
Tokens forced_after(TokenConstraint& constraint, const Tokens& said, size_t most = kMost) {
  EXPECT_EQ(constraint.accept(said), std::nullopt);
  auto& slow = dynamic_cast<SlowConstraint&>(constraint);
  while (slow.find_forced(most) != SlowConstraint::Next::ready) std::this_thread::yield();
  return constraint.forced(most);
}

Tokens ids(std::string_view text) {
  Tokens out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string text_of(const Tokens& said) {
  std::string text;
  for (const int32_t token : said) text += token == kToolEnd ? "[end]" : tokens()[token];
  return text;
}

std::vector<uint32_t> mask_of(TokenConstraint& constraint, std::span<const int32_t> drafted) {
  std::vector<uint32_t> bits((kVocab + 31) / 32, ~0U);
  constraint.mask(drafted, bits);
  return bits;
}
bool has(const std::vector<uint32_t>& bits, int32_t token) {
  return (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0;
}

/// Then only a token that is the only one allowed is known to come.
TEST(ForcedTokens, AreSingleTokensWithoutAnEncoder) {
  GrammarCompiler compiler(vocabulary, kPatient);
  const auto forced = [&](std::vector<std::string> choices, const Tokens& said) {
    const GrammarSource source{.kind = GrammarSource::Kind::choice, .choices = std::move(choices)};
    return forced_after(*make_grammar_constraint(compiler.compile(source).value(), -1), said);
  };
  EXPECT_EQ(forced({"yes", "no"}, ids("y")), ids("es"));
  EXPECT_EQ(forced({"truer", "truest"}, {}), Tokens{});  // "t" or "true"
}

TEST(ForcedTokens, AreTheTextThatMustCome) {
  // White space may come after the quotation mark, the name and what closes it may not.
  EXPECT_EQ(text_of(forced_after(*under(schema(kPerson)), ids("{\""))), "name\"");
  EXPECT_EQ(forced_after(*under(schema(kPerson)), ids("{")), Tokens{});
  EXPECT_EQ(text_of(forced_after(*under(schema(kPerson)), ids(R"({"name": "Ada", ")"))), "age\"");
  EXPECT_EQ(forced_after(*under(schema(kPerson)), ids(R"({"name": "A)")), Tokens{});
  EXPECT_EQ(forced_after(*under(schema(kPerson)), ids("{\""), 2), ids("na"));
  const GrammarSource choice{.kind = GrammarSource::Kind::choice, .choices = {"yes", "no"}};
  EXPECT_EQ(forced_after(*under(choice), {}), Tokens{});
  EXPECT_EQ(forced_after(*under(choice), ids("y")), ids("es"));  // and not the end
  EXPECT_EQ(forced_after(*under(choice), ids("yes")), Tokens{});
}

/// The text "true", as the vocabulary divides it; its one token is the last, and may be joined.
TEST(ForcedTokens, AreDividedAsTheModelWritesThem) {
  const GrammarSource regex{.kind = GrammarSource::Kind::regex, .text = "[a-c]true\":x[0-9]true"};
  EXPECT_EQ(forced_after(*under(regex), ids("b")), (Tokens{262, 261, 'x'}));
  EXPECT_EQ(forced_after(*under(regex), ids("btrue\":x1")), Tokens{262});
}

/// A text longer than the tokens that are asked for is cut off; no token ends at the cut.
TEST(ForcedTokens, OfALongTextAreWhole) {
  constexpr int32_t kLong = kVocab, kHalf = kVocab + 1;
  const auto with_dashes = [] {
    GrammarCompiler::Vocabulary made = vocabulary();
    made.tokens.push_back(std::string(64, '-'));
    made.tokens.push_back(std::string(32, '-'));
    made.encode = [](std::string_view text) {
      Tokens ids;
      while (!text.empty()) {
        const size_t size = text.size() >= 64 ? 64 : text.size() >= 32 ? 32 : 1;
        ids.push_back(size == 64 ? kLong : size == 32 ? kHalf : text[0]);
        text.remove_prefix(size);
      }
      return ids;
    };
    return made;
  };
  GrammarCompiler compiler(with_dashes, kPatient);
  const auto grammar =
      compiler.compile({.kind = GrammarSource::Kind::regex, .text = "[ab]-{256}[0-9]"}).value();
  for (const size_t most : {size_t{1}, size_t{2}, size_t{3}})
    EXPECT_EQ(forced_after(*make_grammar_constraint(grammar, -1), ids("a"), most),
              Tokens(most, kLong));
}

TEST(ForcedTokens, GoOnThroughTags) {
  GrammarSource source{.kind = GrammarSource::Kind::tool_calls,
                       .parallel_calls = false,
                       .tool_begin = kToolBegin,
                       .tool_end = kToolEnd};
  source.tools = {{.name = "now", .parameters = {}}};
  const auto constraint = under(source);
  const Tokens forced = forced_after(*constraint, {});
  ASSERT_FALSE(forced.empty());
  EXPECT_EQ(forced.front(), kToolBegin);
  EXPECT_EQ(text_of({forced.begin() + 1, forced.end()}).substr(0, 15), "\n<function=now>");
  const auto whole = under(source);
  Tokens said = {kToolBegin};
  for (const int32_t token : ids("\n<function=now>\n</functio")) said.push_back(token);
  EXPECT_EQ(text_of(forced_after(*whole, said)), "n>\n[end]");
}

TEST(ForcedTokens, AreNoneWhileTheModelThinks) {
  const auto constraint = under(schema(kPerson), kThinkEnd);
  EXPECT_EQ(forced_after(*constraint, ids("hm")), Tokens{});
  EXPECT_EQ(forced_after(*constraint, {kThinkEnd}), Tokens{});  // line breaks may come
  EXPECT_EQ(text_of(forced_after(*constraint, ids("\n\n{\""))), "name\"");
}

/// Nobody waits for those of a slow grammar.
TEST(ForcedTokens, AreNotLookedForWhereMasksTakeLong) {
  const auto grammar = compiled(schema(kPerson));
  const auto constraint = make_grammar_constraint(grammar, -1);
  EXPECT_EQ(constraint->accept(ids("{\"")), std::nullopt);
  mark_slow(*grammar);
  EXPECT_EQ(dynamic_cast<SlowConstraint&>(*constraint).find_forced(kMost),
            SlowConstraint::Next::ready);
  EXPECT_EQ(constraint->forced(kMost), Tokens{});
}

/// On random walks: forced tokens may follow by the masks, drafts fit as far as the masks let them,
/// and neither question leaves a trace.
TEST(ForcedTokens, AndFittingDraftsAgreeWithTheMasks) {
  std::mt19937 random(11);
  const auto grammar = compiled(schema(kPerson));
  int forced_in_all = 0;
  for (int walk = 0; walk < 20; ++walk) {
    const int32_t think_end = walk % 2 == 0 ? -1 : kThinkEnd;
    const auto plain = make_grammar_constraint(grammar, think_end);
    const auto asked = make_grammar_constraint(grammar, think_end);
    for (int step = 0; step < 40; ++step) {
      const Tokens forced = forced_after(*asked, {});
      forced_in_all += static_cast<int>(forced.size());
      for (size_t i = 0; i < forced.size(); ++i)
        ASSERT_TRUE(has(mask_of(*plain, std::span(forced).first(i)), forced[i])) << step;
      Tokens drafted;
      for (int i = 0; i < 6; ++i) {
        const auto mask = mask_of(*plain, drafted);
        int32_t token = static_cast<int32_t>(random() % kVocab);
        while (random() % 8 != 0 && !has(mask, token)) token = (token + 1) % kVocab;
        drafted.push_back(token);
      }
      size_t fits = 0;
      while (fits < drafted.size() && drafted[fits] != kEnd &&
             has(mask_of(*plain, std::span(drafted).first(fits)), drafted[fits]))
        ++fits;
      if (fits == drafted.size() || drafted[fits] != kEnd) {
        ASSERT_EQ(asked->fitting(drafted), fits) << "walk " << walk << ", step " << step;
      }
      const auto mask = mask_of(*plain, {});
      ASSERT_EQ(mask_of(*asked, {}), mask) << "walk " << walk << ", step " << step;
      int32_t token = static_cast<int32_t>(random() % kVocab);
      while (!has(mask, token)) token = (token + 1) % kVocab;
      if (step == 5 && think_end >= 0) token = kThinkEnd;
      if (token == kEnd) break;
      ASSERT_EQ(plain->accept({&token, 1}), std::nullopt);
      ASSERT_EQ(asked->accept({&token, 1}), std::nullopt);
    }
  }
  EXPECT_GT(forced_in_all, 20);
}

}  // namespace
}  // namespace nibble
