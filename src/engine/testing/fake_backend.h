// FakeBackend, for tests: a "model" whose logits are a keyed hash of the whole token prefix. Half
// of the prefix is read back from the KV pages, half is carried in the state slot, so a wrong page,
// a stale page, a wrong, early or unzeroed state changes every later token. Its NaN spreads as real
// NaN does: through the state, through the pages, into the logits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/sample/sampler.h"
#include "engine/testing/fake_model.h"
#include "engine/testing/fake_vision.h"
#include "model/backend.h"
#include "model/forward.h"
#include "model/host_pools.h"

namespace nibble {

class FakeBackend final : public Backend, public FakeModel {
 public:
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

  /// The same with a vision tower.
  static ModelConfig config_with_vision() {
    ModelConfig config = FakeBackend::config();
    config.vision = FakeVision::config();
    return config;
  }

  std::string_view name() const override { return "fake"; }
  std::string arithmetic() override { return "fake"; }
  std::string description() const override { return "fake"; }
  Result<void> reserve(const PoolSizes& sizes) override {
    sizes_ = sizes;
    pages_.assign(static_cast<size_t>(sizes.pages * words() * kPageTokens), kPoison);
    states_.assign(static_cast<size_t>(sizes.state_slots) * slot_words(), kPoison);
    host_ = HostPools(sizes, {.page = page_bytes(),
                              .state = state_slot_bytes(),
                              .replay_row = replay_row_bytes(),
                              .media_row = sizeof(float)});
    vision.reserve(sizes);
    return {};
  }
  bool has_vision() const override { return vision.reserved(); }
  void embed_patches(const VisionPiece& piece) override { vision.embed(piece); }
  void project_patches(int block, const VisionPiece& piece) override {
    vision.project(block, piece);
  }
  void attend_patches(int block, const VisionPiece& piece) override { vision.attend(block, piece); }
  void merge_patches(const VisionPiece& piece) override { vision.merge(piece); }
  bool finite_media(std::span<const int32_t> rows) override { return vision.finite(rows); }
  void move_media(CacheMove move, std::span<const IdPair> rows) override {
    host_.move_media(move, rows, [&](int32_t id) { return vision.row(id); });
  }
  void poison_media(std::span<const int32_t> rows) override { vision.poison(rows); }
  int64_t page_bytes() const override { return kPageTokens * 8 * words(); }
  int64_t state_slot_bytes() const override { return 8 * words(); }
  int64_t replay_row_bytes() const override { return 8 * words(); }
  std::optional<ReservedBytes> reserved_bytes() const override {
    return ReservedBytes{.pages = std::ssize(pages_) * 8 - missing_bytes,
                         .states = std::ssize(states_) * 8};
  }

