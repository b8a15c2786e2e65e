// Linears that inference engines fuse into one matrix, since they read the same input, and that so
// share one global scale: q/k/v, gate/up, the delta net's qkv/z and b/a; or a single linear.
#pragma once

#include <vector>

#include "model/weights/weights.h"

namespace nibble {

using FusedLinears = std::vector<const LinearSource*>;

/// Those of a layer that are present, in the order in which it computes them.
std::vector<FusedLinears> fused_linears(const LayerSources& layer);
/// The layer that drafts, what joins its inputs before it; without its head.
std::vector<FusedLinears> fused_linears(const MtpSources& mtp);

}  // namespace nibble
