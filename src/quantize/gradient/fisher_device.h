// The sweep for weights of tokens where a GradientDevice does the work.
#pragma once

#include "quantize/gradient/fisher_weights.h"

namespace nibble::gradient {

/// As gather_fisher_weights, by request.device.
Result<FisherWeights> gather_fisher_weights_there(const FisherRequest& request);

}  // namespace nibble::gradient
