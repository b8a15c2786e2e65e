// Layout: per row [tokens, positions x 3, kv_index, page_begin, snapshot_slot, logit_rows], with a
// layer that drafts also [sequence_of, entry positions x 3], per sequence [row_begin, row_count,
// state_in, state_out, replay, drafted], then the page tables.
#include "backend/cuda/device_batch.h"

#include <algorithm>

#include "backend/cuda/ops/head/carry_tokens.h"
#include "backend/cuda/workspace.h"
#include "model/draft.h"

namespace nibble::cuda {

Result<void> DeviceBatch::reserve(const PoolSizes& sizes, const DeviceSlice& device,
                                  Entries entries) {
  rows_max_ = sizes.rows_max;
  entries_ = entries == Entries::kept;
  device_ = device;
  const int64_t carried_bytes = int64_t{sizes.rows_max} * int64_t{sizeof(int32_t)};
  for (HostBlock& host : host_)
    host = {.memory = TRY(PinnedBuffer::allocate(device.bytes() + carried_bytes, "the batch")),
            .read = Event::create()};
  device_rows_.reserve(static_cast<size_t>(sizes.rows_max));
  return {};
}

Extent extent_of(const Batch& batch) {
  const bool replays = std::ranges::any_of(batch.sequences, [](const BatchSequence& s) {
    return s.replay > 0 || s.write == StateWrite::replayed;
  });
  return {.rows = batch.rows(),
          .sequences = static_cast<int32_t>(batch.sequences.size()),
          .replays = replays};
}

BatchView DeviceBatch::layout(const Extent& extent) const {
  const auto [rows, sequences, replays] = extent;
  BatchView view{.rows = rows, .sequences = sequences, .positions_stride = rows};
  view.replays = replays;
  view.media = media_;
  const int32_t* next = device_.as<int32_t>();
  const auto take = [&next](int64_t count) {
    const int32_t* field = next;
    next += count;
    return field;
  };
  view.tokens = take(rows);
  view.positions = take(int64_t{3} * rows);
  view.kv_index = take(rows);
  view.page_begin = take(rows);
  view.snapshot_slot = take(rows);
  view.logit_rows = take(rows);
  if (entries_) {
    view.sequence_of = take(rows);
    view.entry_positions = take(int64_t{3} * rows);
  }
  view.row_begin = take(sequences);
  view.row_count = take(sequences);
  view.state_in = take(sequences);
  view.state_out = take(sequences);
  view.replay = take(sequences);
  view.drafted = take(sequences);
  view.pages = next;
  return view;
}

void DeviceBatch::add_sequence(const Batch& batch, size_t index, int32_t* block) {
  const BatchSequence& sequence = batch.sequences[index];
  at(block, view_.row_begin)[next_sequence_] = next_row_;
  at(block, view_.row_count)[next_sequence_] = sequence.row_count;
  at(block, view_.state_in)[next_sequence_] = sequence.state_in;
  at(block, view_.state_out)[next_sequence_] = sequence.state_out;
  at(block, view_.replay)[next_sequence_] = sequence.replay;
  at(block, view_.drafted)[next_sequence_] = sequence.write == StateWrite::replayed ? 1 : 0;
  const int32_t number = next_sequence_++;
  for (int i = 0; i < sequence.row_count; ++i, ++next_row_) {
    const auto from = static_cast<size_t>(sequence.row_begin + i);
    at(block, view_.tokens)[next_row_] = batch.tokens[from];
    for (size_t axis = 0; axis < 3; ++axis)
      at(block,
         view_.positions)[axis * static_cast<size_t>(view_.rows) + static_cast<size_t>(next_row_)] =
          batch.positions[axis * batch.tokens.size() + from];
    at(block, view_.kv_index)[next_row_] = sequence.kv_begin + i;
    at(block, view_.page_begin)[next_row_] = sequence.page_begin;
    device_rows_[from] = next_row_;
    if (!entries_) continue;
    at(block, view_.sequence_of)[next_row_] = number;
    const std::array<int32_t, 3> before = position_before(batch, sequence, i);
    for (size_t axis = 0; axis < 3; ++axis)
      at(block, view_.entry_positions)[axis * static_cast<size_t>(view_.rows) +
                                       static_cast<size_t>(next_row_)] = before[axis];
  }
}

void DeviceBatch::add_marked_rows(const Batch& batch, int32_t* block) {
  for (const EmbeddingOverride& own : batch.embeddings) {
    CHECK(own.place >= 0 && media_ != nullptr, "row ", own.row, " brings an embedding of its own");
    at(block, view_.tokens)[device_row(own.row)] = -1 - own.place;
  }
  copies_.clear();
  for (const StateSnapshot& snapshot : batch.snapshots) {
    int32_t& slot = at(block, view_.snapshot_slot)[device_row(snapshot.row)];
    if (slot < 0) {
      slot = snapshot.slot;
    } else {
      copies_.push_back({.from = slot, .to = snapshot.slot});
    }
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i)
    at(block, view_.logit_rows)[i] = device_row(batch.logit_rows[i]);
}

int64_t DeviceBatch::lay_out(const Batch& batch, const Extent& extent) {
  view_ = layout(extent);
  CHECK(view_.rows <= rows_max_ && batch.rows() <= view_.rows, "batch of ", batch.rows(),
        " rows, reserved ", rows_max_);
  CHECK(std::ssize(batch.sequences) <= view_.sequences, "batch of ", batch.sequences.size(),
        " sequences on ", view_.sequences);
  const int64_t fixed = view_.pages - device_.as<int32_t>();
  const int64_t ints = fixed + static_cast<int64_t>(batch.pages.size());
  CHECK(ints * 4 <= device_.bytes(), "page tables of ", batch.pages.size(), " entries");
  turn_ = 1 - turn_;
  host_[turn_].read.wait();
  auto* block = host_[turn_].memory.as<int32_t>();
  std::fill_n(block, fixed, 0);
  std::fill_n(at(block, view_.kv_index), view_.rows, -1);
  std::fill_n(at(block, view_.snapshot_slot), view_.rows, -1);
  if (entries_) std::fill_n(at(block, view_.sequence_of), view_.rows, -1);
  device_rows_.resize(batch.tokens.size());
  next_row_ = next_sequence_ = 0;
  for (const Arithmetic arithmetic : {Arithmetic::generation, Arithmetic::prompt}) {
    for (size_t i = 0; i < batch.sequences.size(); ++i)
      if (batch.sequences[i].arithmetic == arithmetic) add_sequence(batch, i, block);
    if (arithmetic == Arithmetic::generation) generation_rows_ = next_row_;
    if (arithmetic == Arithmetic::generation) generation_sequences_ = next_sequence_;
  }
  add_marked_rows(batch, block);
  std::ranges::copy(batch.pages, at(block, view_.pages));
  return ints;
}

void DeviceBatch::upload(const Batch& batch, const Extent& extent, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(lay_out(batch, extent)) * sizeof(int32_t);
  CUDA_CHECK(cudaMemcpyAsync(device_.as<int32_t>(), host_[turn_].memory.as<int32_t>(), bytes,
                             cudaMemcpyHostToDevice, stream));
  host_[turn_].read.record(stream);
}

void DeviceBatch::upload_carried(const Batch& batch, const Extent& extent, const ChosenRow* chosen,
                                 const Launcher& launcher) {
  const int64_t ints = lay_out(batch, extent);
  auto* block = host_[turn_].memory.as<int32_t>();
  int32_t* const carried = block + ints;
  std::fill_n(carried, view_.rows, -1);
  for (size_t i = 0; i < batch.carried.size(); ++i)
    carried[device_row(static_cast<int32_t>(i))] = batch.carried[i];
  carry_tokens({.from = block,
                .carried = carried,
                .chosen = chosen,
                .to = device_.as<int32_t>(),
                .ints = ints,
                .tokens_begin = view_.tokens - device_.as<int32_t>(),
                .rows = view_.rows},
               launcher);
  host_[turn_].read.record(launcher.stream);
}

}  // namespace nibble::cuda