  Residual embed(const Batch& batch) override {
    CHECK(!asleep, "a pass while asleep");
    validate_batch(batch, config(), sizes_);
    ++passes;
    rows_computed += batch.rows();
    sequences_last = static_cast<int>(batch.sequences.size());
    if (on_pass) on_pass(passes);
    if (passes_left > 0) --passes_left;
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
      for (int32_t i = 0; i < s.replay; ++i) state = replayed(state, saved(s.state_in, i)[0]);
      this->state(s.state_out)[0] = state;
      for (int32_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
        const uint64_t value = row_values_[static_cast<size_t>(row)];
        state = next_state(model_, state, value, s.arithmetic);
        row_state_[static_cast<size_t>(row)] = state;
        for (const StateSnapshot& snapshot : batch.snapshots)
          if (snapshot.row == row) this->state(snapshot.slot)[0] = state;
        if (s.write == StateWrite::replayed) saved(s.state_out, row - s.row_begin)[0] = value;
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
        before = mix(before, cells(table[p])[kPageTokens - 1]);
      for (int32_t i = 0; i < s.row_count; ++i) {
        const auto row = static_cast<size_t>(s.row_begin + i);
        const int32_t index = s.kv_begin + i;
        row_pages_[row] = mix(before, write(cells(table[index / kPageTokens]), index,
                                            cell(row_state_[row], row_values_[row])));
        if (index % kPageTokens == kPageTokens - 1) before = row_pages_[row];
      }
    }
    return h;
  }
  /// The entry of a token is the cell that the model's own layer writes, made of the hidden row
  /// before it, which is the state there.
  void keep_draft_entries(const Batch& batch, Residual) override {
    if (!drafts()) return;
    for (const BatchSequence& s : batch.sequences) {
      const uint64_t first = hidden_before(s.state_in, s.replay);
      for (int32_t i = 0; i < s.row_count; ++i) {
        const auto row = static_cast<size_t>(s.row_begin + i);
        const uint64_t before = i == 0 ? first : row_state_[row - 1];
        const int32_t index = s.kv_begin + i;
        const uint64_t value = entry_values_[row];
        const int32_t page = batch.pages[static_cast<size_t>(s.page_begin + index / kPageTokens)];
        uint64_t& entry = write(entries(page), index,
                                cell(next_state(model_, before, value, s.arithmetic), value));
        entry = finite_or_zero(entry);
      }
      keep_hidden(s, first);
    }
    for (const StateSnapshot& snapshot : batch.snapshots)
      state(snapshot.slot)[1] = finite_or_zero(row_state_[static_cast<size_t>(snapshot.row)]);
  }
  bool drafts() const override { return model_.drafts.has_value(); }
  DraftOutput draft(const DraftBatch& batch) override {
    if (on_draft) on_draft(batch.sequences.front().count);
    validate_draft(batch, config(), sizes_);
    const auto most = static_cast<size_t>(batch.sequences.front().count);
    drafted_.assign(batch.sequences.size() * most, -1);
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const DraftSequence& s = batch.sequences[i];
      const int32_t* table = batch.pages.data() + s.page_begin;
      uint64_t hidden = hidden_before(s.state, s.replay);
      uint64_t before = kPagesSeed;
      for (int32_t p = 0; p < s.kv_begin / kPageTokens; ++p)
        before = mix(before, entries(table[p])[kPageTokens - 1]);
      int32_t token = s.token;
      for (int32_t step = 0; step < s.count && token >= 0; ++step) {
        const int32_t index = s.kv_begin + step;
        const int32_t p = s.position + step - 1;
        const uint64_t value = entry_value(
            token, nullptr, index, step == 0 ? s.position_before : std::array<int32_t, 3>{p, p, p});
        hidden = next_state(model_, hidden, value, Arithmetic::generation);
        const uint64_t entry =
            write(entries(table[index / kPageTokens]), index, cell(hidden, value));
        const uint64_t hash = drafts_broken ? kNan : mix(hidden, mix(before, entry));
        token = drafted_token(model_, hash, sampler_.sampleable());
        if (drafts_wrong && token >= 0) token = (token + 1) % kVocab;
        drafted_[i * most + static_cast<size_t>(step)] = token;
      }
    }
    return {.tokens = drafted_, .logits = {}};
  }
  Residual moe_block(int, const Batch&, Residual h) override { return h; }
  Residual dense_mlp_block(int, const Batch&, Residual h) override { return h; }
  bool begin_head(const Batch& batch, Residual) override {
    CHECK(!begun_, "the tokens of the pass before were not read");
    if (!model_.overlaps || !model_.chooses || batch.choices.empty()) return false;
    begun_ = true;
    begun_pass_ = passes;
    compute_head(batch);
    late_ = chosen_;
    chosen_.clear();
    return true;
  }
  HeadOutput end_head() override {
    CHECK(begun_, "no head was begun");
    begun_ = false;
    if (on_wait) on_wait(begun_pass_);
    chosen_ = late_;
    return {.logits = {}, .hidden = {}, .chosen = chosen_};
  }
  HeadOutput head(const Batch& batch, Residual) override {
    CHECK(!begun_, "the tokens of the pass before were not read");
    if (on_wait) on_wait(passes);
    return compute_head(batch);
  }
  void set_sampleable(std::span<const uint32_t> bits) override {
    sampler_ = Sampler(kVocab, {bits.begin(), bits.end()});
  }

