// ConstraintChain: several constraints as one, and why a constraint ended a sequence.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/slow_constraint.h"
#include "engine/sequence.h"

namespace nibble {

/// A constraint that ends sequences for another reason than a stop.
class EndingConstraint : public TokenConstraint {
 public:
  /// The reason of the end that accept() last reported.
  virtual FinishReason reason() const = 0;
};

/// The reason why the sequence ended, after accept() returned a number.
FinishReason finish_reason_of(const TokenConstraint& constraint);

/// Those of the constraint, and of all members of a chain; ready and taken where none says more.
SlowConstraint::Next next_of(TokenConstraint& constraint, std::span<const int32_t> drafted);
SlowConstraint::Next find_forced_of(TokenConstraint& constraint, size_t most);
SlowConstraint::Drafts drafts_of(const TokenConstraint& constraint);
bool is_slow(const TokenConstraint& constraint);

/// Asks again while the answer is "soon", for two milliseconds at most.
SlowConstraint::Next ask_patiently(const std::function<SlowConstraint::Next()>& ask);

/// A token may follow if every member allows it. The sequence ends where the first of them ends it;
/// of two that end it at the same token, the earlier in the list gives the reason.
class ConstraintChain final : public EndingConstraint {
 public:
  using Members = std::vector<std::unique_ptr<TokenConstraint>>;
  explicit ConstraintChain(Members members);

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override;
  std::optional<size_t> accept(std::span<const int32_t> tokens) override;
  void rollback(size_t count) override;
  size_t fitting(std::span<const int32_t> drafted) override;
  /// Those of the first member that forces any, as far as all allow them.
  std::vector<int32_t> forced(size_t most) override;
  FinishReason reason() const override { return reason_; }
  SlowConstraint::Next next(std::span<const int32_t> drafted) const;
  SlowConstraint::Next find_forced(size_t most) const;
  SlowConstraint::Drafts drafts() const;
  bool slow() const;

 private:
  Members members_;
  FinishReason reason_ = FinishReason::stop;
};

/// Makes one constraint of the members: none for no members, the member itself for one, else a
/// chain.
std::unique_ptr<TokenConstraint> chained(ConstraintChain::Members members);

}  // namespace nibble
