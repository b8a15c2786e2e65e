// Flags of a whole `nibble serve` or `vllm serve` line that change no byte of memory: `nibble plan`
// takes them, so that such a line can be pasted.
#pragma once

#include <span>

#include "cli/verb.h"

namespace nibble {

/// Every option of `serve` that is none of `own`, taken with any value, and vLLM's flags with
/// their own answers. The result lives as long as the program.
std::span<const ForeignFlag> plan_foreign_flags(std::span<const Option> own);

}  // namespace nibble
