// The checks of the backward sweep's kernels, and their times.
#pragma once

#include "backend/cuda/checks/tally.h"

namespace nibble::bench {

void check_gradient_products(checks::Tally& tally);
void check_gradient_labels(checks::Tally& tally);
void check_gradient_delta(checks::Tally& tally);
void check_gradient_attention(checks::Tally& tally);
/// Each kernel at the shapes of the 35B, a pass of eight samples of 2,048 tokens.
void time_gradient(checks::Tally& tally);

}  // namespace nibble::bench
