// Deficit accounting on two levels. Sums are zero: what one gets, the others are owed, by weight.
#include "engine/schedule/fair_share.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/planted_bug.h"

namespace nibble {

namespace {

// An old prompt counts as shorter: its time left is divided by 1 + wait / kAgeingMs.
constexpr double kAgeingMs = 1000.0;

}  // namespace

FairShare::Account& FairShare::account(uint64_t tenant) {
  return const_cast<Account&>(std::as_const(*this).account(tenant));
}

const FairShare::Account& FairShare::account(uint64_t tenant) const {
  const auto found = std::ranges::lower_bound(accounts_, tenant, {}, &Account::tenant);
  CHECK(found != accounts_.end() && found->tenant == tenant, "tenant ", tenant);
  return *found;
}

void FairShare::begin(std::span<const PrefillTurn> turns) {
  for (Account& a : accounts_) a.prompts = {};
  for (const PrefillTurn& turn : turns) {
    auto found = std::ranges::lower_bound(accounts_, turn.tenant, {}, &Account::tenant);
    if (found == accounts_.end() || found->tenant != turn.tenant)
      found = accounts_.insert(found, Account{.tenant = turn.tenant});
    found->weight = turn.weight;
    ++found->prompts[static_cast<size_t>(turn.size)];
  }
  std::erase_if(accounts_, [](const Account& a) {
    return std::ranges::all_of(a.prompts, [](int32_t count) { return count == 0; });
  });
  for (Account& a : accounts_)
    for (size_t size = 0; size < kSizeClasses; ++size)
      if (a.prompts[size] == 0) a.class_owed_ms[size] = 0.0;
}

size_t FairShare::pick(std::span<const PrefillTurn> turns) const {
  const auto key = [&](const PrefillTurn& turn) {
    const Account& a = account(turn.tenant);
    const auto size = static_cast<size_t>(turn.size);
    if (planted(kBugShortestAlways))
      return std::tuple(turn.priority, 0.0, uint64_t{0}, 0.0, size_t{0}, turn.ms_left);
    return std::tuple(turn.priority, -a.owed_ms, turn.tenant, -a.class_owed_ms[size], size,
                      turn.ms_left / (1.0 + std::max(turn.waited_ms, 0.0) / kAgeingMs));
  };
  size_t best = turns.size();
  for (size_t i = 0; i < turns.size(); ++i)
    if (turns[i].tokens_left > 0 && (best == turns.size() || key(turns[i]) < key(turns[best])))
      best = i;
  return best;
}

double FairShare::share(const Account& a, size_t size) const {
  constexpr auto kLong = static_cast<size_t>(SizeClass::long_prompt);
  if (a.prompts[size] == 0) return 0.0;
  int others = 0;
  for (size_t i = 0; i < kSizeClasses; ++i) others += i != kLong && a.prompts[i] > 0 ? 1 : 0;
  const double of_long = a.prompts[kLong] == 0 ? 0.0 : others == 0 ? 1.0 : long_share_;
  return size == kLong ? of_long : (1.0 - of_long) / others;
}

void FairShare::charge(uint64_t tenant, double ms) {
  const auto own = std::ranges::find(accounts_, tenant, &Account::tenant);
  if (own == accounts_.end()) return;
  double weights = 0.0;
  for (const Account& a : accounts_) weights += a.weight;
  for (Account& a : accounts_) a.owed_ms += ms * a.weight / weights;
  own->owed_ms -= ms;
}

void FairShare::charge(const PrefillTurn& turn, double ms) {
  charge(turn.tenant, ms);
  Account& own = account(turn.tenant);
  for (size_t size = 0; size < kSizeClasses; ++size)
    own.class_owed_ms[size] += ms * share(own, size);
  own.class_owed_ms[static_cast<size_t>(turn.size)] -= ms;
}

}  // namespace nibble
