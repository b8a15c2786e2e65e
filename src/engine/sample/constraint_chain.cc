// All members see the same tokens: who took more than what counts gives the rest back.
#include "engine/sample/constraint_chain.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/planted_bug.h"

namespace nibble {

namespace {

/// Constraints say "soon" for two milliseconds after all masks of a step were begun together, so a
/// step does not wait longer; this is for one that says it again and again.
constexpr std::chrono::milliseconds kPatience{2};

}  // namespace

FinishReason finish_reason_of(const TokenConstraint& constraint) {
  const auto* ending = dynamic_cast<const EndingConstraint*>(&constraint);
  return ending != nullptr ? ending->reason() : FinishReason::stop;
}

SlowConstraint::Next ask_patiently(const std::function<SlowConstraint::Next()>& ask) {
  const auto due = std::chrono::steady_clock::now() + kPatience;
  SlowConstraint::Next next = ask();
  while (next == SlowConstraint::Next::soon && std::chrono::steady_clock::now() < due) {
    std::this_thread::yield();
    next = ask();
  }
  return next;
}

SlowConstraint::Next next_of(TokenConstraint& constraint, std::span<const int32_t> drafted) {
  if (const auto* chain = dynamic_cast<const ConstraintChain*>(&constraint))
    return chain->next(drafted);
  auto* slow = dynamic_cast<SlowConstraint*>(&constraint);
  return slow != nullptr ? slow->next(drafted) : SlowConstraint::Next::ready;
}

SlowConstraint::Next find_forced_of(TokenConstraint& constraint, size_t most) {
  if (const auto* chain = dynamic_cast<const ConstraintChain*>(&constraint))
    return chain->find_forced(most);
  auto* slow = dynamic_cast<SlowConstraint*>(&constraint);
  return slow != nullptr ? slow->find_forced(most) : SlowConstraint::Next::ready;
}

SlowConstraint::Drafts drafts_of(const TokenConstraint& constraint) {
  if (const auto* chain = dynamic_cast<const ConstraintChain*>(&constraint)) return chain->drafts();
  const auto* slow = dynamic_cast<const SlowConstraint*>(&constraint);
  return slow != nullptr ? slow->drafts() : SlowConstraint::Drafts::taken;
}

bool is_slow(const TokenConstraint& constraint) {
  if (const auto* chain = dynamic_cast<const ConstraintChain*>(&constraint)) return chain->slow();
  return dynamic_cast<const SlowConstraint*>(&constraint) != nullptr;
}

/// All members are asked, so that all begin.
SlowConstraint::Next ConstraintChain::next(std::span<const int32_t> drafted) const {
  SlowConstraint::Next all = SlowConstraint::Next::ready;  // they are in order
  for (const auto& member : members_) all = std::max(all, next_of(*member, drafted));
  return all;
}

SlowConstraint::Next ConstraintChain::find_forced(size_t most) const {
  SlowConstraint::Next all = SlowConstraint::Next::ready;
  for (const auto& member : members_) all = std::max(all, find_forced_of(*member, most));
  return all;
}

size_t ConstraintChain::fitting(std::span<const int32_t> drafted) {
  for (const auto& member : members_) drafted = drafted.first(member->fitting(drafted));
  return drafted.size();
}

std::vector<int32_t> ConstraintChain::forced(size_t most) {
  for (const auto& member : members_) {
    std::vector<int32_t> tokens = member->forced(most);
    if (tokens.empty()) continue;
    tokens.resize(fitting(tokens));
    return tokens;
  }
  return {};
}

SlowConstraint::Drafts ConstraintChain::drafts() const {
  const bool alone = std::ranges::any_of(members_, [](const auto& member) {
    return drafts_of(*member) == SlowConstraint::Drafts::alone;
  });
  return alone ? SlowConstraint::Drafts::alone : SlowConstraint::Drafts::taken;
}

bool ConstraintChain::slow() const {
  return std::ranges::any_of(members_, [](const auto& member) { return is_slow(*member); });
}

ConstraintChain::ConstraintChain(Members members) : members_(std::move(members)) {
  for (const auto& member : members_) CHECK(member != nullptr, "an empty constraint");
}

TokenConstraint::MaskState ConstraintChain::mask(std::span<const int32_t> drafted,
                                                 std::span<uint32_t> bits) {
  MaskState state = MaskState::open;
  for (const auto& member : members_)  // each clears bits and sets none: an intersection
    if (member->mask(drafted, bits) == MaskState::limited) state = MaskState::limited;
  return state;
}

std::optional<size_t> ConstraintChain::accept(std::span<const int32_t> tokens) {
  std::optional<size_t> end;
  std::vector<size_t> taken;
  for (const auto& member : members_) {
    const auto stop = member->accept(tokens.first(end.value_or(tokens.size())));
    if (stop && (!end || *stop < *end)) {
      end = stop;
      reason_ = finish_reason_of(*member);
    }
    taken.push_back(end.value_or(tokens.size()));
  }
  if (end)
    for (size_t i = 0; i < members_.size(); ++i)
      if (taken[i] > *end) members_[i]->rollback(taken[i] - *end);
  return end;
}

void ConstraintChain::rollback(size_t count) {
  const size_t skipped = planted(kBugChainForgetsOne) ? 1 : 0;
  for (size_t i = 0; i + skipped < members_.size(); ++i) members_[i]->rollback(count);
}

std::unique_ptr<TokenConstraint> chained(ConstraintChain::Members members) {
  if (members.empty()) return nullptr;
  if (members.size() == 1) return std::move(members.front());
  return std::make_unique<ConstraintChain>(std::move(members));
}

}  // namespace nibble
