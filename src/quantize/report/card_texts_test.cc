// Model cards of reports and declarations that are put together by hand, against a golden text: one
// for each way in which what is said depends on what is in the file.
#include <gtest/gtest.h>

#include "quantize/report/model_card.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

constexpr QuantScheme kNvfp4 = {WeightFormat::nvfp4, ActivationFormat::high};
constexpr QuantScheme kW4a4 = {WeightFormat::nvfp4, ActivationFormat::nvfp4};
constexpr QuantScheme kFp8 = {WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor};
constexpr QuantScheme kFp8Block = {WeightFormat::fp8_block, ActivationFormat::fp8_group};

KindReport kind_of(std::string kind, const QuantScheme& scheme, int64_t bytes_in) {
  return {.kind = std::move(kind),
          .scheme = scheme_text(scheme),
          .tensors = 3,
          .weights = bytes_in / 2,
          .bytes_in = bytes_in,
          .bytes_out = bytes_in / 4,
          .rounding = {.weight_squares = 100, .error_squares = 0.25}};
}

QuantizeReport report_of(std::vector<KindReport> kinds, Dialect dialect) {
  QuantizeReport report{.base = "Qwen/Qwen3.6-27B",
                        .recipe = "mixed",
                        .about = "words of the recipe",
                        .dialect = dialect,
                        .kinds = std::move(kinds),
                        .bytes_in = 3'000'000'000,
                        .bytes_out = 999'999'999};
  report.commands = {"nibble quantize SRC DST", "nibble convert SRC DST"};
  report.add_rest({.kind = std::string(kRest), .scheme = "as it was", .rounding = {}});
  return report;
}

/// The version of this program is left out.
std::string without_version(std::string text, const QuantizeReport& report) {
  const Json json = report.json();
  const std::string version = json.find("producer")->find("version")->as_string();
  for (size_t at = text.find(version); at != std::string::npos; at = text.find(version))
    text.replace(at, version.size(), "VERSION");
  return text;
}

TEST(CardTexts, OfReports) {
  constexpr const char* kBase =
      "---\nlicense: apache-2.0\nlicense_name: its name\nlicense_link: 'https://a/b'\n"
      "pipeline_tag: image-text-to-text\n---\nThe base.\n";
  const Json text = parse_json("{}", "a config").value();
  const Json sees = parse_json(R"({"vision_config":{}})", "a config").value();
  const auto embedding = QuantScheme{WeightFormat::fp8_block, ActivationFormat::high};
  QuantizeReport calibrated = report_of({kind_of("mlp.experts.down_proj", kNvfp4, 2'000'000'000),
                                         kind_of("self_attn.q_proj", kFp8, 500'000'000)},
                                        Dialect::modelopt);
  calibrated.data_hash = std::string(64, 'a');
  calibrated.hashes_file = "quantize_hashes.json";
  QuantizeReport four =
      report_of({kind_of("mlp.experts.down_proj", kW4a4, 2'000'000)}, Dialect::modelopt);
  four.status = RecipeStatus::free_text;
  four.warnings = {"input scales are the recipe's constants: no activation was measured"};
  QuantizeReport dense =
      report_of({kind_of("mlp.down_proj", kNvfp4, 2'000'000)}, Dialect::compressed_tensors);
  dense.status = RecipeStatus::lab;
  std::string all;
  all += model_card({.base_card = kBase,
                     .licence = LicenceFiles::beside,
                     .report = calibrated,
                     .config = text,
                     .measured = "| measured |\n"});
  all += model_card({.report = four, .config = sees});
  all += model_card({.report = dense, .config = text});
  for (const QuantizeReport& report :
       {report_of({kind_of("lm_head", kFp8Block, 10)}, Dialect::compressed_tensors),
        report_of({kind_of("embed_tokens", embedding, 10), kind_of("lm_head", kFp8Block, 10)},
                  Dialect::compressed_tensors),
        report_of({kind_of("mlp.up_proj", kFp8, 10)}, Dialect::modelopt),
        report_of({kind_of("mlp.up_proj", kFp8, 10), kind_of("mlp.experts.down_proj", kW4a4, 10)},
                  Dialect::compressed_tensors),
        report_of({kind_of("mlp.experts.down_proj", kW4a4, 10)}, Dialect::compressed_tensors)})
    all += model_card({.report = report, .config = text});
  expect_golden_text("output_texts/cards.txt", without_version(std::move(all), four));
}

TEST(CardTexts, OfForeignFiles) {
  const Json text = parse_json("{}", "a config").value();
  struct Row {
    const char* base_card;
    Dialect dialect;
    std::vector<QuantDeclaration::Module> modules;
  };
  const std::string layer = "model.layers.0.";
  const Row kRows[] = {
      {"---\nbase_model: a/other\nlicense: mit\n---\n",
       Dialect::modelopt,
       {{layer + "mlp.experts.0.up_proj", kNvfp4}, {layer + "self_attn.q_proj", kFp8}}},
      {"", Dialect::modelopt, {{layer + "mlp.experts.0.up_proj", kW4a4}}},
      {"words", Dialect::modelopt, {{layer + "mlp.up_proj", kFp8}, {"lm_head", kFp8}}},
      {"", Dialect::compressed_tensors, {{layer + "mlp.experts.0.up_proj", kNvfp4}}},
      {"",
       Dialect::compressed_tensors,
       {{layer + "mlp.up_proj", kW4a4}, {layer + "mlp.experts.0.up_proj", kFp8}}},
      {"", Dialect::compressed_tensors, {{layer + "mlp.up_proj", kNvfp4}}}};
  std::string all;
  for (const Row& row : kRows) {
    QuantDeclaration declaration;
    declaration.quantized = row.modules;
    all += foreign_card({.base_card = row.base_card,
                         .base_name = "owner/name",
                         .declaration = declaration,
                         .dialect = row.dialect,
                         .command = "nibble convert",
                         .config = text});
  }
  expect_golden_text("output_texts/foreign_cards.txt", without_version(std::move(all), {}));
}

TEST(CardTexts, AMeasurementHasAllItsFigures) {
  const std::string card =
      card_with_measurement("## Quality\n\nwords\n", {.text = "a.txt",
                                                      .text_sha256 = "0123456789abcdef",
                                                      .positions = 7,
                                                      .activations = "bf16",
                                                      .kl_mean = 0.5,
                                                      .kl_median = 0.25,
                                                      .kl_p99 = 1.5,
                                                      .top1 = 0.875,
                                                      .perplexity = 8.5,
                                                      .base_perplexity = 8.25});
  EXPECT_EQ(card,
            "## Quality\n\n"
            "| text | positions | activations | mean KL | median KL | p99 KL | same top-1 | "
            "perplexity | of the base |\n|---|---|---|---|---|---|---|---|---|\n"
            "| a.txt (SHA-256 0123456789ab) | 7 | bf16 | 0.500000 | 0.250000 | 1.5000 | 87.50 % | "
            "8.5000 | 8.2500 |\n\nwords\n");
}

}  // namespace
}  // namespace nibble
