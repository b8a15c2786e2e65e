// --speculative-config: vLLM's flag, for the proposers that are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/verb.h"
#include "engine/sample/drafter.h"
#include "model/config/config.h"
#include "plan/memory_plan.h"

namespace nibble {

inline constexpr Option kSpeculativeOption = {
    "speculative-config", "JSON", "",
    "draft tokens and verify several in one pass, with equal outputs: {\"method\": \"mtp\"} "
    "drafts with the checkpoint's own MTP layer: num_speculative_tokens (3, at most 5), "
    "prompt_lookup_min (12: where the text has said its last 12 tokens before, what came then may "
    "take the place of the layer's drafts; 0: never); "
    "{\"method\": \"ngram\"} proposes tokens that followed earlier in the text: "
    "num_speculative_tokens (4), prompt_lookup_max (4), prompt_lookup_min (2); for benchmarks with "
    "--load-format dummy: synthetic_acceptance, a list of the shares of rounds whose first drafts, "
    "up to each place, count as right",
    "-sc"};
inline constexpr Option kSpeculationOption = {
    "speculation", "", "true",
    "drafts as --speculative-config says or, on a card, with the checkpoint's MTP layer where that "
    "costs no request of full length; --no-speculation: none"};

enum class DraftMethod : uint8_t {
  ngram,  // what followed earlier in the text
  mtp,    // the checkpoint's own layer
};

struct Speculation {
  DraftMethod method = DraftMethod::ngram;
  int32_t tokens = 4;  // drafted at most
  NgramDrafter::Options lookup;
  int32_t repeat_match = 12;                 // of MTP: as EngineSettings
  std::vector<double> synthetic_acceptance;  // as EngineSettings
};

/// Errors: invalid_argument (not such JSON, another method, an unknown key, a value out of range).
Result<Speculation> read_speculation(std::string_view json);
/// Reads both options; without a result nothing is drafted unless it is by default. Errors: the
/// same.
Result<std::optional<Speculation>> read_speculation(const Arguments& arguments);

/// True if neither option says anything, so that the machine and the model decide.
bool speculates_by_default(const Arguments& arguments);
/// The method of drafts that nobody asked for: the checkpoint's own layer.
Speculation default_speculation();
/// The drafts of a model that is loaded with its MTP layer or without: those of read_speculation(),
/// or by default those of the layer.
Result<std::optional<Speculation>> speculation_of(const Arguments& arguments,
                                                  const ModelConfig& loaded);

/// The line at a start that says what is drafted. `why_not` is of a default that drafts nothing.
std::string speculation_line(const Arguments& arguments, const std::optional<Speculation>& drafts,
                             std::string_view why_not, const ModelConfig& loaded);

/// The loss where there is no plan with drafts.
inline constexpr std::string_view kDraftsDoNotFit = "it does not fit beside what else is asked for";

/// The loss in words, if a server should rather not draft unless it is asked to: the longest
/// request would be shorter, or of the first four requests of full length one would have no pages.
/// Both plans are of the same flags. Empty: neither.
std::string lost_to_drafts(const MemoryPlan& without, const MemoryPlan& with);

}  // namespace nibble
