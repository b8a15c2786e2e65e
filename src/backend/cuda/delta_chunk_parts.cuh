// What the delta-net prefill kernels share: the workspace and the copies of tiles.
#pragma once

#include "backend/cuda/delta_chunk.h"
#include "backend/cuda/prefill_tile.cuh"

namespace nibble::cuda {

inline constexpr int kChunk = kDeltaChunkTokens;
static_assert(kChunk == kTileLines);
inline constexpr int kDeltaThreads = 128;       // within a chunk, and per row
inline constexpr int kDeltaAlongThreads = 256;  // along a sequence
inline constexpr int kValueColumns = 32;        // of the state, one block's share along a sequence

/// All per chunk and head, [64, columns] row-major, rows past the end zero.
struct DeltaWorkspace {
  __nv_bfloat16* q;  // [chunks, k_heads, 64, k_dim], unit length times k_dim^-0.5
  __nv_bfloat16* k;  // [chunks, k_heads, 64, k_dim], unit length
  __nv_bfloat16* v;  // [chunks, v_heads, 64, v_dim]
  __nv_bfloat16* t;  // [chunks, v_heads, 64, 64]: (I + A)^-1 diag(beta)
  __nv_bfloat16* p;  // [chunks, v_heads, 64, 64]: (q k^T) decay, lower triangle
  float* c;          // [chunks, v_heads, 64]: running sum of log alpha
  __nv_bfloat16* o;  // [chunks, v_heads, 64, v_dim], before the gated norm
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
  const int64_t rows = chunks * kChunk;
  out->q = static_cast<__nv_bfloat16*>(take(rows * s.k_heads * s.k_dim, 2));
  out->k = static_cast<__nv_bfloat16*>(take(rows * s.k_heads * s.k_dim, 2));
  out->v = static_cast<__nv_bfloat16*>(take(rows * s.v_heads * s.v_dim, 2));
  out->t = static_cast<__nv_bfloat16*>(take(rows * s.v_heads * kChunk, 2));
  out->p = static_cast<__nv_bfloat16*>(take(rows * s.v_heads * kChunk, 2));
  out->c = static_cast<float*>(take(rows * s.v_heads, 4));
  out->o = static_cast<__nv_bfloat16*>(take(rows * s.v_heads * s.v_dim, 2));
  return used;
}

struct DeltaArgs {
  DeltaPrefill in;
  DeltaWorkspace work;
};

cudaError_t launch_delta_inputs(const DeltaArgs& args, cudaStream_t stream);
cudaError_t launch_delta_outputs(const DeltaArgs& args, cudaStream_t stream);
cudaError_t launch_delta_within(const DeltaArgs& args, cudaStream_t stream);
cudaError_t launch_delta_along(const DeltaArgs& args, int shared_bytes_max, cudaStream_t stream);
cudaError_t prepare_delta_within();
cudaError_t prepare_delta_along(int shared_bytes_max);

}  // namespace nibble::cuda
