// A compiled grammar comes back from its bytes as it was, masks of every kind among it; bytes that
// speak of tokens, states or masks that there are not are refused.
#include "grammar/compiled_bytes.h"

#include <compiled_grammar_impl.h>
#include <grammar_impl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "grammar/structure_builder.h"
#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

using Compiled = xgrammar::CompiledGrammar;
using Impl = Compiled::Impl;
using Mask = xgrammar::AdaptiveTokenMask;
using Kind = GrammarSource::Kind;

/// The usual vocabulary and 4000 tokens of three letters: of so many some masks are sets of bits.
GrammarCompiler::Vocabulary large_vocabulary() {
  GrammarCompiler::Vocabulary made = vocabulary();
  for (int i = 0; i < 4000; ++i)
    made.tokens.push_back({static_cast<char>('a' + i % 16), static_cast<char>('a' + i / 16 % 16),
                           static_cast<char>('a' + i / 256)});
  return made;
}

const StructureBuilder& builder() {
  static const StructureBuilder made(large_vocabulary());
  return made;
}

std::shared_ptr<const Grammar> built(const GrammarSource& source) {
  return builder().build(source, GrammarLimits().looks_max).value();
}

/// It has masks of every kind and several rules.
const Grammar& letters() {
  static const auto made =
      built({.kind = Kind::ebnf, .text = "root ::= [a-m]+ [0-9] rest\nrest ::= \"x\" | [^b] rest"});
  return *made;
}

TEST(CompiledBytes, AGrammarComesBackAsItWas) {
  std::set<Mask::StoreType> seen;
  for (const GrammarSource& source :
       {GrammarSource{.kind = Kind::json_object}, schema(kPerson),
        GrammarSource{.kind = Kind::choice, .choices = {"yes", "no"}},
        GrammarSource{.kind = Kind::ebnf,
        .text = "root ::= [a-m]+ [0-9] rest\nrest ::= \"x\" | [^b] rest"}}) {
    const auto sent = built(source);
    const Compiled got = compiled_of(bytes_of(sent->compiled), builder().tokenizer()).value();
    const Impl &one = *sent->compiled.ImplPtr(), &other = *got.ImplPtr();
    EXPECT_EQ(other.grammar->optimized, one.grammar->optimized);
    EXPECT_EQ(other.grammar->GetRootRuleId(), one.grammar->GetRootRuleId());
    EXPECT_EQ(other.tokenizer_info.GetVocabSize(), one.tokenizer_info.GetVocabSize());
    ASSERT_EQ(other.grammar->per_rule_fsms.size(), one.grammar->per_rule_fsms.size());
    for (size_t i = 0; i < one.grammar->per_rule_fsms.size(); ++i) {
      const auto &a = one.grammar->per_rule_fsms[i], &b = other.grammar->per_rule_fsms[i];
      EXPECT_EQ(b->GetFsm().GetStart(), a->GetFsm().GetStart());
      EXPECT_EQ(b->GetFsm().GetEnds(), a->GetFsm().GetEnds());
      EXPECT_EQ(b->GetEdgeNum(), a->GetEdgeNum());
      EXPECT_EQ(b->GetNodeNum(), a->GetNodeNum());
    }
    ASSERT_EQ(other.adaptive_token_mask_cache.size(), one.adaptive_token_mask_cache.size());
    for (const auto& [state, mask] : one.adaptive_token_mask_cache) {
      const auto found = other.adaptive_token_mask_cache.find(state);
      ASSERT_NE(found, other.adaptive_token_mask_cache.end());
      seen.insert(mask.store_type);
      EXPECT_EQ(found->second.store_type, mask.store_type);
      EXPECT_EQ(found->second.accepted_indices, mask.accepted_indices);
      EXPECT_EQ(found->second.rejected_indices, mask.rejected_indices);
      EXPECT_EQ(found->second.uncertain_indices, mask.uncertain_indices);
      EXPECT_TRUE(found->second.accepted_bitset == mask.accepted_bitset);
    }
  }
  EXPECT_EQ(seen.size(), 3U);  // the grammars above have masks of every kind
}

/// The bytes of a grammar after a change that no compiler would make.
std::string changed_bytes(const std::function<void(Impl&)>& change) {
  const auto copy = std::make_shared<Impl>(*letters().compiled.ImplPtr());
  copy->grammar = xgrammar::Grammar(
      std::make_shared<xgrammar::Grammar::Impl>(*letters().compiled->grammar.ImplPtr()));
  change(*copy);
  return bytes_of(Compiled(copy));
}

Mask& mask_of(Impl& compiled, Mask::StoreType type) {
  const auto found = std::ranges::find_if(compiled.adaptive_token_mask_cache, [&](const auto& one) {
    return one.second.store_type == type;
  });
  return found->second;
}

