// FakeGrammar, for tests: a constraint that is a keyed hash of what was generated: after some texts
// one token may follow, after others some or all. A mask, a draft or a rollback at the wrong place
// gives other tokens. Some of its masks are not there when they are first asked for.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "engine/sample/token_bits.h"
#include "engine/testing/fake_backend.h"

namespace nibble {

class FakeGrammar final : public SlowConstraint {
 public:
  /// The same without masks or drafts: a place in the text.
  class Place {
   public:
    explicit Place(uint64_t key) : hash_(FakeBackend::mix(6, key)) {}
    void add(int32_t token) { hash_ = FakeBackend::mix(hash_, static_cast<uint64_t>(token)); }
    std::optional<int32_t> only() const {
      if (hash_ % 2 != 0) return std::nullopt;
      return static_cast<int32_t>(hash_ / 8 % FakeBackend::kVocab);
    }
    bool may_follow(int32_t token) const {
      if (const auto one = only()) return token == *one;
      return hash_ % 8 < 4 || FakeBackend::mix(hash_, static_cast<uint64_t>(token)) % 4 == 0 ||
             token == static_cast<int32_t>(hash_ / 8 % FakeBackend::kVocab);
    }
    std::vector<uint32_t> mask() const {
      std::vector<uint32_t> bits((FakeBackend::kVocab + 31) / 32, ~0U);
      for (int32_t token = 0; token < FakeBackend::kVocab; ++token)
        if (!may_follow(token)) forbid_token(bits, token);
      return bits;
    }
    /// Returns the number of times that its mask is asked for until it is there.
    int looks() const { return hash_ % 32 >= 3 ? 0 : hash_ % 32 == 0 ? 6 : 1; }

   private:
    uint64_t hash_;
  };
  /// Tokens, `most` at most, each of which is the only one that may follow.
  static std::vector<int32_t> forced_after(Place place, size_t most) {
    std::vector<int32_t> tokens;
    for (auto one = place.only(); one && tokens.size() < most; one = place.only()) {
      tokens.push_back(*one);
      place.add(*one);
    }
    return tokens;
  }

  /// late: some masks need to be asked for more often than a step does.
  enum class Masks : uint8_t { in_time, late };
  explicit FakeGrammar(uint64_t key, Masks masks = Masks::in_time)
      : places_{Place(key)}, looks_most_(masks == Masks::late ? 6 : 1) {}

  Next next(std::span<const int32_t>) override { return look(); }
  Next find_forced(size_t) override { return look(); }
  Drafts drafts() const override { return Drafts::taken; }
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    CHECK(!waited_for(), "a mask that is not there");
    Place place = places_.back();
    for (const int32_t token : drafted) place.add(token);
    const std::vector<uint32_t> mask = place.mask();
    for (size_t i = 0; i < mask.size(); ++i) bits[i] &= mask[i];
    return MaskState::limited;
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    for (const int32_t token : tokens) {
      CHECK(places_.back().may_follow(token), "token ", token, " may not follow");
      places_.push_back(places_.back());
      places_.back().add(token);
    }
    looks_ = 0;
    return std::nullopt;
  }
  void rollback(size_t count) override {
    CHECK(count < places_.size(), "rollback ", count);
    places_.erase(places_.end() - static_cast<std::ptrdiff_t>(count), places_.end());
  }
  size_t fitting(std::span<const int32_t> drafted) override {
    CHECK(!waited_for(), "a mask that is not there");
    Place place = places_.back();
    for (size_t i = 0; i < drafted.size(); ++i) {
      if (!place.may_follow(drafted[i])) return i;
      place.add(drafted[i]);
    }
    return drafted.size();
  }
  std::vector<int32_t> forced(size_t most) override {
    CHECK(!waited_for(), "forced tokens that are not there");
    return forced_after(places_.back(), most);
  }

 private:
  Next look() {
    if (!waited_for()) return Next::ready;
    ++looks_;
    return Next::making;
  }
  bool waited_for() const { return looks_ < std::min(places_.back().looks(), looks_most_); }

  std::vector<Place> places_;  // the start, then after each accepted token
  int looks_most_;
  int looks_ = 0;  // for what follows the last place
};

}  // namespace nibble
