// h += Wo (attention(q, k, v) * sigmoid(gate)) with q, k, v, gate from norm(h). model.md 2.3.
#include <algorithm>
#include <cmath>

#include "backend/cpu/context.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/split.h"
#include "model/host_pools.h"
#include "model/kv_codec.h"

namespace nibble::cpu {
namespace {

/// One attention layer of one pass.
struct Attention {
  const Context& context;
  const AttentionConfig& shape;
  const AttentionWeights& weights;
  const Batch& batch;
  int index;  // of this layer among those of a page
  int first_key;

  int q_stride() const { return shape.output_gate ? 2 * shape.head_dim : shape.head_dim; }
  int group() const { return shape.q_heads / shape.kv_heads; }

  void turn(float* head, const std::vector<float>& norm, int64_t row) const;
  Pools::KvPlace place_of(const BatchSequence& sequence, int i, int kv_head) const;
  void store_row(const BatchSequence& sequence, int i) const;
  void keep_row(const BatchSequence& sequence, int i) const;
  void divide_values(int64_t row) const;
  void attend(const BatchSequence& sequence, int kv_head, int begin, int end) const;
  void attend_all(const BatchSequence& sequence) const;
};

/// Norm and rotation of one head.
void Attention::turn(float* head, const std::vector<float>& norm, int64_t row) const {
  context.kernels.rms_norm(
      {.x = head, .w = norm.data(), .y = head, .n = shape.head_dim, .eps = context.config.rms_eps});
  rotate(head, context.work.cos.row(row), context.work.sin.row(row), context.rope.pairs());
}

Pools::KvPlace Attention::place_of(const BatchSequence& sequence, int i, int kv_head) const {
  const int token = sequence.kv_begin + i;
  return {.page = batch.pages[static_cast<size_t>(sequence.page_begin + token / kPageTokens)],
          .layer = index,
          .kv_head = kv_head,
          .slot = token % kPageTokens};
}

/// Turns the keys of row i of a sequence and writes them and its values to their page, as
/// keep_keys() says.
void Attention::keep_row(const BatchSequence& sequence, int i) const {
  Workspace& work = context.work;
  const int64_t row = sequence.row_begin + i;
  const auto columns = static_cast<size_t>(shape.kv_heads) * static_cast<size_t>(shape.head_dim);
  const std::span<float> keys(work.k.row(row), columns), values(work.v.row(row), columns);
  for (int h = 0; h < shape.kv_heads; ++h)
    turn(keys.data() + h * shape.head_dim, weights.k_norm, row);
  if (sequence.kv_begin + i < first_key || !all_finite(keys) || !all_finite(values)) {
    std::ranges::fill(keys, 0.0F);
    std::ranges::fill(values, 0.0F);
  }
  divide_values(row);
  for (int h = 0; h < shape.kv_heads; ++h)
    context.pools.keep(place_of(sequence, i, h), keys.data() + h * shape.head_dim,
                       values.data() + h * shape.head_dim);
}

/// Divides the values of a row by the scale of its layer's pages.
void Attention::divide_values(int64_t row) const {
  if (weights.value_scale == 1.0F) return;
  float* values = context.work.v.row(row);
  for (int i = 0; i < shape.kv_heads * shape.head_dim; ++i) values[i] /= weights.value_scale;
}

/// Turns queries and keys of row i of a sequence and writes its keys and values to their page.
void Attention::store_row(const BatchSequence& sequence, int i) const {
  Workspace& work = context.work;
  const int64_t row = sequence.row_begin + i;
  for (int h = 0; h < shape.q_heads; ++h) {
    float* query = work.q.row(row) + h * q_stride();
    turn(query, weights.q_norm, row);
    kv_turn_query(context.pools.format(), {query, static_cast<size_t>(shape.head_dim)});
  }
  divide_values(row);
  for (int h = 0; h < shape.kv_heads; ++h) {
    float* key = work.k.row(row) + h * shape.head_dim;
    turn(key, weights.k_norm, row);
    context.pools.keep(place_of(sequence, i, h), key, work.v.row(row) + h * shape.head_dim);
  }
}

/// Queries [begin, end) of one KV head: query i is row i / group, head i % group of the group.
void Attention::attend(const BatchSequence& sequence, int kv_head, int begin, int end) const {
  Workspace& work = context.work;
  AttentionTile tile = {.queries = end - begin,
                        .head_dim = shape.head_dim,
                        .scale = static_cast<float>(1.0 / std::sqrt(shape.head_dim)),
                        .first_key = first_key,
                        .format = context.pools.format(),
                        .pages = &batch.pages[static_cast<size_t>(sequence.page_begin)],
                        .cache = context.pools.pages(),
                        .page_stride = context.pools.page_stride(),
                        .k_offset = context.pools.k_offset(index, kv_head),
                        .v_offset = context.pools.v_offset(index, kv_head)};
  for (int i = begin; i < end; ++i) {
    const int64_t row = sequence.row_begin + i / group();
    const int head = kv_head * group() + i % group();
    tile.q[i - begin] = work.q.row(row) + head * q_stride();
    tile.out[i - begin] = work.attention_out.row(row) + head * shape.head_dim;
    tile.visible[i - begin] = sequence.kv_begin + i / group() + 1;
  }
  context.kernels.attention(tile);
  if (weights.value_scale != 1.0F)
    for (int i = 0; i < tile.queries; ++i)
      for (int d = 0; d < shape.head_dim; ++d) tile.out[i][d] *= weights.value_scale;
  if (!shape.output_gate) return;
  for (int i = 0; i < tile.queries; ++i)
    context.kernels.sigmoid_gate(tile.out[i], tile.q[i] + shape.head_dim, shape.head_dim);
}

void Attention::attend_all(const BatchSequence& sequence) const {
  const int queries = sequence.row_count * group();
  const int tile = context.kernels.queries_per_tile;
  const int64_t tiles = (queries + tile - 1) / tile;
  const int64_t keys = sequence.kv_begin + sequence.row_count;
  const int64_t cost = keys * shape.head_dim * tile / 8;
  split(context.pool, shape.kv_heads * tiles, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto first = static_cast<int>(t % tiles) * tile;
      attend(sequence, static_cast<int>(t / tiles), first, std::min(queries, first + tile));
    }
  });
}

