// Words to formats and lists of tokens.
#include "cli/drafts/draft_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "cli/drafts/token_map.h"
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

Result<std::vector<int32_t>> read_token_map(const std::string& word, const ModelConfig& config) {
  std::error_code failure;
  if (is_number(word) && !std::filesystem::exists(word, failure))
    return first_tokens(config, read_size(word).value_or(0));
  const std::string text = TRY(read_text_file(word, kMapBytesMax));
  return parse_token_map(text, concat("--", kTokenMapOption.name, " ", word), config.vocab_rows);
}

}  // namespace

Result<DraftWeights> read_draft_weights(const Arguments& arguments) {
  const std::string word =
      TRY(arguments.choice(kDraftQuantizationOption.name, {"auto", "none", "fp8", "nvfp4"}));
  DraftWeights wanted{.token_map = arguments.text(kTokenMapOption.name).value_or("")};
  if (word == "auto")
    wanted.format = std::nullopt;
  else if (word != "none")
    wanted.format = word == "fp8" ? WeightFormat::fp8_tensor : WeightFormat::nvfp4;
  std::error_code failure;
  if (!is_number(wanted.token_map) || std::filesystem::exists(wanted.token_map, failure))
    return wanted;
  TRY(arguments.integer(kTokenMapOption.name, 1, kTokensMost));
  return wanted;
}

Result<void> choose_draft_weights(const DraftWeights& wanted, const MtpSources& mtp,
                                  const LinearSource& head, ModelConfig& config) {
  config.draft_format = wanted.format.value_or(WeightFormat::nvfp4);
  config.draft_tokens.clear();
  if (!wanted.token_map.empty())
    config.draft_tokens = TRY(read_token_map(wanted.token_map, config));
  if (std::ssize(config.draft_tokens) == config.vocab_rows) config.draft_tokens.clear();
  const Result<void> legal = check_draft_places(draft_places(mtp, head, config), head);
  if (legal.ok() || wanted.format) return legal;
  config.draft_format = WeightFormat::plain;
  return check_draft_places(draft_places(mtp, head, config), head);
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
    words = config.draft_format == WeightFormat::nvfp4 ? " in NVFP4" : " in FP8";
  if (!config.draft_tokens.empty())
    words += concat(", chosen among ", config.draft_tokens.size(), " of ", config.vocab_rows);
  return words;
}

}  // namespace nibble
