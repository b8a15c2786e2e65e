// FakeModel, for tests: what FakeBackend computes, as a function of the token prefix alone: without
// pages, slots or batches.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/sample/sampler.h"
#include "model/batch.h"
#include "model/draft.h"

namespace nibble {

class FakeModel {
 public:
  static constexpr int32_t kVocab = 61;
  static constexpr uint64_t kNan = ~uint64_t{0};
  static constexpr uint64_t kPoison = kNan - 1;

  struct Model {
    /// A row whose state hash is divisible by it computes NaN; 0: never.
    uint64_t nan_every = 0;
    /// True if generated tokens leave other bits than the same tokens of a prompt.
    bool two_arithmetics = true;
    /// True if it chooses tokens itself where the batch lets it; else it gives logits.
    bool chooses = false;
    /// True if passes may be begun before the tokens that it has chosen are read.
    bool overlaps = false;
    /// It has a layer that drafts what the model says, from entries and hidden rows of its own; but
    /// for one in so many that it gets wrong, 0: none. Absent: no such layer.
    std::optional<uint64_t> drafts;
  };

  /// NaN stays NaN, poison becomes it.
  static uint64_t mix(uint64_t hash, uint64_t value) {
    if (hash >= kPoison || value >= kPoison) return kNan;
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    return (hash ^ (hash >> 29)) >> 1;
  }

  /// The same function of the prefix, one token at a time, without pages, slots or batches.
  class Prefix {
   public:
    Prefix() : Prefix(Model{}) {}
    explicit Prefix(const Model& model) : model_(model) {}
    void add(int32_t token, Arithmetic arithmetic) {
      add_value(static_cast<uint64_t>(token), arithmetic);
    }
    void add_value(uint64_t value, Arithmetic arithmetic) {
      if (size_ % kPageTokens == 0) {
        before_ = pages();
        page_ = page_seed(size_ / kPageTokens);
      }
      state_ = next_state(model_, state_, value, arithmetic);
      page_ = mix(page_, cell(state_, value));
      ++size_;
    }
    uint64_t hash() const { return mix(state_, pages()); }
    bool is_nan() const { return hash() == kNan; }
    uint64_t state() const { return state_; }

   private:
    uint64_t pages() const { return size_ == 0 ? kPagesSeed : mix(before_, page_); }
    Model model_;
    int32_t size_ = 0;
    uint64_t state_ = kStateSeed;
    uint64_t before_ = kPagesSeed;
    uint64_t page_ = 0;
  };
  /// The same prefix as the layer that drafts computes it, of entry values.
  class DraftPrefix {
   public:
    explicit DraftPrefix(const Model& model) : model_(model) {}
    /// `hidden`: the model's state before the token.
    void add(uint64_t hidden, uint64_t value, Arithmetic arithmetic) {
      if (size_ % kPageTokens == 0) {
        if (size_ > 0) before_ = mix(before_, page_);
        page_ = page_seed(size_ / kPageTokens);
      }
      hidden_ = next_state(model_, hidden, value, arithmetic);
      page_ = finite_or_zero(mix(page_, cell(hidden_, value)));
      ++size_;
    }
    /// The same after a draft: its own hidden row stands for the model's.
    void add_draft(uint64_t value) { add(hidden_, value, Arithmetic::generation); }
    uint64_t hash() const { return mix(hidden_, mix(before_, page_)); }

   private:
    Model model_;
    int32_t size_ = 0;
    uint64_t hidden_ = kStateSeed;
    uint64_t before_ = kPagesSeed;
    uint64_t page_ = 0;
  };
  /// The value that the model sees of a row: its token, or its embedding; another one if the row is
  /// not at its index.
  static uint64_t row_value(int32_t token, const float* embedding, int32_t index,
                            const std::array<int32_t, 3>& position) {
    uint64_t value = static_cast<uint64_t>(token);
    if (embedding != nullptr && std::isnan(*embedding)) return kNan;
    if (embedding != nullptr) value = mix(4, std::bit_cast<uint32_t>(*embedding));
    if (position == std::array<int32_t, 3>{index, index, index}) return value;
    for (const int32_t axis : position) value = mix(value, static_cast<uint64_t>(axis));
    return value;
  }
  /// The value that the layer that drafts sees of a row: its entry is turned by the position of the
  /// token before. The first one has none.
  static uint64_t entry_value(int32_t token, const float* embedding, int32_t index,
                              const std::array<int32_t, 3>& before) {
    return index == 0 ? row_value(token, embedding, 0, {0, 0, 0})
                      : row_value(token, embedding, index - 1, before);
  }
  static std::vector<float> logits_of(uint64_t hash) {
    std::vector<float> logits(kVocab, std::numeric_limits<float>::quiet_NaN());
    if (hash == kNan) return logits;
    for (uint64_t token = 0; token < kVocab; ++token)
      logits[token] = static_cast<float>(mix(hash, token) >> 39) * 0x1.0p-22F;
    return logits;
  }

  /// The draft of its layer where the model computes this.
  static int32_t drafted_token(const Model& model, uint64_t hash,
                               std::span<const uint32_t> allowed = {}) {
    const int32_t best = best_token(logits_of(hash), allowed);
    if (best < 0 || *model.drafts == 0 || hash % *model.drafts != 0) return best;
    return (best + 1) % kVocab;
  }

 protected:
  static constexpr uint64_t kStateSeed = 1;
  static constexpr uint64_t kPagesSeed = 2;
  static uint64_t page_seed(int32_t index) { return mix(3, static_cast<uint64_t>(index)); }
  static uint64_t next_state(const Model& model, uint64_t state, uint64_t value,
                             Arithmetic arithmetic) {
    const bool other = model.two_arithmetics && arithmetic == Arithmetic::generation;
    const uint64_t next = mix(state, value + (other ? 500 : 0));
    return model.nan_every > 0 && next % model.nan_every == 0 ? kNan : next;
  }
  /// The value that a token leaves in its page. A deeper layer's keys depend on the state below.
  static uint64_t cell(uint64_t state, uint64_t value) { return mix(state, value + 1000); }
  static uint64_t finite_or_zero(uint64_t value) { return value < kPoison ? value : 0; }
};

}  // namespace nibble
