// FairShare: whose prompt the next milliseconds of prefill go to: first fair between tenants, then
// between size classes of a tenant, then the shortest, aged by its wait. Deficit accounting: what
// one was given is debt to those that stood by. Work conserving; no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/scheduling.h"

namespace nibble {

/// A prompt whose chunk could be the next.
struct PrefillTurn {
  int32_t sequence = 0;
  int32_t depth = 0;  // tokens in the cache
  int32_t tokens_left = 0;
  int32_t rows_max = 0;  // rows that its pages can take
  int32_t priority = 0;
  SizeClass size = SizeClass::short_prompt;
  uint64_t tenant = 0;
  double weight = 1.0;   // weight of the tenant's share; above 0
  double ms_left = 0.0;  // prefill time left, by the cost model
  double waited_ms = 0.0;
};

class FairShare {
 public:
  /// `long_share`: of a tenant's prefill time while it has long prompts and others.
  explicit FairShare(double long_share) : long_share_(long_share) {}

  /// The prompts of one pass. Those who have none left lose what they were owed, or owe.
  void begin(std::span<const PrefillTurn> turns);
  /// Index of the next one among those with tokens left; `turns` as in begin().
  size_t pick(std::span<const PrefillTurn> turns) const;
  /// The one picked was given this much.
  void charge(const PrefillTurn& turn, double ms);
  /// The tenant took this much for something else than a prompt. It counts while the tenant has
  /// prompts too.
  void charge(uint64_t tenant, double ms);

 private:
  struct Account {
    uint64_t tenant = 0;
    double weight = 1.0;
    double owed_ms = 0.0;
    std::array<double, kSizeClasses> class_owed_ms = {};
    std::array<int32_t, kSizeClasses> prompts = {};
  };
  Account& account(uint64_t tenant);
  const Account& account(uint64_t tenant) const;
  double share(const Account& a, size_t size) const;

  double long_share_;
  std::vector<Account> accounts_;  // tenants with prompts, ascending
};

}  // namespace nibble
