// PromptPlan: the prompt rows of a batch as the prompt kernels want them (chunks of the recurrence,
// tiles of attention), and the memory those kernels need. Rows here count from the first prompt
// row.
#pragma once

#include <algorithm>

#include "backend/cuda/ops/attention/flash_prefill.h"
#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/workspace.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// Loads the kernels of prompts and raises their limits of shared memory. Before the first
/// pass.
void prepare_prompt_kernels(const Launcher& launcher);

class PromptPlan {
 public:
  /// Takes the addresses alone, for a walk that launches nothing.
  void lay_out(const Workspace& work) { memory_ = work.prompt; }
  /// Takes Workspace::prompt and its shared memory. Errors: no_memory.
  Result<void> reserve(const ModelConfig& config, const Workspace& work);
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

  const PromptMlpMemory& mlp() const { return memory_.mlp; }
  const DeltaChunk* chunks() const { return memory_.chunks.as<DeltaChunk>(); }
  const DeltaSequence* sequences() const { return memory_.sequences.as<DeltaSequence>(); }
  const FlashTile* tiles() const { return memory_.tiles.as<FlashTile>(); }
  const DeltaRun* runs() const { return memory_.runs.as<DeltaRun>(); }
  std::span<const DeltaGroup> groups() const { return groups_; }
  int32_t sequence_count() const { return sequence_count_; }
  int32_t tile_count() const { return tile_count_; }
  void* delta_workspace() const { return delta_workspace_.as<void>(); }

 private:
  void copy(const Batch& prompts, cudaStream_t stream);

  PromptMemory memory_;
  DeviceSlice delta_workspace_;
  PinnedBuffer host_;
  bool attends_ = false;
  bool recurs_ = false;
  int32_t group_chunks_ = kDeltaGroupChunks;
  std::vector<DeltaGroup> groups_;
  int32_t sequence_count_ = 0;
  int32_t tile_count_ = 0;
};

}  // namespace nibble::cuda
