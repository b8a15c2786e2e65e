// TokenConstraint: what a request may ask of its own token stream beyond sampling parameters: stop
// strings now; grammars, budgets and forced tokens through the same three calls. Knows token ids
// only; implementations that need text live in higher floors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nibble {

/// State of one generated sequence. Called by one thread at a time, not always the same one.
class TokenConstraint {
 public:
  enum class MaskState : uint8_t {
    open,     // every token may follow; the bits were not touched
    limited,  // bits of forbidden tokens were cleared
  };

  virtual ~TokenConstraint() = default;

  /// Says which tokens may come after the accepted ones and `drafted` further tokens. `bits` holds
  /// one bit per vocabulary row, token t at bit t % 32 of word t / 32, all set on entry.
  virtual MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) = 0;

  /// Takes the next tokens of the sequence, several at once under speculation. Nothing: go on.
  /// A number n <= tokens.size(): the sequence ends after the first n of them; only those count.
  virtual std::optional<size_t> accept(std::span<const int32_t> tokens) = 0;

  /// Takes back the last `count` accepted tokens; count is at most what accept() took.
  virtual void rollback(size_t count) = 0;

  /// Drafts are chosen by this: it returns how many first tokens of `drafted` may follow the
  /// accepted ones, one after another. It is cheap, and may count too many, since masks decide.
  virtual size_t fitting(std::span<const int32_t> drafted) { return drafted.size(); }

  /// Drafts are chosen by this: it returns at most `most` tokens that come next because hardly any
  /// others may. The masks decide: a token may be among several that are allowed.
  virtual std::vector<int32_t> forced(size_t most) {
    static_cast<void>(most);
    return {};
  }
};

}  // namespace nibble
