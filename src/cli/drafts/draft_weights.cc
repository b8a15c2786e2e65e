// Reads the options, and decides what they mean for a model.
#include "cli/drafts/draft_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "model/weights/draft_places.h"
#include "model/weights/synthetic_weights.h"
#include "plan/weight_tally.h"

namespace nibble {
namespace {

constexpr int64_t kTokensMost = 1 << 24;
constexpr uint64_t kMapBytesMax = uint64_t{16} << 20;

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789kKmM.") == std::string_view::npos;
}

/// A file that is called like a number is meant by its name.
Result<std::optional<TokenMap>> read_token_map(const Arguments& arguments) {
  const std::string word = arguments.text(kTokenMapOption.name).value_or("");
  if (word.empty()) return std::optional<TokenMap>();
  std::error_code failure;
  if (is_number(word) && !std::filesystem::exists(word, failure))
    return std::optional(
        TokenMap{.count = TRY(arguments.integer(kTokenMapOption.name, 1, kTokensMost))});
  return std::optional(TokenMap{.text = TRY(read_text_file(word, kMapBytesMax)),
                                .source = concat("--", kTokenMapOption.name, " ", word)});
}

}  // namespace

Result<DraftWeights> read_draft_weights(const Arguments& arguments) {
  const std::string word =
      TRY(arguments.choice(kDraftQuantizationOption.name, {"auto", "none", "fp8", "nvfp4"}));
  DraftWeights wanted{.tokens = TRY(read_token_map(arguments))};
  if (word == "auto")
    wanted.format = std::nullopt;
  else if (word != "none")
    wanted.format = word == "fp8" ? WeightFormat::fp8_tensor : WeightFormat::nvfp4;
  for (const Option& option : {kDraftQuantizationOption, kTokenMapOption})
    if (arguments.given(option.name)) wanted.given.push_back(concat("--", option.name));
  return wanted;
}

Result<void> choose_draft_weights(const DraftWeights& wanted, const MtpSources& mtp,
                                  const LinearSource& head, ModelConfig& config) {
  config.draft_format = wanted.format.value_or(WeightFormat::nvfp4);
  config.draft_tokens.clear();
  if (wanted.tokens) config.draft_tokens = TRY(tokens_of(*wanted.tokens, config));
  Result<void> legal = check_draft_places(draft_places(mtp, head, config), head);
  if (!legal.ok() && !wanted.format) {
    config.draft_format = WeightFormat::plain;
    legal = check_draft_places(draft_places(mtp, head, config), head);
  }
  TRY(legal);
  if (!rounds_some(mtp, head, draft_places(mtp, head, config)))
    config.draft_format = WeightFormat::plain;
  return {};
}

int64_t loaded_draft_bytes(const MtpSources& placed) {
  SyntheticWeights alone;
  alone.mtp = placed;
  return total_bytes(tally_in_file(alone, usual_file_bytes()));
}

std::string draft_weights_words(const ModelConfig& config) {
  std::string words;
  if (config.draft_layers == 0) return words;
  if (config.draft_format != WeightFormat::plain)
    words = concat(", plain weights rounded to ",
                   config.draft_format == WeightFormat::nvfp4 ? "NVFP4" : "FP8");
  if (!config.draft_tokens.empty())
    words += concat(", chosen among ", config.draft_tokens.size(), " of ", config.vocab_rows);
  return words;
}

std::string options_in_vain(const DraftWeights& wanted) {
  if (wanted.given.empty()) return {};
  const bool one = wanted.given.size() == 1;
  return concat(wanted.given.front(), one ? " has" : concat(" and ", wanted.given.back(), " have"),
                " no effect: no MTP layer is loaded\n");
}

}  // namespace nibble