  void zero_states(std::span<const int32_t> slots) override {
    for (const int32_t slot : slots)
      std::ranges::fill(state(slot).first(static_cast<size_t>(words())), kStateSeed);
  }
  // memcpy(): algorithms over ranges are slow where tests are compiled without optimisation.
  void move_pages(CacheMove move, std::span<const IdPair> pages) override {
    const auto here = [&](int32_t id) { return std::as_writable_bytes(page_cells(id)); };
    const auto host = [&](int32_t id) { return host_.page(id); };
    move_ids(move, pages, here, host);
  }
  void move_states(CacheMove move, std::span<const IdPair> slots) override {
    const auto here = [&](int32_t id) { return std::as_writable_bytes(state(id)); };
    const auto host = [&](int32_t id) { return host_.state(id); };
    move_ids(move, slots, here, host);
  }
  std::span<std::byte> host_page(int32_t host_page) override { return host_.page(host_page); }
  std::span<std::byte> host_state(int32_t host_slot) override {
    return host_.state(host_slot).first(static_cast<size_t>(state_slot_bytes()));
  }
  bool finite(std::span<const int32_t> pages, std::span<const int32_t> slots) override {
    const auto sound = [](uint64_t cell) { return cell < kPoison; };
    return std::ranges::all_of(
               pages, [&](int32_t id) { return std::ranges::all_of(page_cells(id), sound); }) &&
           std::ranges::all_of(slots, [&](int32_t id) {
             return std::ranges::all_of(state(id).first(static_cast<size_t>(words())), sound);
           });
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
    if (wakes_failing > 0 && wakes_failing-- > 0)
      return make_error(ErrorCode::io, {.what = "the fake card does not wake"});
    asleep = false;
    return {};
  }

  FakeVision vision;
  std::function<void(int)> on_draft;  // at the begin of each call that drafts, with its steps
  bool drafts_wrong = false;          // the layer drafts another token than it should
  bool drafts_broken = false;         // the layer that drafts computes NaN
  std::function<void(int)> on_pass;   // at the begin of each, with its number from 1
  std::function<void(int)> on_wait;   // where its tokens are waited for
  int passes_left = -1;               // until it fails in the last of them; negative: never
  int64_t missing_bytes = 0;          // of pages, in its account of what it holds
  int wakes_failing = 0;              // so many calls of wake() fail
  bool asleep = false;
  int sleeps = 0;
  int passes = 0;
  int64_t rows_computed = 0;
  int64_t prompt_rows_computed = 0;
  int rows_largest = 0;
  int sequences_last = 0;  // sequences of the last pass

