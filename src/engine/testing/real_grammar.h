// Compiled grammars, for the simulation: what the product's constraint lets through, with drafts,
// masks of other threads and rollbacks, beside what a constraint says that has been told each token
// once and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/token_constraint.h"
#include "grammar/grammar_compiler.h"

namespace nibble {

/// A place in a text under a grammar.
class RealGrammar {
 public:
  /// One of kCount grammars over the tokens of FakeBackend, each of which has an end.
  static constexpr int kCount = 3;
  static constexpr int32_t kEnd = 60;
  explicit RealGrammar(int number);

  void add(int32_t token) { tokens_.push_back(token); }
  std::optional<int32_t> only() const;
  bool may_follow(int32_t token) const;
  const std::vector<uint32_t>& mask() const;

  /// The product's constraint at the start of a text. It waits for its masks, so that a life is the
  /// same each time.
  std::unique_ptr<TokenConstraint> constraint() const;

 private:
  using Masks = std::map<std::vector<int32_t>, std::vector<uint32_t>>;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Masks> masks_ = std::make_shared<Masks>();  // after each text asked for
  std::vector<int32_t> tokens_;
};

}  // namespace nibble
