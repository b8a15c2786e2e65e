// --draft-quantization and --speculative-token-map: how the layer that drafts is loaded. Neither
// changes an answer; what they cost is acceptance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/drafts/token_map.h"
#include "cli/verb.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

inline constexpr Option kDraftQuantizationOption = {
    "draft-quantization", "auto|none|fp8|nvfp4", "auto",
    "rounds the MTP layer as it is loaded, and a head for drafts where the checkpoint's own is "
    "plain; answers stay the same, drafts read fewer bytes. none: as the checkpoint stores it; "
    "auto: nvfp4 where its columns are in groups of 16, else none"};
inline constexpr Option kTokenMapOption = {
    "speculative-token-map", "N|FILE", "",
    "drafts of the MTP layer are chosen among so many tokens, those with the smallest ids and the "
    "special ones, or among the ids in FILE (a JSON list or numbers between spaces, as `nibble "
    "token-map` writes it), so that its head reads fewer bytes; default: among all"};

/// The options as they are given; what they mean depends on the model.
struct DraftWeights {
  std::optional<WeightFormat> format = WeightFormat::plain;  // absent: auto
  std::optional<TokenMap> tokens = {};                       // absent: all
  std::vector<std::string> given = {};                       // the options that were, "--..."
};

/// Reads the token map, too. Errors: invalid_argument; those of read_text_file.
Result<DraftWeights> read_draft_weights(const Arguments& arguments);

/// Sets ModelConfig::draft_format and draft_tokens for a model with such a layer and head; the
/// format is plain where nothing is rounded. Errors: invalid_argument, of the token map; those of
/// check_draft_places.
Result<void> choose_draft_weights(const DraftWeights& wanted, const MtpSources& mtp,
                                  const LinearSource& head, ModelConfig& config);

/// The bytes that a layer placed so takes in files; in memory they are about as many.
int64_t loaded_draft_bytes(const MtpSources& placed);

/// The words for it that follow "the checkpoint's MTP layer" in a sentence; empty: it is as stored.
std::string draft_weights_words(const ModelConfig& config);

/// A line that says which options were given in vain, where no layer is loaded; empty: none was.
std::string options_in_vain(const DraftWeights& wanted);

}  // namespace nibble
