// The same automata that the compiler makes. A rule has an end if a way through its automaton leads
// from the start to an end over characters, tokens and rules that have one.
#include "grammar/grammar_work.h"

#include <grammar_functor.h>
#include <grammar_impl.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

namespace nibble {

namespace {

using Fsm = xgrammar::CompactFSMWithStartEnd;

/// The rule without an end, as far as is known, that an edge leads through.
std::optional<size_t> blocking(const Fsm& fsm, const xgrammar::FSMEdge& edge,
                               const std::vector<bool>& ends) {
  int32_t rule = -1;
  if (edge.IsRuleRef()) rule = edge.GetRefRuleId();
  if (edge.IsRepeatRef()) {
    const auto repeat = fsm.GetFsm().GetRepeatEdgeInfo(edge.GetAuxIndex());
    if (repeat.Lower() > 0) rule = repeat.RuleId();
  }
  if (rule < 0 || ends[static_cast<size_t>(rule)]) return std::nullopt;
  return static_cast<size_t>(rule);
}

class Rules {
 public:
  explicit Rules(const xgrammar::Grammar& grammar)
      : grammar_(grammar),
        ends_(static_cast<size_t>(grammar->NumRules()), false),
        callers_(ends_.size()) {}
  bool root_ends();

 private:
  /// A walk over the states of a rule that can be reached; true once it came to an end. The rules
  /// that stood in its way call it again once they have an end.
  bool has_end(size_t rule);

  const xgrammar::Grammar& grammar_;
  std::vector<bool> ends_;
  std::vector<std::vector<size_t>> callers_;
  std::vector<size_t> seen_;  // the walk that saw a state last
  size_t walks_ = 0;
};

bool Rules::has_end(size_t rule) {
  const auto& known = grammar_->per_rule_fsms[rule];
  if (!known) return true;
  const Fsm& fsm = known->GetFsm();
  ++walks_;
  seen_.resize(std::max(seen_.size(), static_cast<size_t>(fsm.GetFsm().NumStates())), 0);
  std::vector<int> way = {fsm.GetStart()};
  for (size_t i = 0; i < way.size(); ++i) {
    if (fsm.IsEndState(way[i])) return true;
    for (const xgrammar::FSMEdge& edge : fsm.GetFsm().GetEdges(way[i])) {
      size_t& seen = seen_[static_cast<size_t>(edge.target)];
      if (seen == walks_) continue;
      if (const auto rule_in_way = blocking(fsm, edge, ends_)) {
        callers_[*rule_in_way].push_back(rule);
      } else {
        seen = walks_;
        way.push_back(edge.target);
      }
    }
  }
  return false;
}

bool Rules::root_ends() {
  std::vector<size_t> open;
  for (size_t rule = ends_.size(); rule-- > 0;) open.push_back(rule);
  while (!open.empty()) {
    const size_t rule = open.back();
    open.pop_back();
    if (ends_[rule] || !has_end(rule)) continue;
    ends_[rule] = true;
    open.insert(open.end(), callers_[rule].begin(), callers_[rule].end());
    callers_[rule].clear();
  }
  return ends_[static_cast<size_t>(grammar_->GetRootRuleId())];
}

uint64_t looks_of(const Fsm& fsm, const std::array<uint32_t, 256>& tokens_by_first) {
  constexpr uint64_t kOfAState = 256;  // for a state that few tokens fit
  std::unordered_set<int> states;
  fsm.GetReachableStates(&states);
  uint64_t looks = 0;
  for (const int state : states) {
    if (!fsm.IsScanableState(state)) continue;
    looks += kOfAState;
    for (const xgrammar::FSMEdge& edge : fsm.GetFsm().GetEdges(state))
      if (edge.IsCharRange())
        for (int32_t byte = edge.min; byte <= std::min(edge.max, 255); ++byte)
          looks += tokens_by_first[static_cast<size_t>(byte)];
  }
  return looks;
}

}  // namespace

GrammarWork work_of(const xgrammar::Grammar& grammar,
                    const std::array<uint32_t, 256>& tokens_by_first) {
  const xgrammar::Grammar automata = xgrammar::GrammarOptimizer::Apply(grammar);
  GrammarWork work;
  for (const auto& fsm : automata->per_rule_fsms)
    if (fsm) work.looks += looks_of(fsm->GetFsm(), tokens_by_first);
  if (!Rules(automata).root_ends()) work.ending = Ending::impossible;
  return work;
}

}  // namespace nibble
