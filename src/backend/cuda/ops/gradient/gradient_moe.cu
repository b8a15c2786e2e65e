// A warp has a row or an assignment, and a row at most 32 choices. Bound: bytes; each number of y
// and its gradients is read and written once, and dy once for each choice.
#include "backend/cuda/ops/gradient/gradient_moe.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {
namespace {

struct Choice {
  float logit = -INFINITY;
  int expert = -1;
};

__device__ bool comes_before(const Choice& a, const Choice& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

/// The first of the order of choice that comes after `last`; after no expert, the very first.
__device__ Choice next_choice(const float* logits, int experts, const Choice& last) {
  Choice best{-INFINITY, experts};
  for (int e = lane(); e < experts; e += kWarp) {
    const Choice one{logits[e], e};
    if ((last.expert < 0 || comes_before(last, one)) && comes_before(one, best)) best = one;
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Choice other{__shfl_xor_sync(0xFFFFFFFFU, best.logit, step),
                       __shfl_xor_sync(0xFFFFFFFFU, best.expert, step)};
    if (comes_before(other, best)) best = other;
  }
  return best;
}

__global__ __launch_bounds__(kRowThreads) void choose_kernel(GradientRouter router, float* logits,
                                                             int32_t* chosen, float* weights) {
  const int row = warp_index();
  if (row >= router.rows) return;
  float* p = logits + int64_t{row} * router.experts;
  int32_t* to = chosen + int64_t{row} * router.top_k;
  float* weight = weights + int64_t{row} * router.top_k;
  Choice last;
  float most = 0.0F, mine = 0.0F;  // lane k keeps the logit of choice k
  for (int k = 0; k < router.top_k; ++k) {
    last = next_choice(p, router.experts, last);
    if (k == 0) most = last.logit;
    if (lane() == k) mine = last.logit;
    if (lane() == k) to[k] = min(last.expert, router.experts - 1);  // NaN has no order
  }
  float total = 0.0F;
  for (int e = lane(); e < router.experts; e += kWarp) total += expf(p[e] - most);
  total = warp_sum_float(total);
  for (int e = lane(); e < router.experts; e += kWarp) p[e] = expf(p[e] - most) / total;
  mine = lane() < router.top_k ? expf(mine - most) / total : 0.0F;
  const float of_chosen = warp_sum_float(mine);
  if (lane() < router.top_k)
    weight[lane()] = router.weights == RouterWeights::renormalised ? mine / of_chosen : mine;
}

__global__ __launch_bounds__(kRowThreads) void combine_kernel(GradientRouter router, Assignments at,
                                                              Weighted weighted, const float* y,
                                                              int width, float* out) {
  const int row = warp_index();
  if (row >= router.rows) return;
  const int32_t* slots = at.slots + int64_t{row} * router.top_k;
  for (int i = lane(); i < width; i += kWarp) {
    float sum = 0.0F;
    for (int k = 0; k < router.top_k; ++k) {
      const float weight = weighted == Weighted::yes ? at.weight[slots[k]] : 1.0F;
      sum += weight * y[int64_t{slots[k]} * width + i];
    }
    out[int64_t{row} * width + i] = sum;
  }
}

/// With p the softmax over all experts and w_e the weight of a chosen one: renormalised weights are
/// the softmax over the chosen, so dlogit_e = w_e (dw_e - sum_c w_c dw_c) for those; otherwise
/// w_e = p_e, and dlogit_e = p_e (dw_e - sum_c p_c dw_c) for all, dw being 0 where not chosen.
__global__ __launch_bounds__(kRowThreads) void router_back_kernel(GradientRouter router,
                                                                  Assignments at, const float* p,
                                                                  const float* dweight,
                                                                  float* dlogits) {
  const int row = warp_index();
  if (row >= router.rows) return;
  const int32_t* slots = at.slots + int64_t{row} * router.top_k;
  const int64_t first = int64_t{row} * router.experts;
  float mean = 0.0F;
  for (int k = 0; k < router.top_k; ++k) mean += at.weight[slots[k]] * dweight[slots[k]];
  const bool all = router.weights == RouterWeights::plain;
  for (int e = lane(); e < router.experts; e += kWarp) {
    float weight = all ? p[first + e] : 0.0F, own = 0.0F;
    for (int k = 0; k < router.top_k; ++k)
      if (at.expert[slots[k]] == e) {
        weight = at.weight[slots[k]];
        own = dweight[slots[k]];
      }
    dlogits[first + e] = weight * (own - mean);
  }
}

__global__ __launch_bounds__(kRowThreads) void gated_kernel(const float* gate, const float* y,
                                                            int rows, int width, float* out) {
  const int row = warp_index();
  if (row >= rows) return;
  const float s = sigmoid(gate[row]);
  for (int64_t i = int64_t{row} * width + lane(); i < (int64_t{row} + 1) * width; i += kWarp)
    out[i] += s * y[i];
}

__device__ float weight_of(const WeighedRows& rows, int index) {
  const float weight = rows.weight[index];
  return rows.kind == WeighedRows::Kind::sigmoid ? sigmoid(weight) : weight;
}

__global__ __launch_bounds__(kRowThreads) void weigh_back_kernel(WeighedRows rows,
                                                                 const float* active,
                                                                 float* dactive, float* dweight) {
  const int index = warp_index();
  if (index >= rows.count) return;
  const float weight = weight_of(rows, index);
  float sum = 0.0F;
  for (int i = lane(); i < rows.width; i += kWarp) {
    const int64_t at = int64_t{index} * rows.width + i;
    const float d = dactive[at];
    sum += d * active[at];
    dactive[at] = d * weight;
  }
  sum = warp_sum_float(sum);
  const float slope = rows.kind == WeighedRows::Kind::sigmoid ? weight * (1.0F - weight) : 1.0F;
  if (lane() == 0) dweight[index] = slope * sum;
}

__global__ __launch_bounds__(kRowThreads) void weigh_squares_kernel(WeighedRows rows,
                                                                    const double* squares,
                                                                    double* out) {
  const int64_t i = thread_index();
  if (i >= rows.count) return;
  const double weight = weight_of(rows, static_cast<int>(i));
  const double square = weight * weight * squares[rows.gather == nullptr ? i : rows.gather[i]];
  out[i] = isfinite(square) ? square : 0.0;
}

}  // namespace

cudaError_t choose_experts(const GradientRouter& router, float* logits, int32_t* chosen,
                           float* weights, cudaStream_t stream) {
  choose_kernel<<<blocks_of_warps(router.rows), kRowThreads, 0, stream>>>(router, logits, chosen,
                                                                          weights);
  return cudaGetLastError();
}

cudaError_t combine_experts(const GradientRouter& router, const Assignments& at, Weighted weighted,
                            const float* y, int32_t width, float* out, cudaStream_t stream) {
  combine_kernel<<<blocks_of_warps(router.rows), kRowThreads, 0, stream>>>(router, at, weighted, y,
                                                                           width, out);
  return cudaGetLastError();
}

cudaError_t router_backward(const GradientRouter& router, const Assignments& at,
                            const float* probabilities, const float* dweight, float* dlogits,
                            cudaStream_t stream) {
  router_back_kernel<<<blocks_of_warps(router.rows), kRowThreads, 0, stream>>>(
      router, at, probabilities, dweight, dlogits);
  return cudaGetLastError();
}

cudaError_t add_gated(const float* gate, const float* y, int32_t rows, int32_t width, float* out,
                      cudaStream_t stream) {
  gated_kernel<<<blocks_of_warps(rows), kRowThreads, 0, stream>>>(gate, y, rows, width, out);
  return cudaGetLastError();
}

cudaError_t weigh_backward(const WeighedRows& rows, const float* active, float* dactive,
                           float* dweight, cudaStream_t stream) {
  weigh_back_kernel<<<blocks_of_warps(rows.count), kRowThreads, 0, stream>>>(rows, active, dactive,
                                                                             dweight);
  return cudaGetLastError();
}

cudaError_t weigh_squares(const WeighedRows& rows, const double* squares, double* out,
                          cudaStream_t stream) {
  weigh_squares_kernel<<<blocks_of_threads(rows.count), kRowThreads, 0, stream>>>(rows, squares,
                                                                                  out);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