 private:
  /// Saved inputs are of generated tokens; poison is none.
  uint64_t replayed(uint64_t state, uint64_t saved) const {
    if (saved >= kPoison) return kNan;
    return next_state(model_, state, saved, Arithmetic::generation);
  }
  void set_values(const Batch& batch) {
    const auto rows = batch.tokens.size();
    std::vector<const float*> embeddings(rows);
    for (const EmbeddingOverride& media : batch.embeddings)
      embeddings[static_cast<size_t>(media.row)] = vision.row(media.place);
    row_values_.clear();
    entry_values_.clear();
    for (const BatchSequence& s : batch.sequences)
      for (int32_t i = 0; i < s.row_count; ++i) {
        const auto row = static_cast<size_t>(s.row_begin + i);
        const auto& p = batch.positions;
        const int32_t index = s.kv_begin + i;
        row_values_.push_back(row_value(token_of(batch, row), embeddings[row], index,
                                        {p[row], p[rows + row], p[2 * rows + row]}));
        entry_values_.push_back(entry_value(token_of(batch, row), embeddings[row], index,
                                            position_before(batch, s, i)));
      }
  }
  /// Returns any token if none could be chosen: its sequence ends.
  int32_t token_of(const Batch& batch, size_t row) const {
    if (batch.carried.empty() || batch.carried[row] < 0) return batch.tokens[row];
    CHECK(begun_, "no head has chosen the token of row ", row);
    return std::max(late_.at(static_cast<size_t>(batch.carried[row])).token, 0);
  }
  /// A place in a page and a row in a slot have one of the model, and one of the layer that drafts.
  int64_t words() const { return drafts() ? 2 : 1; }
  std::span<uint64_t> page_cells(int32_t page) {
    const auto size = static_cast<size_t>(kPageTokens * words());
    return std::span(pages_).subspan(static_cast<size_t>(page) * size, size);
  }
  std::span<uint64_t> cells(int32_t page) { return page_cells(page).first(kPageTokens); }
  std::span<uint64_t> entries(int32_t page) { return page_cells(page).last(kPageTokens); }
  /// Writes what place `index` of a sequence has on its page: a hash of all values up to its own.
  static uint64_t& write(std::span<uint64_t> page, int32_t index, uint64_t value) {
    const auto at = static_cast<size_t>(index % kPageTokens);
    page[at] = mix(at > 0 ? page[at - 1] : page_seed(index / kPageTokens), value);
    return page[at];
  }
  /// A slot: the state, the hidden row; then the same of each saved row.
  std::span<uint64_t> saved(int32_t slot, int32_t row) {
    const auto width = static_cast<size_t>(words());
    return state(slot).subspan((1 + static_cast<size_t>(row)) * width, width);
  }
  uint64_t hidden_before(int32_t slot, int32_t replay) {
    return replay == 0 ? state(slot)[1] : saved(slot, replay - 1)[1];
  }
  void keep_hidden(const BatchSequence& s, uint64_t before) {
    const auto state_of = [&](int32_t i) {
      return finite_or_zero(row_state_[static_cast<size_t>(s.row_begin + i)]);
    };
    const bool drafted = s.write == StateWrite::replayed;
    state(s.state_out)[1] = drafted ? finite_or_zero(before) : state_of(s.row_count - 1);
    for (int32_t i = 0; drafted && i < s.row_count; ++i) saved(s.state_out, i)[1] = state_of(i);
  }
  std::span<uint64_t> state(int32_t slot) {
    return std::span(states_).subspan(static_cast<size_t>(slot) * slot_words(), slot_words());
  }
  HeadOutput compute_head(const Batch& batch) {
    logits_.clear();
    for (const int32_t row : batch.logit_rows) {
      const auto at = static_cast<size_t>(row);
      const std::vector<float> logits = logits_of(mix(row_state_[at], row_pages_[at]));
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    if (!model_.chooses || batch.choices.empty())
      return {.logits = logits_, .hidden = {}, .chosen = {}};
    CHECK(batch.choices.size() == batch.logit_rows.size(), "choices ", batch.choices.size());
    chosen_.clear();
    for (size_t i = 0; i < batch.choices.size(); ++i) chosen_.push_back(choose(batch, i));
    return {.logits = {}, .hidden = {}, .chosen = chosen_};
  }
  /// A device counts the tokens of a sequence as they come: what it has seen under a serial must
  /// stay.
  ChosenToken choose(const Batch& batch, size_t row) {
    const TokenHistory& history = batch.choices[row].history;
    const bool is_void = history.serial == 0 && batch.sequences.size() == batch.choices.size();
    CHECK(history.serial > 0 || is_void, "a history without a serial");
    if (is_void) return {.token = 0};
    std::vector<int32_t> now(history.prompt.begin(), history.prompt.end());
    now.insert(now.end(), history.generated.begin(), history.generated.end());
    std::vector<int32_t>& before = said_[history.serial];
    CHECK(before.size() <= now.size() && std::equal(before.begin(), before.end(), now.begin()),
          "the history of serial ", history.serial, " is another one now");
    before = std::move(now);
    return sampler_.choose(std::span(logits_).subspan(row * kVocab, kVocab), batch.choices[row]);
  }
  /// Moves the bytes of ids in an order of its own, as a device may.
  template <typename Here, typename Host>
  static void move_ids(CacheMove move, std::span<const IdPair> ids, const Here& here,
                       const Host& host) {
    for (const IdRun& run : adjacent_runs(move, ids))
      for (int32_t i = run.count - 1; i >= 0; --i) {
        const auto from = move == CacheMove::load ? host(run.from + i) : here(run.from + i);
        const auto to = move == CacheMove::store ? host(run.to + i) : here(run.to + i);
        std::memcpy(to.data(), from.data(), to.size());
      }
  }
  size_t slot_words() const {
    return static_cast<size_t>(words()) * (1 + static_cast<size_t>(sizes_.replay_rows));
  }

  Model model_;
  PoolSizes sizes_;
  HostPools host_;
  std::vector<uint64_t> pages_;
  std::vector<uint64_t> states_;
  std::vector<uint64_t> row_values_;
  std::vector<uint64_t> entry_values_;
  std::vector<uint64_t> row_state_;
  std::vector<uint64_t> row_pages_;
  std::vector<float> logits_;
  Sampler sampler_{kVocab, Sampler::all_sampleable(kVocab)};
  std::map<uint64_t, std::vector<int32_t>> said_;  // by serial, as last seen
  std::vector<ChosenToken> chosen_;
  std::vector<ChosenToken> late_;  // of the head that was begun and not ended
  bool begun_ = false;
  int begun_pass_ = 0;
  std::vector<int32_t> drafted_;
};

}  // namespace nibble
