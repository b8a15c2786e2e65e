// --speculative-config: vLLM's flag, for the proposers that are here.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "cli/verb.h"
#include "engine/sample/drafter.h"

namespace nibble {

inline constexpr Option kSpeculativeOption = {
    "speculative-config", "JSON", "",
    "draft tokens and verify several in one pass, with equal outputs: {\"method\": \"ngram\"} "
    "proposes "
    "tokens that followed earlier in the text; num_speculative_tokens (4), prompt_lookup_max (4), "
    "prompt_lookup_min (2)",
    "-sc"};

struct Speculation {
  int32_t tokens = 4;  // drafted at most
  NgramDrafter::Options lookup;
};

/// Errors: invalid_argument (not such JSON, another method, an unknown key, a value out of range).
Result<Speculation> read_speculation(std::string_view json);

}  // namespace nibble
