// The README.md of an output: what the file is, how it was made, what it inherits, how to run it.
// Says only what is known when the file is written; quality is measured by `verify --against`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "quantize/quantize_report.h"

namespace nibble {

struct ModelCard {
  std::string base_name;  // "Qwen/Qwen3.6-35B-A3B", or a folder's name
  std::string base_card;  // the source's README.md, or empty
  const Recipe& recipe;
  const QuantPlan& plan;
  const QuantizeReport& report;
  const Json& config;  // of the source
};

/// Markdown with Hugging Face front matter (licence and its link are the base card's, if it says).
std::string model_card(const ModelCard& card);

/// What `verify --against --text` measured.
struct CardMeasurement {
  std::string text;         // file name of the corpus
  std::string text_sha256;  // of its bytes
  int64_t positions = 0;
  std::string activations;  // "declared", "bf16", ...
  double kl_mean = 0, kl_median = 0, kl_p99 = 0;
  double top1 = 0;  // share
  double perplexity = 0, base_perplexity = 0;
};

/// The card with a row in the table of its section "Quality", which is made if need be. A row of
/// the same text and activations is replaced. A card without that section comes back as it was.
std::string card_with_measurement(std::string card, const CardMeasurement& measured);

/// "org/name" of a hub cache folder (.../models--org--name/snapshots/REV); else the folder's name.
std::string hub_name(const std::filesystem::path& folder);

/// A one-line value of a card's front matter, without quotes; empty if there is none.
std::string front_matter(std::string_view card, std::string_view key);

}  // namespace nibble
