// Device memory of one pass between the blocks and inside them; reserved once.
#pragma once

#include "backend/cuda/runtime/device_memory.h"
#include "model/backend.h"
#include "model/config.h"

namespace nibble::cuda {

inline constexpr int32_t kSlabRows = 64;  // rows of one expert or head launch

/// Integers of Workspace::choices: per choice an expert, a weight and an assignment, two lists of
/// experts, three counts, a row's announced experts, and 16-byte items at the end.
constexpr int64_t choice_ints(int64_t slab, int64_t top_k, int64_t experts) {
  return (3 * slab * top_k + 2 * experts + 4 + top_k + 3) / 4 * 4 + 4 * slab * top_k;
}

/// Row stride of Workspace::act, and of what prompts have instead.
int64_t act_stride_of(const ModelConfig& config);

/// Row strides of BF16 inputs of linears are padded_columns(), times `parts`; the padding stays
/// zero. What is needed at different times lies in the same memory.
struct Workspace {
  /// `shared_bytes`: what others than this struct need of `shared`. `parts`: as below.
  static Result<Workspace> reserve(const ModelConfig& config, int32_t rows, int32_t splits_max,
                                   int64_t shared_bytes, int32_t parts = 1);

  /// The parts of a row of x, mixed and act; with activations f32 kF32Parts.
  int32_t parts = 1;

  int64_t x_stride = 0;      // of x
  int64_t mixed_stride = 0;  // of mixed
  int64_t act_stride = 0;    // of act
  int64_t gate_stride = 0;   // of gates and router

  DeviceBuffer h;      // F32 [rows][hidden], the residual stream
  DeviceBuffer x;      // BF16 [rows], the normed input of a block
  DeviceBuffer mixed;  // BF16 [rows], what o_proj and out_proj read
  DeviceBuffer first;  // F32 [rows]: q with gate, or raw qkv
  DeviceBuffer third;  // F32 [rows]: k and v, or z
  DeviceBuffer gates;  // F32 [rows][a | b]
  DeviceSlice y;       // F32 [rows][hidden], the output of a prompt's mixer or dense MLP: `first`
  DeviceSlice hidden;  // F32 [rows][hidden], after the final norm: `third`

  DeviceBuffer router;    // F32 [slab][experts | shared gate]
  DeviceBuffer act;       // BF16 [slab * (top_k + 1)], dense: [rows]
  DeviceBuffer expert_y;  // F32 [slab * (top_k + 1)][hidden]
  DeviceBuffer choices;   // Routing, see Routing in kernels.h
  DeviceBuffer flag;      // I32 [1]
  DeviceBuffer rounded;   // BF16, inputs as the checkpoint declares them (declared.h), or nothing

  // With activations f32, else nothing (f32_products.h); places are assignments and shared rows.
  DeviceBuffer spread;   // BF16 [places][x_stride], the inputs of experts
  DeviceBuffer gate_up;  // F32 [2][places][act columns]
  DeviceBuffer rest;     // F32 [places][hidden or act columns], zero between products

  DeviceBuffer shared;      // of one block of the model after another; from here on slices of it:
  DeviceSlice partial;      // pieces of attention
  DeviceSlice convolved;    // F32 [rows], qkv of a delta net
  DeviceSlice logits;       // F32 [slab][vocab]
  DeviceSlice hidden_rows;  // F32 [slab][hidden]
};

}  // namespace nibble::cuda
