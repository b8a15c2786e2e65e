// The sweep for weights of tokens where a GradientDevice does the work.
#pragma once

#include "quantize/gradient/fisher_weights.h"

namespace nibble::gradient {

/// Does the work of gather_fisher_weights on request.device, with the same errors and those of the
/// device.
Result<FisherWeights> gather_fisher_weights_there(const FisherRequest& request);

}  // namespace nibble::gradient
