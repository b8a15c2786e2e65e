// The gated delta rule of rows, token by token, with the causal convolution and SiLU before it and
// the gated norm after it (model.md 2.4): generation arithmetic. In a pass with BatchView::replays a
// sequence first applies saved inputs to its state; one that is drafted writes that state, saves the
// inputs of its rows, and forgets the state after them (docs/decisions/replay.md).
//   Oracle: reference::delta_net (block_test.cc). Bytes moved: each sequence's state once in and
//   once out, qkv and z once. Any number of rows and sequences; a row has the same bits alone and
//   in any batch. delta_chunk.h has the rule for prompts, 64 tokens at a time.
#pragma once

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

inline constexpr int kDeltaDimMax = 128;
inline constexpr int kConvTapsMax = 8;

/// portable: the kernel that runs from compute capability 8.0 up, for any shape; tests force it.
/// in_parts: that kernel with `out` in kF32Parts parts.
enum class DeltaNetKernels : uint8_t { automatic, portable, in_parts };

struct DeltaNetArgs {
  BatchView batch;
  int32_t k_heads = 0;
  int32_t v_heads = 0;
  int32_t k_dim = 0;           // at most kDeltaDimMax
  int32_t v_dim = 0;           // at most kDeltaDimMax
  int32_t taps = 0;            // at most kConvTapsMax
  const float* qkv = nullptr;  // [rows][qkv_rows], raw; null: convolved is there
  float* convolved = nullptr;  // [rows][qkv_rows]
  float* replayed = nullptr;   // [sequences][replay_rows][saved_numbers]: qkv convolved, a, b
  int32_t replay_rows = 0;     // the most saved rows of a sequence
  const float* z = nullptr;    // [rows][v_heads * v_dim]
  const float* a = nullptr;    // [rows] at stride gate_stride
  const float* b = nullptr;
  int64_t gate_stride = 0;
  const float* conv = nullptr;     // [qkv_rows][taps]
  const float* decay = nullptr;    // [v_heads]
  const float* dt_bias = nullptr;  // [v_heads]
  const float* norm = nullptr;     // [v_dim]
  float eps = 0.0F;
  StateView state;
  uint16_t* out = nullptr;  // [rows][out_stride]
  int64_t out_stride = 0;
  DeltaNetKernels kernels = DeltaNetKernels::automatic;
  constexpr int32_t qkv_rows() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  constexpr int32_t saved_numbers() const { return qkv_rows() + 2 * v_heads; }
};
void delta_net(const DeltaNetArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
