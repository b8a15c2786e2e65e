// `nibble eval canary A [B]`: which short decisions change from A to B, or are wrong with A.
#pragma once

#include "cli/verb.h"

namespace nibble {

/// The exit code: 1 if a decision changed (with A alone: is wrong), else 0.
Result<int> eval_canary(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
