// PromptPlan: the prompt rows of a batch as the prompt kernels want them (chunks of the recurrence,
// tiles of attention), and the memory those kernels need. Rows here count from the first prompt
// row.
#pragma once

#include <algorithm>

#include "backend/cuda/ops/attention/flash_prefill.h"
#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/route/grouped_gemm.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/backend.h"
#include "model/config.h"

namespace nibble::cuda {

/// Memory of the feed-forward of prompts: A = rows * top_k assignments. Slices are of
/// Workspace::shared; the padding of act stays zero.
struct PromptMlpMemory {
  DeviceSlice router;         // F32 [rows][experts | shared gate]
  DeviceSlice chosen;         // I32 [A]
  DeviceSlice chosen_weight;  // F32 [A]
  DeviceSlice token;          // I32 [A]
  DeviceSlice position;       // I32 [A]
  DeviceSlice scratch;
  DeviceSlice tiles;       // ExpertTile
  DeviceSlice tile_count;  // I32 [1]
  DeviceBuffer act;        // BF16 [A][act_stride], then [rows][act_stride] of the shared expert
  DeviceSlice y;           // BF16 [A][hidden], then [rows][hidden]
};

class PromptPlan {
 public:
  /// True if the prompt kernels support the shapes of a model; else all rows go the way of
  /// generated ones.
  static bool supports(const ModelConfig& config);

  /// The bytes it needs of Workspace::shared.
  static int64_t shared_bytes(const ModelConfig& config, const PoolSizes& sizes);
  Result<void> reserve(const ModelConfig& config, const PoolSizes& sizes,
                       const DeviceBuffer& shared, const Architecture& card);
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

  const PromptMlpMemory& mlp() const { return mlp_; }
  const DeltaChunk* chunks() const { return chunks_.as<DeltaChunk>(); }
  const DeltaSequence* sequences() const { return sequences_.as<DeltaSequence>(); }
  const FlashTile* tiles() const { return tiles_.as<FlashTile>(); }
  const DeltaRun* runs() const { return runs_.as<DeltaRun>(); }
  std::span<const DeltaGroup> groups() const { return groups_; }
  int32_t sequence_count() const { return sequence_count_; }
  int32_t tile_count() const { return tile_count_; }
  void* delta_workspace() const { return delta_workspace_.as<void>(); }

 private:
  void copy(const Batch& prompts, cudaStream_t stream);

  PromptMlpMemory mlp_;
  DeviceBuffer chunks_, sequences_, runs_, tiles_;
  DeviceSlice delta_workspace_;
  PinnedBuffer host_;
  bool attends_ = false;
  bool recurs_ = false;
  int32_t group_chunks_ = kDeltaGroupChunks;
  std::vector<DeltaGroup> groups_;
  int32_t sequence_count_ = 0;
  int32_t tile_count_ = 0;
};

DeltaShape delta_shape(const ModelConfig& config);

}  // namespace nibble::cuda
