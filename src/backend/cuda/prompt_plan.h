// PromptPlan: the prompt rows of a batch as the prompt kernels want them (chunks of the recurrence,
// tiles of attention), and the memory those kernels need. Rows here count from the first prompt
// row.
#pragma once

#include <algorithm>

#include "backend/cuda/delta_chunk.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/flash_prefill.h"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/prefill_gemm.h"
#include "model/backend.h"
#include "model/config.h"

namespace nibble::cuda {

/// Memory of the feed-forward of prompts: A = rows * top_k assignments.
struct PromptMlpMemory {
  DeviceBuffer router;         // F32 [rows][experts | shared gate]
  DeviceBuffer chosen;         // I32 [A]
  DeviceBuffer chosen_weight;  // F32 [A]
  DeviceBuffer token;          // I32 [A]
  DeviceBuffer position;       // I32 [A]
  DeviceBuffer scratch;
  DeviceBuffer tiles;       // ExpertTile
  DeviceBuffer tile_count;  // I32 [1]
  DeviceBuffer act;         // BF16 [A][act_stride], then [rows][act_stride] of the shared expert
  DeviceBuffer y;           // BF16 [A][hidden], then [rows][hidden]
};

class PromptPlan {
 public:
  /// Whether the prompt kernels hold the shapes of a model; else all rows go the way of generated
  /// ones.
  static bool supports(const ModelConfig& config);

  Result<void> reserve(const ModelConfig& config, const PoolSizes& sizes, int64_t act_stride,
                       const CardLimit& card);
  /// Plans the prompt sequences of a batch, of which the first row is `first_row` on the device.
  /// `device_row` maps rows of the batch.
  template <typename DeviceRow>
  void upload(const Batch& batch, int32_t first_row, const DeviceRow& device_row,
              cudaStream_t stream) {
    Batch prompts;
    for (const BatchSequence& sequence : batch.sequences) {
      if (sequence.arithmetic != Arithmetic::prompt) continue;
      prompts.sequences.push_back(sequence);
      prompts.sequences.back().row_begin = device_row(sequence.row_begin) - first_row;
    }
    for (const StateSnapshot& snapshot : batch.snapshots) {
      const int32_t row = device_row(snapshot.row) - first_row;
      // Later snapshots of a row are copied from its first after the pass (DeviceBatch).
      const bool taken = std::ranges::any_of(
          prompts.snapshots, [row](const StateSnapshot& other) { return other.row == row; });
      if (row >= 0 && !taken) prompts.snapshots.push_back({.row = row, .slot = snapshot.slot});
    }
    copy(prompts, stream);
  }

  const PrefillDevice& device() const { return device_; }
  MatrixUnit unit() const { return unit_; }
  const PromptMlpMemory& mlp() const { return mlp_; }
  const DeltaChunk* chunks() const { return chunks_.as<DeltaChunk>(); }
  const DeltaSequence* sequences() const { return sequences_.as<DeltaSequence>(); }
  const FlashTile* tiles() const { return tiles_.as<FlashTile>(); }
  int32_t chunk_count() const { return chunk_count_; }
  int32_t sequence_count() const { return sequence_count_; }
  int32_t tile_count() const { return tile_count_; }
  void* delta_workspace() const { return delta_workspace_.as<void>(); }

 private:
  void copy(const Batch& prompts, cudaStream_t stream);
  Result<void> reserve_mlp(const ModelConfig& config, int64_t rows, int64_t act_stride);

  PrefillDevice device_;
  MatrixUnit unit_ = MatrixUnit::automatic;
  PromptMlpMemory mlp_;
  DeviceBuffer chunks_, sequences_, tiles_, delta_workspace_;
  PinnedBuffer host_;
  bool attends_ = false;
  bool recurs_ = false;
  int32_t chunk_count_ = 0;
  int32_t sequence_count_ = 0;
  int32_t tile_count_ = 0;
};

DeltaShape delta_shape(const ModelConfig& config);

}  // namespace nibble::cuda
