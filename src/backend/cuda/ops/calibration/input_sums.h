// Statistics of the inputs of linears for calibration, summed on the card: largest magnitude, rows,
// rows with NaN or infinity (left out of all sums) and second moments. Plain pointers and a stream;
// every sum has one order, so a run repeats its bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/route/prompt_route.h"

namespace nibble::cuda {

/// The statistics of one input over all passes so far.
struct SeenRows {
  double amax = 0;
  int64_t sound = 0;
  int64_t bad = 0;
};

/// Assignments [begin, end) of one expert.
struct Segment {
  int32_t begin = 0;
  int32_t end = 0;
};

/// The rows of one input, or of E of them (experts) whose rows are stretches of one list.
struct InputRows {
  const uint16_t* packed_x = nullptr;  // columns in packed order (prefill_order.h)
  int64_t x_stride = 0;                // elements, a multiple of 8
  int32_t x_rows = 0;                  // rows of x
  int32_t cols = 0;                    // K; beyond it zeros up to a multiple of 64
  int32_t assignments = 0;             // length of the list; without experts x_rows
  const int32_t* gather = nullptr;     // assignment -> row of x; null: the assignment itself
  const Segment* segments = nullptr;   // [inputs]; null: one input of all rows
  int32_t inputs = 1;
};

/// The scratch of one pass is F32 [x_rows] and I32 [assignments].
struct SumScratch {
  float* row_amax = nullptr;  // negative: a row with NaN or infinity
  int32_t* row = nullptr;     // row of x for each assignment; -1: left out
};

/// Segments [experts] of the tiles that route_sort made; an expert without rows has begin == end.
cudaError_t expert_segments(const ExpertTile* tiles, const int32_t* tile_count, int32_t tiles_max,
                            int32_t experts, Segment* segments, cudaStream_t stream);
/// seen[i] += the rows of input i; leaves in scratch which rows count.
cudaError_t see_rows(const InputRows& in, const SumScratch& scratch, SeenRows* seen,
                     cudaStream_t stream);

enum class MomentKind : uint8_t { diagonal, blocks, full };
/// moments[i] += sum of x x^T over the rows of input i that count (see_rows came before), in the
/// layout of InputStatistics::moment; a null moments[i] is passed over. F32 within the pass on the
/// tensor cores, F64 across passes.
cudaError_t add_moments(const InputRows& in, const SumScratch& scratch, MomentKind kind,
                        double* const* moments, cudaStream_t stream);

/// squares [inputs, cols] = the diagonals of full moments [cols, cols]; of a null one nothing.
cudaError_t copy_squares(double* const* moments, int32_t inputs, int32_t cols, double* squares,
                         cudaStream_t stream);

/// h [count] F32 from BF16, and back; count a multiple of 8.
cudaError_t widen_rows(const uint16_t* from, int64_t count, float* to, cudaStream_t stream);
cudaError_t narrow_rows(const float* from, int64_t count, uint16_t* to, cudaStream_t stream);

}  // namespace nibble::cuda
