// Bounds of keys and values that hold for every input, by the weights alone: whether numbers of a
// cache in FP8, which end at 448, can be cut off at all.
//
// RMS norm makes rows n of length sqrt(width) at most, times the gains g. So a key, normed per head
// and then rotated in pairs, is at most max |g| sqrt(head_dim), and the value of row i of v_proj,
// sum_j W_ij g_j n_j, at most |W_i o g| sqrt(hidden) (Cauchy-Schwarz; reached where n is along
// W_i o g). Rounding of activations comes on top: a few percent with 8 bits.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/config/config.h"
#include "model/kv_format.h"
#include "model/weights/weights.h"

namespace nibble {

/// The largest magnitude that any input can give, and the place where: a layer's name.
struct KvBound {
  double most = 0.0;
  std::string layer;
};
struct KvBounds {
  KvBound keys, values;
};

/// Over all layers of attention, the MTP layer's too. `scales` as BackendOptions::kv_scales: what
/// pages hold is the number by its scale. Errors: those of reading weights.
Result<KvBounds> bound_kv(const Weights& weights, const ModelConfig& config,
                          const std::vector<KvScale>& scales);

}  // namespace nibble