void expect_refused(const std::string& bytes, std::string_view what) {
  const auto made = compiled_of(bytes, builder().tokenizer());
  ASSERT_FALSE(made.ok()) << what;
  EXPECT_EQ(made.error().code, ErrorCode::corrupt) << what;
}

TEST(CompiledBytes, TokensThatThereAreNotAreRefused) {
  const auto tokens = static_cast<int32_t>(builder().tokenizer().GetSortedDecodedVocab().size());
  for (const auto type :
       {Mask::StoreType::kAccepted, Mask::StoreType::kRejected, Mask::StoreType::kAcceptedBitset})
    for (const auto list :
         {&Mask::accepted_indices, &Mask::rejected_indices, &Mask::uncertain_indices}) {
      const auto bytes_with = [&](int32_t token) {
        return changed_bytes([&](Impl& all) { (mask_of(all, type).*list).push_back(token); });
      };
      EXPECT_TRUE(compiled_of(bytes_with(tokens - 1), builder().tokenizer()).ok());
      expect_refused(bytes_with(tokens), "one more than the last");
      expect_refused(bytes_with(-1), "below the first");
    }
}

TEST(CompiledBytes, MasksThatThereAreNotAreRefused) {
  for (const int type : {3, -1})
    expect_refused(changed_bytes([&](Impl& all) {
                     mask_of(all, Mask::StoreType::kAccepted).store_type =
                         static_cast<Mask::StoreType>(type);
                   }),
                   "a kind of mask that there is not");
  // Bits for fewer tokens, and for more, than the vocabulary has.
  for (const size_t count : {size_t{kVocab}, size_t{9000}}) {
    GrammarCompiler::Vocabulary other = vocabulary();
    other.tokens.resize(count, "t");
    const StructureBuilder others(other);
    expect_refused(changed_bytes([&](Impl& all) {
                     all.tokenizer_info = others.tokenizer();
                     for (auto& [state, mask] : all.adaptive_token_mask_cache)
                       if (mask.store_type == Mask::StoreType::kAcceptedBitset)
                         mask.accepted_bitset = xgrammar::DynamicBitset(static_cast<int>(count));
                   }),
                   "bits of another vocabulary");
  }
}

TEST(CompiledBytes, StatesThatThereAreNotAreRefused) {
  const auto with_rule = [](size_t rule, const auto& start_of, const auto& ends_of) {
    return changed_bytes([&](Impl& all) {
      auto& changed = all.grammar->per_rule_fsms[rule];
      const auto& fsm = changed->GetFsm();
      changed.emplace(
          xgrammar::CompactFSMWithStartEnd(all.grammar->complete_fsm, start_of(fsm), ends_of(fsm)),
          changed->GetEdgeNum(), changed->GetNodeNum());
    });
  };
  const auto& grammar = *letters().compiled->grammar.ImplPtr();
  const int states = grammar.complete_fsm.NumStates();
  const auto same_start = [](const auto& fsm) { return fsm.GetStart(); };
  const auto same_ends = [](const auto& fsm) { return fsm.GetEnds(); };
  for (size_t rule = 0; rule < grammar.per_rule_fsms.size(); ++rule) {
    EXPECT_TRUE(compiled_of(with_rule(rule, same_start, same_ends), builder().tokenizer()).ok());
    for (const int state : {-1, states}) {
      expect_refused(with_rule(
                         rule, [&](const auto&) { return state; }, same_ends),
                     "a start");
      expect_refused(with_rule(rule, same_start,
                               [&](const auto& fsm) {
                                 std::vector<int32_t> ends = fsm.GetEnds();
                                 ends.push_back(state);
                                 return ends;
                               }),
                     "an end");
    }
  }
  expect_refused(changed_bytes([](Impl& all) { all.grammar->per_rule_fsms.pop_back(); }),
                 "a rule without an automaton");
  expect_refused(changed_bytes([](Impl& all) {
                   auto& rules = all.grammar->per_rule_fsms;
                   rules.push_back(rules.front());
                 }),
                 "an automaton without a rule");
}

TEST(CompiledBytes, WhatIsCutShortOrTooLongIsRefused) {
  const std::string bytes = bytes_of(letters().compiled);
  const size_t step = std::max<size_t>(1, bytes.size() / 300);
  for (size_t size = 0; size < bytes.size(); size += step)
    expect_refused(bytes.substr(0, size), concat("the first ", size));
  for (size_t left = 1; left <= 40; ++left)
    expect_refused(bytes.substr(0, bytes.size() - left), concat("all but the last ", left));
  expect_refused(bytes + '\0', "one byte more");
}

}  // namespace
}  // namespace nibble
