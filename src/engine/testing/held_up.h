// HeldUp, for tests: a constraint that allows everything, whose masks do not come, after the first
// few tokens, until they are let.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <span>

#include "base/slow_constraint.h"

namespace nibble {

class HeldUp final : public SlowConstraint {
 public:
  /// `tokens` have their masks in any case; `let` must outlive it.
  HeldUp(int tokens, const bool& let) : left_(tokens), let_(let) {}
  Next next(std::span<const int32_t>) override { return there() ? Next::ready : Next::soon; }
  Drafts drafts() const override { return Drafts::taken; }
  MaskState mask(std::span<const int32_t>, std::span<uint32_t>) override {
    EXPECT_TRUE(there()) << "asked for a mask that is not there";
    return MaskState::open;
  }
  std::optional<size_t> accept(std::span<const int32_t>) override {
    --left_;
    return std::nullopt;
  }
  void rollback(size_t) override {}

 private:
  bool there() const { return let_ || left_ > 0; }
  int left_;
  const bool& let_;
};

}  // namespace nibble