Attention of_layer(const Context& context, const AttentionLayer& layer, const Batch& batch) {
  return {.context = context,
          .shape = context.config.attention,
          .weights = layer.weights.attention,
          .batch = batch,
          .index = layer.kv_layer,
          .first_key = layer.first_key};
}

}  // namespace

void keep_keys(const Context& context, const AttentionLayer& layer, const Batch& batch) {
  Workspace& work = context.work;
  const Attention attention = of_layer(context, layer, batch);
  const AttentionWeights& weights = attention.weights;
  const int64_t rows = batch.rows();
  const LinearCall inputs[] = {product(weights.k, work.normed, work.k, rows),
                               product(weights.v, work.normed, work.v, rows)};
  context.linears.run(inputs);
  const int64_t turn_cost = int64_t{attention.shape.kv_heads} * attention.shape.head_dim;
  for (const BatchSequence& sequence : batch.sequences)
    split(context.pool, sequence.row_count, turn_cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) attention.keep_row(sequence, static_cast<int>(i));
    });
}

void attention_block(const Context& context, const AttentionLayer& layer, const Batch& batch) {
  Workspace& work = context.work;
  const LayerWeights& weights = layer.weights;
  const Attention attention = of_layer(context, layer, batch);
  const int64_t rows = batch.rows();
  norm_hidden(context, weights.input_norm, rows);
  const LinearCall inputs[] = {product(weights.attention.q, work.normed, work.q, rows),
                               product(weights.attention.k, work.normed, work.k, rows),
                               product(weights.attention.v, work.normed, work.v, rows)};
  context.linears.run(inputs);
  const int64_t turn_cost = int64_t{attention.shape.q_heads + 4 * attention.shape.kv_heads} *
                            attention.shape.head_dim / 4;
  for (const BatchSequence& sequence : batch.sequences) {
    split(context.pool, sequence.row_count, turn_cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) attention.store_row(sequence, static_cast<int>(i));
    });
    attention.attend_all(sequence);
  }
  LinearCall out = product(weights.attention.o, work.attention_out, work.hidden, rows);
  out.add = true;
  context.linears.run({&out, 1});
}

}  // namespace nibble::cpu
