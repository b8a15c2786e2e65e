// The values that every block of this backend works with. Blocks are free functions in blocks.cc
// and prompt_blocks.cc; CudaBackend only forwards to them.
#pragma once

#include "backend/cuda/device_batch.h"
#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/delta_net/delta_net.h"
#include "backend/cuda/ops/draft/draft.h"
#include "backend/cuda/ops/embed/embed.h"
#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/quantized/quantized_rows.h"
#include "backend/cuda/prompt_plan.h"
#include "backend/cuda/runtime/device_pools.h"
#include "backend/cuda/weights/weight_store.h"
#include "backend/cuda/workspace.h"
#include "model/config/config.h"

namespace nibble::cuda {

class DeviceTaps;

struct Context {
  const ModelConfig& config;
  const WeightStore& weights;
  const RopeView& rope;
  const DevicePools& pools;
  const Workspace& work;
  const PromptPlan& plan;
  BatchView batch;    // the generated rows of the pass in work
  BatchView prompts;  // those of prompt arithmetic, after them; none if no prompt kernel fits
  BatchView all;
  int32_t splits_max = 1;
  Launcher launcher;
  const DeviceTaps* taps = nullptr;  // in calibration: sees the inputs of prompt rows

  const LayerWeights& layer(int index) const { return weights.layers[static_cast<size_t>(index)]; }
  /// The layer that drafts comes after those of the model.
  int draft_layer() const { return config.layer_count(); }
  /// Returns the number of an attention layer in the pages.
  int kv_layer(int layer) const {
    return layer < config.layer_count() ? config.kind_index(layer)
                                        : config.count(LayerKind::attention);
  }
};

/// h += output, x = norm(h) with the norm that follows half `half` of `layer`: 0 the mixer, 1 the
/// feed-forward. `args` says what the output is; rows begin at row_begin.
enum class Half : uint8_t { mixer, feed_forward };
AddNormArgs finish_args(const Context& context, int layer, Half half, int32_t row_begin,
                        AddNormArgs args);
void finish_half(const Context& context, int layer, Half half, int32_t row_begin,
                 const AddNormArgs& args);
/// The attention of a layer over rows of `batch`: shape, norms, rotation and pages.
AttentionArgs attention_args(const Context& context, int layer, const BatchView& batch);
/// The norm of `rows` rows of h before the mixer of a layer, into x.
AddNormArgs input_norm_args(const Context& context, int layer, int32_t rows, float* h, uint16_t* x);
/// x = the norm before the mixer of a layer, of generated rows in h, unless the mixer makes it.
void norm_input(const Context& context, int layer);
/// Adds x W^T of all generated rows to h; `codes`: x as W wants it, if it was made before.
void add_product(const Context& context, const DeviceLinear& weight, const uint16_t* x,
                 int64_t x_stride, const QuantizedInput& codes = {});

// Each reads work.x, updates work.h and leaves the next block's input in work.x.
void embed_block(const Context& context);
void attention_block(const Context& context, int layer);
void delta_net_block(const Context& context, int layer);
void moe_block(const Context& context, int layer);
void dense_mlp_block(const Context& context, int layer);
// These compute the prompt rows of each block, in prompt arithmetic.
void prompt_attention_block(const Context& context, int layer);
void prompt_delta_net_block(const Context& context, int layer);
void prompt_moe_block(const Context& context, int layer);
void prompt_dense_mlp_block(const Context& context, int layer);
/// Keys and values of the entries of prompt rows, whose joined rows are there.
void prompt_entries(const Context& context);
/// Keeps the entries of the layer that drafts of all rows of a pass, and the hidden rows of the
/// slots that it writes. Between the last layer and the head, whose inputs stay as they are.
void draft_entries_block(const Context& context);
/// One step of a round of drafts, for the rows of context.batch.
void draft_step_block(const Context& context, const DraftRows& rows);
/// Logits [count][rows of `head`] of at most kRowBlock rows; `rows` null: the first `count`.
void head_product(const Context& context, const DeviceLinear& head, const int32_t* rows,
                  int32_t count);
/// The same of the model's head, and the hidden states of the rows.
void head_block(const Context& context, const int32_t* rows, int32_t count);

}  // namespace nibble::cuda
