// Rounds the source of a linear again and compares: most algorithms are pure functions of the
// weights, so a matrix that is theirs in all but a few places was changed there. Says nothing of a
// matrix that was made in another way, by another program or with calibration.
#pragma once

#include <string>

#include "model/weights/weights.h"

namespace nibble {

/// Says what is odd about `stored`, NVFP4 or FP8, in words such as "3 of 512 blocks ..., first
/// at row 4, column 16"; empty if nothing is, or nothing can be said. `source` is the same linear,
/// plain; `group_amax` the largest magnitude of the linears that share a scale with it.
std::string odd_rounding(const LinearWeight& stored, const LinearWeight& source, float group_amax);

}  // namespace nibble
