// The planted mistakes of cuda_fp4_check.
#pragma once

#include "backend/cuda/checks/tally.h"

namespace nibble::bench {

/// Each mistake must be seen. Needs a card; the instruction itself plays no part.
void check_planted_mistakes(checks::Tally& tally);
/// Those of products in FP8; nothing where the card has no instruction for them.
void check_planted_fp8_mistakes(checks::Tally& tally);

}  // namespace nibble::bench
