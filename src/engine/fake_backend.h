// FakeBackend, for tests: a "model" whose logits are a keyed hash of the whole token prefix. Half
// of the prefix is read back from the KV pages, half is carried in the state slot, so a wrong page,
// a stale page, a wrong or unzeroed state changes every later token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model/backend.h"
#include "model/forward.h"
#include "model/host_pools.h"

namespace nibble {

class FakeBackend final : public Backend {
 public:
  static constexpr int32_t kVocab = 97;
  static constexpr int32_t kPoison = -1;
  static constexpr uint64_t kPoisonState = 0xDEAD;

  /// Sequences whose prefix hash is divisible by `nan_every` compute NaN; 0: never.
  explicit FakeBackend(uint64_t nan_every = 0) : nan_every_(nan_every) {}

  static ModelConfig config() {
    ModelConfig config;
    config.hidden = 1;
    config.vocab_rows = kVocab;
    config.layers = {LayerKind::delta_net, LayerKind::attention};
    config.dense_width = 1;
    config.max_positions = 4096;
    return config;
  }

  static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    return hash ^ (hash >> 29);
  }

  /// The same function of the prefix, computed without pages, slots or batches.
  static uint64_t prefix_hash(std::span<const int32_t> tokens) {
    uint64_t state = 1;
    uint64_t pages = 2;
    for (const int32_t token : tokens) {
      state = mix(state, static_cast<uint64_t>(token));
      pages = mix(pages, static_cast<uint64_t>(token));
    }
    return mix(state, pages);
  }
  static std::vector<float> logits_of(uint64_t hash) {
    std::vector<float> logits;
    for (uint64_t token = 0; token < kVocab; ++token)
      logits.push_back(static_cast<float>(mix(hash, token) >> 40) * 0x1.0p-22F);
    return logits;
  }

  std::string_view name() const override { return "fake"; }
  std::string description() const override { return "fake"; }
  Result<void> reserve(const PoolSizes& sizes) override {
    sizes_ = sizes;
    page_tokens_.assign(static_cast<size_t>(sizes.pages) * kPageTokens, kPoison);
    states_.assign(static_cast<size_t>(sizes.state_slots), kPoisonState);
    host_ = HostPools(sizes, page_bytes(), state_slot_bytes());
    return {};
  }
  int64_t page_bytes() const override { return kPageTokens * 4; }
  int64_t state_slot_bytes() const override { return 8; }

  Residual embed(const Batch& batch) override {
    validate_batch(batch, config(), sizes_);
    ++passes;
    rows_largest = std::max(rows_largest, batch.rows());
    row_state_.assign(batch.tokens.size(), 0);
    row_pages_.assign(batch.tokens.size(), 0);
    return {.data = nullptr, .rows = batch.rows()};
  }
  Residual delta_net_block(int, const Batch& batch, Residual h) override {
    for (const BatchSequence& s : batch.sequences) {
      uint64_t state = states_[static_cast<size_t>(s.state_in)];
      if (s.kv_begin == 0) CHECK(state == 1, "a sequence starts in a used state");
      for (int32_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
        state = mix(state, static_cast<uint64_t>(batch.tokens[static_cast<size_t>(row)]));
        row_state_[static_cast<size_t>(row)] = state;
      }
      states_[static_cast<size_t>(s.state_out)] = state;
    }
    return h;
  }
  Residual attention_block(int, const Batch& batch, Residual h) override {
    for (const BatchSequence& s : batch.sequences) {
      const bool whole = s.arithmetic == Arithmetic::generation || s.kv_begin % kPageTokens == 0;
      CHECK(whole, "a prompt was cut at ", s.kv_begin);
      const auto cell = [&](int32_t index) -> int32_t& {
        const size_t page = static_cast<size_t>(s.page_begin + index / kPageTokens);
        return page_tokens_[static_cast<size_t>(batch.pages[page]) * kPageTokens +
                            static_cast<size_t>(index % kPageTokens)];
      };
      for (int32_t row = 0; row < s.row_count; ++row) {
        const size_t at = static_cast<size_t>(s.row_begin + row);
        const int32_t index = s.kv_begin + row;
        CHECK(batch.positions[at] == index, "position ", batch.positions[at], " at ", index);
        cell(index) = batch.tokens[at];
        uint64_t hash = 2;
        for (int32_t i = 0; i <= index; ++i) hash = mix(hash, static_cast<uint64_t>(cell(i)));
        row_pages_[at] = hash;
      }
    }
    return h;
  }
  Residual moe_block(int, const Batch&, Residual h) override { return h; }
  Residual dense_mlp_block(int, const Batch&, Residual h) override { return h; }
  HeadOutput head(const Batch& batch, Residual) override {
    logits_.clear();
    for (const int32_t row : batch.logit_rows) {
      const size_t at = static_cast<size_t>(row);
      const uint64_t hash = mix(row_state_[at], row_pages_[at]);
      std::vector<float> logits = logits_of(hash);
      if (nan_every_ > 0 && hash % nan_every_ == 0)
        logits[3] = std::numeric_limits<float>::quiet_NaN();
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    return {.logits = logits_, .hidden = {}};
  }

  void zero_state(int32_t slot) override { states_[static_cast<size_t>(slot)] = 1; }
  void copy_state(int32_t from, int32_t to) override {
    states_[static_cast<size_t>(to)] = states_[static_cast<size_t>(from)];
  }
  void copy_page(int32_t from, int32_t to) override {
    std::ranges::copy(page_tokens(from), page_tokens(to).begin());
  }
  void store_page(int32_t page, int32_t host_page) override {
    std::ranges::copy(std::as_bytes(page_tokens(page)), host_.page(host_page).begin());
  }
  void load_page(int32_t host_page, int32_t page) override {
    std::ranges::copy(host_.page(host_page), std::as_writable_bytes(page_tokens(page)).begin());
  }
  void store_state(int32_t slot, int32_t host_slot) override {
    std::ranges::copy(std::as_bytes(state(slot)), host_.state(host_slot).begin());
  }
  void load_state(int32_t host_slot, int32_t slot) override {
    std::ranges::copy(host_.state(host_slot), std::as_writable_bytes(state(slot)).begin());
  }
  std::span<std::byte> host_page(int32_t host_page) override { return host_.page(host_page); }
  std::span<std::byte> host_state(int32_t host_slot) override { return host_.state(host_slot); }
  bool finite_page(int32_t page) override {
    return std::ranges::none_of(page_tokens(page), [](int32_t token) { return token < 0; });
  }
  bool finite_state(int32_t slot) override { return state(slot)[0] != kPoisonState; }
  void poison_page(int32_t page) override {
    std::ranges::fill(page_tokens(page), kPoison);
  }
  void poison_state(int32_t slot) override { states_[static_cast<size_t>(slot)] = kPoisonState; }

  int passes = 0;
  int rows_largest = 0;

 private:
  std::span<int32_t> page_tokens(int32_t page) {
    return std::span(page_tokens_)
        .subspan(static_cast<size_t>(page) * kPageTokens, static_cast<size_t>(kPageTokens));
  }
  std::span<uint64_t> state(int32_t slot) {
    return std::span(states_).subspan(static_cast<size_t>(slot), 1);
  }

  uint64_t nan_every_;
  PoolSizes sizes_;
  HostPools host_;
  std::vector<int32_t> page_tokens_;
  std::vector<uint64_t> states_;
  std::vector<uint64_t> row_state_;
  std::vector<uint64_t> row_pages_;
  std::vector<float> logits_;
};

}  // namespace nibble
