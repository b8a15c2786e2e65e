// FakeBackend, for tests: a "model" whose logits are a keyed hash of the whole token prefix. Half
// of the prefix is read back from the KV pages, half is carried in the state slot, so a wrong page,
// a stale page, a wrong, early or unzeroed state changes every later token. Its NaN spreads as real
// NaN does: through the state, through the pages, into the logits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/sample/sampler.h"
#include "model/backend.h"
#include "model/forward.h"
#include "model/host_pools.h"

namespace nibble {

class FakeBackend final : public Backend {
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
  };

  FakeBackend() : FakeBackend(Model{}) {}
  explicit FakeBackend(Model model) : model_(model) {}

  static ModelConfig config() {
    ModelConfig config;
    config.hidden = 1;
    config.vocab_rows = kVocab;
    config.layers = {LayerKind::delta_net, LayerKind::attention};
    config.dense_width = 1;
    config.max_positions = 4096;
    return config;
  }

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

   private:
    uint64_t pages() const { return size_ == 0 ? kPagesSeed : mix(before_, page_); }
    Model model_;
    int32_t size_ = 0;
    uint64_t state_ = kStateSeed;
    uint64_t before_ = kPagesSeed;
    uint64_t page_ = 0;
  };
  /// The value that the model sees of a row: its token, or its embedding; another one if the row is
  /// not at its index.
  static uint64_t row_value(int32_t token, const float* embedding, int32_t index,
                            const std::array<int32_t, 3>& position) {
    uint64_t value = static_cast<uint64_t>(token);
    if (embedding != nullptr) value = mix(4, std::bit_cast<uint32_t>(*embedding));
    if (position == std::array<int32_t, 3>{index, index, index}) return value;
    for (const int32_t axis : position) value = mix(value, static_cast<uint64_t>(axis));
    return value;
  }
  static std::vector<float> logits_of(uint64_t hash) {
    std::vector<float> logits(kVocab, std::numeric_limits<float>::quiet_NaN());
    if (hash == kNan) return logits;
    for (uint64_t token = 0; token < kVocab; ++token)
      logits[token] = static_cast<float>(mix(hash, token) >> 39) * 0x1.0p-22F;
    return logits;
  }

  std::string_view name() const override { return "fake"; }
  std::string arithmetic() override { return "fake"; }
  bool takes_media() const override { return takes_media_; }
  void refuse_media() { takes_media_ = false; }
  std::string description() const override { return "fake"; }
  Result<void> reserve(const PoolSizes& sizes) override {
    sizes_ = sizes;
    pages_.assign(static_cast<size_t>(sizes.pages) * kPageTokens, kPoison);
    states_.assign(static_cast<size_t>(sizes.state_slots) * slot_words(), kPoison);
    host_ = HostPools(sizes, page_bytes(), state_slot_bytes(), replay_row_bytes());
    return {};
  }
  int64_t page_bytes() const override { return kPageTokens * 8; }
  int64_t state_slot_bytes() const override { return 8; }
  int64_t replay_row_bytes() const override { return 8; }
  std::optional<ReservedBytes> reserved_bytes() const override {
    return ReservedBytes{.pages = std::ssize(pages_) * 8 - missing_bytes,
                         .states = std::ssize(states_) * 8};
  }

  Residual embed(const Batch& batch) override {
    CHECK(!asleep, "a pass while asleep");
    validate_batch(batch, config(), sizes_);
    ++passes;
    if (on_pass) on_pass(passes);
    if (passes_left > 0) --passes_left;
    rows_computed += batch.rows();
    for (const BatchSequence& s : batch.sequences)
      if (s.arithmetic == Arithmetic::prompt) prompt_rows_computed += s.row_count;
    rows_largest = std::max(rows_largest, batch.rows());
    set_values(batch);
    row_state_.assign(batch.tokens.size(), 0);
    row_pages_.assign(batch.tokens.size(), 0);
    return {.data = nullptr, .rows = batch.rows()};
  }
  Residual delta_net_block(int, const Batch& batch, Residual h) override {
    for (const BatchSequence& s : batch.sequences) {
      uint64_t state = this->state(s.state_in)[0];
      for (int32_t i = 0; i < s.replay; ++i)
        state = replayed(state, this->state(s.state_in)[1 + static_cast<size_t>(i)]);
      this->state(s.state_out)[0] = state;
      for (int32_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
        const uint64_t value = row_values_[static_cast<size_t>(row)];
        state = next_state(model_, state, value, s.arithmetic);
        row_state_[static_cast<size_t>(row)] = state;
        for (const StateSnapshot& snapshot : batch.snapshots)
          if (snapshot.row == row) this->state(snapshot.slot)[0] = state;
        if (s.write == StateWrite::replayed)
          this->state(s.state_out)[1 + static_cast<size_t>(row - s.row_begin)] = value;
      }
      if (s.write == StateWrite::rows) this->state(s.state_out)[0] = state;
    }
    return h;
  }
  Residual attention_block(int, const Batch& batch, Residual h) override {
    for (const BatchSequence& s : batch.sequences) {
      const bool whole = s.arithmetic == Arithmetic::generation || s.kv_begin % kPageTokens == 0;
      CHECK(whole, "a prompt was cut at ", s.kv_begin);
      const int32_t* table = batch.pages.data() + s.page_begin;
      uint64_t before = kPagesSeed;
      for (int32_t p = 0; p < s.kv_begin / kPageTokens; ++p)
        before = mix(before, page_cells(table[p])[kPageTokens - 1]);
      for (int32_t i = 0; i < s.row_count; ++i) {
        const auto row = static_cast<size_t>(s.row_begin + i);
        const int32_t index = s.kv_begin + i;
        const auto cells = page_cells(table[index / kPageTokens]);
        const auto at = static_cast<size_t>(index % kPageTokens);
        const uint64_t last = at > 0 ? cells[at - 1] : page_seed(index / kPageTokens);
        cells[at] = mix(last, cell(row_state_[row], row_values_[row]));
        row_pages_[row] = mix(before, cells[at]);
        if (at == kPageTokens - 1) before = row_pages_[row];
      }
    }
    return h;
  }
  Residual moe_block(int, const Batch&, Residual h) override { return h; }
  Residual dense_mlp_block(int, const Batch&, Residual h) override { return h; }
  HeadOutput head(const Batch& batch, Residual) override {
    logits_.clear();
    for (const int32_t row : batch.logit_rows) {
      const auto at = static_cast<size_t>(row);
      const std::vector<float> logits = logits_of(mix(row_state_[at], row_pages_[at]));
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    if (!model_.chooses || batch.choices.empty())
      return {.logits = logits_, .hidden = {}, .chosen = {}};
    chosen_.clear();
    for (size_t i = 0; i < batch.choices.size(); ++i) chosen_.push_back(choose(batch, i));
    return {.logits = {}, .hidden = {}, .chosen = chosen_};
  }
  void set_sampleable(std::span<const uint32_t> bits) override {
    sampler_ = Sampler(kVocab, {bits.begin(), bits.end()});
  }

  void zero_state(int32_t slot) override { state(slot)[0] = kStateSeed; }
  void copy_state(int32_t from, int32_t to) override {
    std::ranges::copy(state(from), state(to).begin());
  }
  void copy_page(int32_t from, int32_t to) override {
    std::ranges::copy(page_cells(from), page_cells(to).begin());
  }
  // memcpy(): algorithms over ranges are slow where tests are compiled without optimisation.
  void store_page(int32_t page, int32_t host_page) override {
    const auto to = host_.page(host_page);
    std::memcpy(to.data(), page_cells(page).data(), to.size());
  }
  void load_page(int32_t host_page, int32_t page) override {
    const auto from = host_.page(host_page);
    std::memcpy(page_cells(page).data(), from.data(), from.size());
  }
  void store_state(int32_t slot, int32_t host_slot) override {
    const auto to = host_.state(host_slot);
    std::memcpy(to.data(), state(slot).data(), to.size());
  }
  void load_state(int32_t host_slot, int32_t slot) override {
    const auto from = host_.state(host_slot);
    std::memcpy(state(slot).data(), from.data(), from.size());
  }
  std::span<std::byte> host_page(int32_t host_page) override { return host_.page(host_page); }
  std::span<std::byte> host_state(int32_t host_slot) override {
    return host_.state(host_slot).first(static_cast<size_t>(state_slot_bytes()));
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override {
    const auto sound = [](uint64_t cell) { return cell < kPoison; };
    return std::ranges::all_of(
               pages, [&](int32_t id) { return std::ranges::all_of(page_cells(id), sound); }) &&
           std::ranges::all_of(slots, [&](int32_t id) { return sound(state(id)[0]); });
  }
  void poison_page(int32_t page) override {
    const auto cells = page_cells(page);
    std::fill_n(cells.data(), cells.size(), kPoison);
  }
  void poison_state(int32_t slot) override { std::ranges::fill(state(slot), kPoison); }

  Result<void> alive() const override {
    if (passes_left != 0) return {};
    return make_error(ErrorCode::io, {.what = "the fake card failed"});
  }

  Result<void> sleep() override {
    asleep = true;
    ++sleeps;
    for (int32_t page = 0; page < sizes_.pages; ++page) poison_page(page);
    for (int32_t slot = 0; slot < sizes_.state_slots; ++slot) poison_state(slot);
    return {};
  }
  Result<void> wake() override {
    asleep = false;
    return {};
  }

  std::function<void(int)> on_pass;  // at the begin of each, with its number from 1
  int passes_left = -1;              // until it fails in the last of them; negative: never
  int64_t missing_bytes = 0;         // of pages, in its account of what it holds
  bool asleep = false;
  int sleeps = 0;
  int passes = 0;
  int64_t rows_computed = 0;
  int64_t prompt_rows_computed = 0;
  int rows_largest = 0;

 private:
  static constexpr uint64_t kStateSeed = 1;
  static constexpr uint64_t kPagesSeed = 2;
  static uint64_t page_seed(int32_t index) { return mix(3, static_cast<uint64_t>(index)); }
  static uint64_t next_state(const Model& model, uint64_t state, uint64_t value,
                             Arithmetic arithmetic) {
    const bool other = model.two_arithmetics && arithmetic == Arithmetic::generation;
    const uint64_t next = mix(state, value + (other ? 500 : 0));
    return model.nan_every > 0 && next % model.nan_every == 0 ? kNan : next;
  }
  /// Saved inputs are of generated tokens; poison is none.
  uint64_t replayed(uint64_t state, uint64_t saved) const {
    if (saved >= kPoison) return kNan;
    return next_state(model_, state, saved, Arithmetic::generation);
  }
  /// The value that a token leaves in its page. A deeper layer's keys depend on the state below.
  static uint64_t cell(uint64_t state, uint64_t value) { return mix(state, value + 1000); }
  void set_values(const Batch& batch) {
    const auto rows = batch.tokens.size();
    std::vector<const float*> embeddings(rows);
    for (const EmbeddingOverride& media : batch.embeddings)
      embeddings[static_cast<size_t>(media.row)] = media.embedding;
    row_values_.clear();
    for (const BatchSequence& s : batch.sequences)
      for (int32_t i = 0; i < s.row_count; ++i) {
        const auto row = static_cast<size_t>(s.row_begin + i);
        const auto& p = batch.positions;
        row_values_.push_back(row_value(batch.tokens[row], embeddings[row], s.kv_begin + i,
                                        {p[row], p[rows + row], p[2 * rows + row]}));
      }
  }
  std::span<uint64_t> page_cells(int32_t page) {
    return std::span(pages_).subspan(static_cast<size_t>(page) * kPageTokens,
                                     static_cast<size_t>(kPageTokens));
  }
  std::span<uint64_t> state(int32_t slot) {
    return std::span(states_).subspan(static_cast<size_t>(slot) * slot_words(), slot_words());
  }
  /// A device counts the tokens of a sequence as they come: what it has seen under a serial must
  /// stay.
  ChosenToken choose(const Batch& batch, size_t row) {
    const TokenHistory& history = batch.choices[row].history;
    CHECK(history.serial > 0, "a history without a serial");
    std::vector<int32_t> now(history.prompt.begin(), history.prompt.end());
    now.insert(now.end(), history.generated.begin(), history.generated.end());
    std::vector<int32_t>& before = said_[history.serial];
    CHECK(before.size() <= now.size() && std::equal(before.begin(), before.end(), now.begin()),
          "the history of serial ", history.serial, " is another one now");
    before = std::move(now);
    return sampler_.choose(std::span(logits_).subspan(row * kVocab, kVocab), batch.choices[row]);
  }
  size_t slot_words() const { return 1 + static_cast<size_t>(sizes_.replay_rows); }

  Model model_;
  bool takes_media_ = true;
  PoolSizes sizes_;
  HostPools host_;
  std::vector<uint64_t> pages_;
  std::vector<uint64_t> states_;
  std::vector<uint64_t> row_values_;
  std::vector<uint64_t> row_state_;
  std::vector<uint64_t> row_pages_;
  std::vector<float> logits_;
  Sampler sampler_{kVocab, Sampler::all_sampleable(kVocab)};
  std::map<uint64_t, std::vector<int32_t>> said_;  // by serial, as last seen
  std::vector<ChosenToken> chosen_;
};

}  // namespace nibble
