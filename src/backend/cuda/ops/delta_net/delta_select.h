// The choice of the kernels of a delta net: a pure function of the shape, the format of the state,
// the extent of the launch and the card, so that it can be printed and tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/ops/delta_net/delta_net.h"
#include "backend/cuda/ptx/tile_bytes.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

/// The plan of the recurrence of generated rows.
struct DeltaNetPlan {
  enum class Kernel : uint8_t {
    portable,  // delta_net.cu: a block a head and sequence
    stream,    // recurrence_stream.cuh: blocks walk heads and load the next state meanwhile
    split,     // recurrence_stream.cuh: a cluster shares a head
    convolve,  // recurrence_convolve.cuh: `stream` with the convolution before it
  } kernel = Kernel::portable;
  /// apart: a kernel before the recurrence. fused: the recurrence computes it. done: the product
  /// before has computed it.
  enum class Convolution : uint8_t { apart, fused, done } convolution = Convolution::apart;
  StateFormat state = StateFormat::f32;
  enum class Access : uint8_t { vectors, numbers } access = Access::vectors;  // of a state
  bool replays = false;
  int32_t channel_parts = 0;  // convolve: channels of a thread
  int32_t blocks = 0;
  int32_t threads = 0;
  int32_t cluster = 1;
  int32_t shared_bytes = 0;  // dynamic, of a thread block

  bool operator==(const DeltaNetPlan&) const = default;
  std::string text() const;
};
DeltaNetPlan select_delta_net(const DeltaNetArgs& args, const Architecture& card);
/// Bytes of the states of so many sequences, read and written once.
int64_t delta_state_bytes(const DeltaNetArgs& args);

/// The recurrence of prompt rows, 64 tokens at a time: the kernel along the chunks of a run.
struct DeltaChunkPlan {
  int32_t k_dim = 0;
  StateFormat state = StateFormat::f32;
  int32_t resident = 1;  // thread blocks that share an SM
  int32_t stages = 1;    // chunks in shared memory
  int32_t shared_bytes = 0;

  bool operator==(const DeltaChunkPlan&) const = default;
  std::string text() const;
};
/// With one run, blocks are at most as many as SMs, and they copy a chunk ahead. With several runs,
/// two blocks that do not copy ahead share an SM and hide each other's waits.
enum class DeltaRuns : uint8_t { one, several };
DeltaChunkPlan select_delta_chunk(const DeltaShape& shape, StateFormat state, DeltaRuns runs,
                                  const Architecture& card);

// ---- sizes that kernels and the choice share ----

inline constexpr int kStreamDim = 128;
inline constexpr int kStreamThreads = 256;
inline constexpr int kStreamWarps = kStreamThreads / 32;
inline constexpr int kStreamBlocks = 2;  // that share an SM
inline constexpr int kSplitBlocks = 4;   // of a cluster, for one head
inline constexpr int kFusedTaps = 4;
inline constexpr int kFusedHeadsMax = 4;  // value heads of a key head
inline constexpr int kUnitsMax = 32;      // (sequence, key head) pairs of a block of `convolve`
/// Returns the channels of a thread of `convolve`: those of q, of k, then of the value heads.
constexpr int channel_parts(int heads) {
  return ((2 + heads) * kStreamDim + kStreamThreads - 1) / kStreamThreads;
}
inline constexpr int kStreamSharedBytes = 73856;
inline constexpr int kConvolveSharedBytes = 77568;

inline constexpr int kDeltaAlongThreads = 256;
inline constexpr int kValueColumns = 32;  // of the state, one block's share along a sequence
/// Returns the shared memory of a stage along the chunks, which has q, k, p, t, 32 columns of v and
/// the terms of rows.
constexpr int along_stage_bytes(int k_dim) {
  return 2 * tile_bytes(k_dim) + 2 * tile_bytes(kTileLines) + kTileLines * kValueColumns * 2 + 1024;
}
/// Returns the shared memory of a block: the state and three products of 32 columns, in two BF16
/// terms each, and `stages` stages.
constexpr int along_shared_bytes(int k_dim, int stages) {
  return ((k_dim + 63) / 64 + 3) * tile_bytes(2 * kValueColumns) +
         stages * along_stage_bytes(k_dim);
}

}  // namespace nibble::cuda
