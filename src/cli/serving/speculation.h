// --speculative-config: vLLM's flag, for the proposers that are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/verb.h"
#include "engine/sample/drafter.h"

namespace nibble {

inline constexpr Option kSpeculativeOption = {
    "speculative-config", "JSON", "",
    "draft tokens and verify several in one pass, with equal outputs: {\"method\": \"mtp\"} "
    "drafts with the checkpoint's own MTP layer: num_speculative_tokens (3, at "
    "most 5); "
    "{\"method\": \"ngram\"} proposes tokens that followed earlier in the text: "
    "num_speculative_tokens (4), prompt_lookup_max (4), prompt_lookup_min (2); for benchmarks with "
    "--load-format dummy: synthetic_acceptance, a list of the shares of rounds whose first drafts, "
    "up to each place, count as right",
    "-sc"};
inline constexpr Option kSpeculationOption = {
    "speculation", "", "true", "drafts as --speculative-config says; --no-speculation: none"};

enum class DraftMethod : uint8_t {
  ngram,  // what followed earlier in the text
  mtp,    // the checkpoint's own layer
};

struct Speculation {
  DraftMethod method = DraftMethod::ngram;
  int32_t tokens = 4;  // drafted at most
  NgramDrafter::Options lookup;
  std::vector<double> synthetic_acceptance;  // as EngineSettings
};

/// Errors: invalid_argument (not such JSON, another method, an unknown key, a value out of range).
Result<Speculation> read_speculation(std::string_view json);
/// Reads both options; without a result nothing is drafted. Errors: the same.
Result<std::optional<Speculation>> read_speculation(const Arguments& arguments);

}  // namespace nibble
