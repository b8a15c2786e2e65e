// The outputs of products of generation arithmetic, for linear_check.cu and linear_fused_check.cu.
#pragma once

#include <cstring>
#include <vector>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/linear/linear.h"

namespace nibble::checks {

inline constexpr int kRowsMax = 65;
inline constexpr int64_t kOutputPad = 5;  // floats between the rows of y

/// linear(), or one of the kernels that it chooses from.
using Product = void (*)(const cuda::LinearArgs&, const cuda::Launcher&);

struct LinearOutputs {
  std::vector<float> main, beside;
};

/// Returns what `make` writes to memory of its own. Finish::add finds `before` there.
inline LinearOutputs product(Product make, const cuda::LinearArgs& args,
                             const cuda::Launcher& launcher, float before) {
  cuda::LinearArgs with = args;
  LinearOutputs out;
  std::vector<float>* const to[2] = {&out.main, &out.beside};
  std::vector<float*> buffers;
  for (int i = 0; i < args.count; ++i) {
    const int64_t stride = args.outputs[i].weight.rows + kOutputPad;
    auto* y = device_array<float>(stride * args.rows);
    if (args.outputs[i].finish == cuda::Finish::add)
      fill_normal(y, stride * args.rows, 0, 0.0F, before);
    with.outputs[i].y = y;
    with.outputs[i].y_stride = stride;
    buffers.push_back(y);
  }
  must(cudaDeviceSynchronize(), "before");
  make(with, launcher);
  must(cudaDeviceSynchronize(), "linear");
  for (int i = 0; i < args.count; ++i) {
    const int n = args.outputs[i].weight.rows;
    const auto all = to_host(buffers[static_cast<size_t>(i)], (n + kOutputPad) * args.rows);
    for (int r = 0; r < args.rows; ++r)
      to[i]->insert(to[i]->end(), all.begin() + r * (n + kOutputPad),
                    all.begin() + r * (n + kOutputPad) + n);
    cudaFree(buffers[static_cast<size_t>(i)]);
  }
  return out;
}

/// True if the rows of `part` are bit for bit the first of `all`.
inline bool same_head(const std::vector<float>& part, const std::vector<float>& all) {
  return part.size() <= all.size() &&
         std::memcmp(part.data(), all.data(), part.size() * sizeof(float)) == 0;
}

/// Several rows that are normed by their readers, against add_norm and the product of its rows.
void check_fused_norms(Tally& tally, int columns, uint32_t seed);
/// The convolution of up to 8 rows, and a single row's norm, against the kernels that do the same
/// apart.
void check_fused_convolution(Tally& tally, uint32_t seed);

}  // namespace nibble::checks
