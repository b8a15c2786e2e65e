// The README.md of an output: what the file is, how it was made, what it inherits, how to run it.
// Says only what is known when the file is written; quality is measured by `verify --against`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "quantize/report/quantize_report.h"

namespace nibble {

/// Licence or notice files (LICENSE*, NOTICE*, COPYING*) lie in the folder, and so in the output.
enum class LicenceFiles : uint8_t { none, beside };
LicenceFiles licence_files(const std::filesystem::path& folder);

struct ModelCard {
  std::string base_card;  // the base's README.md, or empty
  LicenceFiles licence = LicenceFiles::none;
  const QuantizeReport& report;
  const Json& config;         // of the model
  std::string measured = {};  // rows that card_measurements() found and that are still true
};

/// Markdown with Hugging Face front matter (licence and its link are the base card's, if it says).
std::string model_card(const ModelCard& card);

/// A converted file of which no report of this program tells how it was made.
struct ForeignCard {
  std::string base_card;  // of the file it was converted from, or empty
  LicenceFiles licence = LicenceFiles::none;
  std::string base_name;  // if that card names no base_model
  const QuantDeclaration& declaration;
  Dialect dialect = Dialect::compressed_tensors;
  std::string command;
  const Json& config;
};
std::string foreign_card(const ForeignCard& card);

/// The figures that `verify --against --text` measured.
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

/// The rows that card_with_measurement() wrote, with their head; or empty.
std::string card_measurements(std::string_view card);

/// "org/name" of a hub cache folder (.../models--org--name/snapshots/REV), of a path that is just
/// that, or of a folder whose card links its licence at huggingface.co/org/name with the folder's
/// name; else the folder's name.
std::string hub_name(const std::filesystem::path& folder, std::string_view card = "");

/// A one-line value of a card's front matter, without quotes; empty if there is none.
std::string front_matter(std::string_view card, std::string_view key);

}  // namespace nibble
