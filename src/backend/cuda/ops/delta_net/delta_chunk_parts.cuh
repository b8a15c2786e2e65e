// The parts that the delta-net prefill kernels share: the workspace and the copies of tiles.
#pragma once

#include "backend/cuda/ops/delta_net/delta_chunk.h"
#include "backend/cuda/ptx/prefill_tile.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {

inline constexpr int kChunk = kDeltaChunkTokens;
static_assert(kChunk == kTileLines);
inline constexpr int kDeltaThreads = 128;       // within a chunk, and per row
inline constexpr int kDeltaAlongThreads = 256;  // along a sequence
inline constexpr int kValueColumns = 32;        // of the state, one block's share along a sequence

/// The F32 numbers kept for a row: running sum of log alpha; beta, the diagonal of t; q k, that of
/// p.
enum RowTerm : int { kLogDecay, kBeta, kOwnKey, kRowTerms };

/// All per chunk and head; rows past the end are zero. q, k, p and t are images of tiles
/// (prefill_tile.cuh), v is parts of 32 columns, [v_dim / 32, 64, 32].
struct DeltaWorkspace {
  uint8_t* q;   // [chunks, k_heads], unit length times k_dim^-0.5
  uint8_t* k;   // [chunks, k_heads], unit length
  uint8_t* p;   // [chunks, v_heads]: (q k^T) decay, below the diagonal
  uint8_t* t;   // [chunks, v_heads]: (I + A)^-1 diag(beta), below the diagonal
  uint16_t* v;  // [chunks, v_heads]
  float* rows;  // [chunks, v_heads, RowTerm, 64]
  uint16_t* o;  // [chunks, v_heads, 64, v_dim], before the gated norm
};

__host__ __device__ inline int channels_of(const DeltaShape& s) {
  return 2 * s.k_heads * s.k_dim + s.v_heads * s.v_dim;
}

inline int64_t round_256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

inline int64_t carve_delta_workspace(const DeltaShape& s, int64_t chunks, void* base,
                                     DeltaWorkspace* out) {
  auto* at = static_cast<char*>(base);
  int64_t used = 0;
  const auto take = [&](int64_t elements, int64_t size) {
    char* p = base == nullptr ? nullptr : at + used;
    used += round_256(elements * size);
    return static_cast<void*>(p);
  };
  const int64_t k_tiles = chunks * s.k_heads;
  const int64_t v_tiles = chunks * s.v_heads;
  out->q = static_cast<uint8_t*>(take(k_tiles * tile_bytes(s.k_dim), 1));
  out->k = static_cast<uint8_t*>(take(k_tiles * tile_bytes(s.k_dim), 1));
  out->p = static_cast<uint8_t*>(take(v_tiles * tile_bytes(kChunk), 1));
  out->t = static_cast<uint8_t*>(take(v_tiles * tile_bytes(kChunk), 1));
  out->v = static_cast<uint16_t*>(take(v_tiles * kChunk * s.v_dim, 2));
  out->rows = static_cast<float*>(take(v_tiles * kRowTerms * kChunk, 4));
  out->o = static_cast<uint16_t*>(take(v_tiles * kChunk * s.v_dim, 2));
  return used;
}

struct DeltaArgs {
  DeltaPrefill in;  // chunks and runs from the group's first on
  DeltaGroup group;
  DeltaWorkspace work;
};

void launch_delta_inputs(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_outputs(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_keep(const DeltaPrefill& prefill, const Launcher& launcher);
void launch_delta_within(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_along(const DeltaArgs& args, const Launcher& launcher);
void prepare_delta_within();
void prepare_delta_along(const Architecture& card);

}  // namespace nibble::cuda
