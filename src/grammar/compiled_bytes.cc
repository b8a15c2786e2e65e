// The grammar goes as xgrammar's own JSON, which checks itself when it is read; the masks, which
// are nearly all of the bytes, go as they are in memory. So does the automaton of each rule: it is
// a part of one that all share, which in JSON would stand there once for each rule.
#include "grammar/compiled_bytes.h"

#include <compiled_grammar_impl.h>
#include <grammar_impl.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "grammar/byte_message.h"

namespace nibble {

namespace {

using Compiled = xgrammar::CompiledGrammar;
using Mask = xgrammar::AdaptiveTokenMask;
using State = xgrammar::ParserState;

std::vector<uint32_t> words_of(const xgrammar::DynamicBitset& bits, int size) {
  std::vector<uint32_t> words(static_cast<size_t>(xgrammar::DynamicBitset::GetBufferSize(size)));
  xgrammar::DynamicBitset view(size, words.data());
  view |= bits;
  return words;
}

void write_mask(ByteWriter& out, const Mask& mask, int vocab_size) {
  out.number(mask.store_type);
  out.numbers(mask.accepted_indices);
  out.numbers(mask.rejected_indices);
  out.numbers(mask.uncertain_indices);
  if (mask.store_type == Mask::StoreType::kAcceptedBitset)
    out.numbers(words_of(mask.accepted_bitset, vocab_size));
}

bool all_within(const std::vector<int32_t>& indices, size_t size) {
  return std::ranges::all_of(
      indices, [&](int32_t index) { return index >= 0 && static_cast<size_t>(index) < size; });
}

/// False if it is not a mask of this vocabulary.
bool read_mask(ByteReader& in, const xgrammar::TokenizerInfo& tokenizer, Mask& mask) {
  mask.store_type = in.number<Mask::StoreType>();
  mask.accepted_indices = in.numbers<int32_t>();
  mask.rejected_indices = in.numbers<int32_t>();
  mask.uncertain_indices = in.numbers<int32_t>();
  const size_t sorted = tokenizer.GetSortedDecodedVocab().size();
  if (!all_within(mask.accepted_indices, sorted) || !all_within(mask.rejected_indices, sorted) ||
      !all_within(mask.uncertain_indices, sorted))
    return false;
  if (mask.store_type == Mask::StoreType::kAccepted ||
      mask.store_type == Mask::StoreType::kRejected)
    return true;
  if (mask.store_type != Mask::StoreType::kAcceptedBitset) return false;
  const int size = tokenizer.GetVocabSize();
  std::vector<uint32_t> words = in.numbers<uint32_t>();
  if (words.size() != static_cast<size_t>(xgrammar::DynamicBitset::GetBufferSize(size)))
    return false;
  mask.accepted_bitset = xgrammar::DynamicBitset(size);
  mask.accepted_bitset |= xgrammar::DynamicBitset(size, words.data());
  return true;
}

using RuleAutomata = std::vector<std::optional<xgrammar::CompactFSMWithStartEndWithSize>>;

void write_rules(ByteWriter& out, const RuleAutomata& rules) {
  out.number(uint64_t{rules.size()});
  for (const auto& rule : rules) {
    CHECK(rule, "a compiled grammar has a rule without an automaton");
    out.number(int32_t{rule->GetFsm().GetStart()});
    out.numbers(rule->GetFsm().GetEnds());
    out.number(int32_t{rule->GetEdgeNum()});
    out.number(int32_t{rule->GetNodeNum()});
  }
}

/// False if a rule begins or ends at no state of the automaton.
bool read_rules(ByteReader& in, xgrammar::Grammar::Impl& grammar) {
  const xgrammar::CompactFSM& shared = grammar.complete_fsm;
  const size_t rules = in.size_of_list(3 * sizeof(int32_t) + sizeof(uint64_t));
  if (shared.IsNull() || rules != static_cast<size_t>(grammar.NumRules())) return false;
  const auto states = static_cast<size_t>(shared.NumStates());
  grammar.per_rule_fsms.reserve(rules);
  for (size_t i = 0; i < rules; ++i) {
    const auto start = in.number<int32_t>();
    std::vector<int32_t> ends = in.numbers<int32_t>();
    const auto edges = in.number<int32_t>();
    const auto nodes = in.number<int32_t>();
    if (!all_within({start}, states) || !all_within(ends, states)) return false;
    grammar.per_rule_fsms.emplace_back(
        std::in_place, xgrammar::CompactFSMWithStartEnd(shared, start, std::move(ends)), edges,
        nodes);
  }
  grammar.optimized = true;
  return true;
}

Error broken() {
  return make_error(ErrorCode::corrupt,
                    {.what = "a compiled structure", .found = "bytes that are none of it"});
}

}  // namespace

std::string bytes_of(const Compiled& compiled) {
  ByteWriter out;
  const auto grammar = std::make_shared<xgrammar::Grammar::Impl>(*compiled->grammar.ImplPtr());
  const RuleAutomata rules = std::exchange(grammar->per_rule_fsms, {});
  grammar->optimized = false;
  out.text(xgrammar::Grammar(grammar).SerializeJSON());
  write_rules(out, rules);
  out.number(uint64_t{compiled->adaptive_token_mask_cache.size()});
  for (const auto& [state, mask] : compiled->adaptive_token_mask_cache) {
    out.number(state);
    write_mask(out, mask, compiled->tokenizer_info.GetVocabSize());
  }
  return out.take();
}

Result<Compiled> compiled_of(std::string_view bytes, const xgrammar::TokenizerInfo& tokenizer) {
  ByteReader in(bytes);
  auto grammar = xgrammar::Grammar::DeserializeJSON(in.text());
  if (!std::holds_alternative<xgrammar::Grammar>(grammar)) return broken();
  const auto made = std::make_shared<Compiled::Impl>();
  made->grammar = std::get<xgrammar::Grammar>(grammar);
  if (!read_rules(in, *made->grammar.ImplPtr())) return broken();
  made->tokenizer_info = tokenizer;
  const size_t masks = in.size_of_list(sizeof(State) + sizeof(Mask::StoreType));
  made->adaptive_token_mask_cache.reserve(masks);
  for (size_t i = 0; i < masks; ++i) {
    const auto state = in.number<State>();
    if (!read_mask(in, tokenizer, made->adaptive_token_mask_cache[state])) return broken();
  }
  if (!in.at_end()) return broken();
  return Compiled(made);
}

size_t memory_of(const Compiled& compiled) {
  constexpr size_t kOfAnAllocation = 16;  // what malloc adds, at most
  const auto& masks = compiled->adaptive_token_mask_cache;
  size_t bytes = sizeof(Compiled::Impl) + masks.bucket_count() * sizeof(void*);
  for (const auto& [state, mask] : masks) {
    bytes += sizeof(std::pair<const State, Mask>) + 2 * sizeof(void*) + kOfAnAllocation;
    for (const auto* indices :
         {&mask.accepted_indices, &mask.rejected_indices, &mask.uncertain_indices})
      if (indices->capacity() > 0) bytes += indices->capacity() * sizeof(int32_t) + kOfAnAllocation;
    if (mask.store_type == Mask::StoreType::kAcceptedBitset)
      bytes += MemorySize(mask.accepted_bitset) + kOfAnAllocation;
  }
  // Every rule has a name, an automaton that shares the states of all, and lists of a few numbers.
  constexpr size_t kOfARule = 512;
  const auto& rules = compiled->grammar->per_rule_fsms;
  return bytes + 2 * MemorySize(*compiled->grammar.ImplPtr()) + rules.size() * kOfARule;
}

}  // namespace nibble
