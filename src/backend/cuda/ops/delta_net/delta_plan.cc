// This file plans the chunks of a prompt, their groups and their workspace.
#include <algorithm>

#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/ptx/tile_bytes.h"
#include "base/check.h"

namespace nibble::cuda {
namespace {

bool supports_dim(int dim) { return dim == 32 || dim == 64 || dim == 128; }

int32_t snapshot_of(const Batch& batch, int32_t row_begin, int32_t rows) {
  int32_t slot = -1;
  for (const StateSnapshot& snapshot : batch.snapshots) {
    if (snapshot.row < row_begin || snapshot.row >= row_begin + rows) continue;
    CHECK(snapshot.row == row_begin + rows - 1 && slot < 0);
    slot = snapshot.slot;
  }
  return slot;
}

/// Makes groups of so many chunks, and the run of each sequence in each.
void add_groups(DeltaPlan& plan, int32_t group_chunks) {
  const auto count = static_cast<int32_t>(plan.chunks.size());
  for (int32_t begin = 0; begin < count; begin += group_chunks) {
    const int32_t end = std::min(begin + group_chunks, count);
    const auto run_begin = static_cast<int32_t>(plan.runs.size());
    for (int32_t at = begin; at < end;) {
      const DeltaSequence& s =
          plan.sequences[static_cast<size_t>(plan.chunks[static_cast<size_t>(at)].sequence)];
      const int32_t run_end = std::min(s.chunk_begin + s.chunk_count, end);
      plan.runs.push_back({.chunk_begin = at - begin,
                           .chunk_count = run_end - at,
                           .state_in = at == s.chunk_begin ? s.state_in : s.state_out,
                           .state_out = s.state_out});
      at = run_end;
    }
    plan.groups.push_back({.chunk_begin = begin,
                           .chunk_count = end - begin,
                           .run_begin = run_begin,
                           .run_count = static_cast<int32_t>(plan.runs.size()) - run_begin});
  }
}

}  // namespace

bool delta_chunk_supports(const DeltaShape& shape) {
  return supports_dim(shape.k_dim) && supports_dim(shape.v_dim) && shape.taps == 4 &&
         shape.k_heads > 0 && shape.v_heads % shape.k_heads == 0;
}

DeltaPlan DeltaPlan::of(const Batch& batch, int32_t group_chunks) {
  DeltaPlan plan;
  for (const BatchSequence& sequence : batch.sequences) {
    if (sequence.arithmetic != Arithmetic::prompt) continue;
    const auto index = static_cast<int32_t>(plan.sequences.size());
    const auto chunk_begin = static_cast<int32_t>(plan.chunks.size());
    for (int32_t i = 0; i < sequence.row_count;) {
      const int32_t room = kDeltaChunkTokens - (sequence.kv_begin + i) % kDeltaChunkTokens;
      const int32_t rows = std::min(room, sequence.row_count - i);
      const int32_t row = sequence.row_begin + i;
      plan.chunks.push_back({row, rows, index, i, snapshot_of(batch, row, rows), 1});
      i += rows;
    }
    const auto chunk_count = static_cast<int32_t>(plan.chunks.size()) - chunk_begin;
    int32_t keep = chunk_count - 1;
    for (int32_t n = chunk_count - 2; n >= 0; --n) {
      DeltaChunk& chunk = plan.chunks[static_cast<size_t>(chunk_begin + n)];
      chunk.next_keep = keep - n;
      if (chunk.snapshot >= 0) keep = n;
    }
    plan.sequences.push_back(
        {chunk_begin, chunk_count, sequence.state_in, sequence.state_out, keep});
  }
  add_groups(plan, group_chunks);
  return plan;
}

int64_t delta_chunks_max(int64_t rows, int64_t sequences) {
  return std::min(rows, rows / kDeltaChunkTokens + 2 * sequences);
}

int64_t delta_runs_max(int64_t chunks, int64_t sequences) {
  return std::min(chunks, sequences + chunks / kDeltaGroupChunks);
}

DeltaWorkspace DeltaWorkspace::carve(const DeltaShape& shape, int64_t chunks,
                                     DeviceCarver& carver) {
  constexpr int64_t kRows = kDeltaChunkTokens;
  const int64_t k_tiles = chunks * shape.k_heads;
  const int64_t v_tiles = chunks * shape.v_heads;
  DeltaWorkspace work{};
  work.q = carver.take(k_tiles * tile_bytes(shape.k_dim)).as<uint8_t>();
  work.k = carver.take(k_tiles * tile_bytes(shape.k_dim)).as<uint8_t>();
  work.p = carver.take(v_tiles * tile_bytes(kRows)).as<uint8_t>();
  work.t = carver.take(v_tiles * tile_bytes(kRows)).as<uint8_t>();
  work.v = carver.take(v_tiles * kRows * shape.v_dim * 2).as<uint16_t>();
  work.rows = carver.take(v_tiles * kRowTerms * kRows * 4).as<float>();
  work.o = carver.take(v_tiles * kRows * shape.v_dim * 2).as<uint16_t>();
  return work;
}

int64_t delta_workspace_bytes(const DeltaShape& shape, int64_t chunks) {
  DeviceCarver counted(nullptr);
  DeltaWorkspace::carve(shape, chunks, counted);
  return counted.used();
}

}  // namespace nibble::cuda
