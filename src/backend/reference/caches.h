// The two cache pools in F32: KV pages of the attention layers, state slots of the delta-net
// layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/backend.h"
#include "model/config/config.h"
#include "model/kv_format.h"

namespace nibble::reference {

/// Page layout: [KV layer][k | v][kPageTokens][kv_heads * head_dim]; the layers of attention, then
/// the one that drafts, if it is loaded.
class KvPages {
 public:
  /// automatic keeps F32; the other kinds are rounded to when kept.
  explicit KvPages(KvCache kind = KvCache::automatic, std::vector<KvScale> scales = {})
      : kind_(kind), scales_(std::move(scales)) {}
  void reserve(const ModelConfig& config, int32_t pages);
  static int64_t bytes(const ModelConfig& config);
  /// Keys or values of one token, [kv_heads * head_dim]. `layer` counts KV layers only;
  /// `token` is the index inside the sequence that owns the page table.
  float* key(const int32_t* page_table, int layer, int64_t token);
  float* value(const int32_t* page_table, int layer, int64_t token);
  /// The same as spans.
  std::span<float> key_line(const int32_t* page_table, int layer, int64_t token) {
    return {key(page_table, layer, token), width_};
  }
  std::span<float> value_line(const int32_t* page_table, int layer, int64_t token) {
    return {value(page_table, layer, token), width_};
  }
  /// Keeps one token's keys or values of a layer, as the kind of cache would, at `to`: what it
  /// rounds is divided by the layer's scale before and multiplied by it after.
  void keep(KvSide side, int layer, const float* from, float* to) const;
  /// Turns a query [head_dim] as the kind of cache turns its keys.
  void turn_query(float* query) const;
  void copy(int32_t from, int32_t to);
  void poison(int32_t page);
  KvCache kind() const { return kind_; }
  bool has_scales() const { return !scales_.empty(); }
  std::span<float> page(int32_t id) {
    return {&data_[static_cast<size_t>(id) * page_floats_], page_floats_};
  }

 private:
  float* at(const int32_t* page_table, int part, int64_t token);
  KvCache kind_;
  std::vector<KvScale> scales_;  // of the layers of attention; 1 where there is none
  size_t width_ = 0;             // of one token's keys
  size_t head_dim_ = 0;
  size_t page_floats_ = 0;
  std::vector<float> data_;
};

/// One delta-net layer's state of one sequence: `recurrent` [v_heads, k_dim, v_dim] and the last
/// conv_kernel - 1 raw inputs of the convolution, oldest first, `conv` [conv_kernel - 1, qkv_rows].
struct DeltaState {
  std::vector<float> recurrent;
  std::vector<float> conv;
};

/// Inputs of rows to replay, one row after the other: raw qkv [qkv_rows], b and a [v_heads] each.
/// With a layer that drafts, a slot also has the hidden row of its last token, and those of the
/// rows to replay.
using SavedInputs = std::vector<float>;

class StateSlots {
 public:
  explicit StateSlots(StateCache kind = StateCache::f32) : kind_(kind) {}
  StateCache kind() const { return kind_; }
  void reserve(const ModelConfig& config, const PoolSizes& sizes);
  static int64_t bytes(const ModelConfig& config);
  static int64_t saved_row_bytes(const ModelConfig& config);
  /// `layer` counts delta-net layers only.
  DeltaState& state(int32_t slot, int layer) {
    return slots_[static_cast<size_t>(slot)].layers[static_cast<size_t>(layer)];
  }
  SavedInputs& saved(int32_t slot, int layer) {
    return slots_[static_cast<size_t>(slot)].saved[static_cast<size_t>(layer)];
  }
  /// The hidden row of the token before a pass: after the last of `replay` saved inputs, or the
  /// slot's own.
  std::span<float> hidden_before(int32_t slot, int32_t replay);
  std::span<float> hidden(int32_t slot) { return hidden_before(slot, 0); }
  std::span<float> saved_hidden(int32_t slot, int32_t row) { return hidden_before(slot, row + 1); }
  /// Rounds numbers to those that a state of this kind keeps.
  void round(DeltaState& state) const;
  void copy(int32_t from, int32_t to);
  void fill(int32_t slot, float value);
  /// All values of a slot, the saved inputs last, to and from plain memory.
  void store(int32_t slot, std::span<std::byte> to);
  void load(std::span<const std::byte> from, int32_t slot);
  bool finite(int32_t slot) const;

 private:
  std::vector<std::span<float>> values(int32_t slot);

  struct Slot {
    std::vector<DeltaState> layers;
    std::vector<float> hidden;       // of the last token
    std::vector<SavedInputs> saved;  // by layer
    SavedInputs saved_hidden;
  };
  size_t hidden_width_ = 0;
  StateCache kind_;
  std::vector<Slot> slots_;
};

}  // namespace nibble::reference
