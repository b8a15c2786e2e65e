// DeviceBatch: a Batch as one block of integers on the device, uploaded in one copy. Sequences of
// generation arithmetic come first; the addresses depend on the extent alone, so that a recorded
// graph of that extent reads the right ones.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/runtime/stream.h"
#include "model/backend.h"
#include "model/batch.h"
#include "model/cache_moves.h"

namespace nibble::cuda {

struct ChosenRow;

/// Returns the extent of a batch itself, without padding.
Extent extent_of(const Batch& batch);

class DeviceBatch {
 public:
  /// `device` is Workspace::batch.
  /// kept: a layer drafts, whose entries have positions of their own.
  enum class Entries : uint8_t { none, kept };
  Result<void> reserve(const PoolSizes& sizes, const DeviceSlice& device,
                       Entries entries = Entries::none);

  /// The rows that EmbeddingOverride::place names, F32 [media rows][hidden].
  void set_media(const float* rows) { media_ = rows; }
  /// Lays out a batch on the rows and sequences of `extent`; those the batch lacks are padding.
  /// Then copies it to the device.
  void upload(const Batch& batch, const Extent& extent, cudaStream_t stream);
  /// Does the same for a batch with carried tokens, which the device takes from `chosen` in the
  /// order of launcher.stream.
  void upload_carried(const Batch& batch, const Extent& extent, const ChosenRow* chosen,
                      const Launcher& launcher);
  /// Returns the addresses of a batch of that extent, without uploading one.
  BatchView layout(const Extent& extent) const;

  const BatchView& view() const { return view_; }
  int32_t generation_rows() const { return generation_rows_; }
  int32_t generation_sequences() const { return generation_sequences_; }
  /// Second and later snapshots of one row, to be copied from the first after the pass.
  const std::vector<IdPair>& snapshot_copies() const { return copies_; }
  /// Returns the row on the device of a row of the batch.
  int32_t device_row(int32_t row) const { return device_rows_[static_cast<size_t>(row)]; }

 private:
  /// Lays the batch out in host memory and returns the number of its integers; the carried rows,
  /// which are not counted, follow them.
  int64_t lay_out(const Batch& batch, const Extent& extent);
  void add_sequence(const Batch& batch, size_t index, int32_t* block);
  /// Rows of media, rows with snapshots, rows whose logits are wanted.
  void add_marked_rows(const Batch& batch, int32_t* block);
  int32_t* at(int32_t* block, const int32_t* field) const {
    return block + (field - device_.as<int32_t>());
  }

  int32_t rows_max_ = 0;
  bool entries_ = false;
  const float* media_ = nullptr;
  DeviceSlice device_;
  // Passes take turns, since one may be laid out before the device has read the one before.
  struct HostBlock {
    PinnedBuffer memory;
    Event read;
  };
  std::array<HostBlock, 2> host_;
  size_t turn_ = 0;
  BatchView view_;
  int32_t next_row_ = 0;
  int32_t next_sequence_ = 0;
  int32_t generation_rows_ = 0;
  int32_t generation_sequences_ = 0;
  std::vector<int32_t> device_rows_;
  std::vector<IdPair> copies_;
};

}  // namespace nibble::cuda
