// All that an output says of itself in words, against tests/golden/quantize_papers: the
// declaration, the report, the card, the recipe, whose hashes are kept, and what inspect shows.
// Measured numbers are left out: they are tested where they are made. A failing test names the file
// to take over where a change is meant.
#include <gtest/gtest.h>

#include "quantize/rounding/rounding.h"
#include "quantize/testing/calibration_runs.h"
#include "quantize/testing/test_runs.h"
#include "quantize/verify/inspect.h"
#include "quantize/verify/verify.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

using test::Asked;
using test::Folder;
using test::Layout;

constexpr size_t kDecimalsMax = 3;  // a number with more is measured

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// The text with # for each measured number and each hash.
std::string constant_part(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef", kDigits = "0123456789";
  std::string out;
  while (!text.empty()) {
    const size_t word = std::min(text.find_first_not_of(kHex), text.size());
    if (word >= 64) {
      out += "#";
      text.remove_prefix(word);
      continue;
    }
    const size_t whole = std::min(text.find_first_not_of(kDigits), text.size());
    const bool point = whole > 0 && whole < text.size() && text[whole] == '.';
    const size_t end =
        point ? std::min(text.find_first_not_of(kDigits, whole + 1), text.size()) : whole;
    const bool power = whole > 0 && text.substr(end).starts_with("e-");
    const bool share = point && text.substr(end).starts_with(" %");
    if (power || share || (point && end - whole - 1 > kDecimalsMax)) {
      out += "#";
      text.remove_prefix(power ? std::min(text.find_first_not_of(kDigits, end + 2), text.size())
                               : end);
      continue;
    }
    const size_t taken = std::max<size_t>(end, 1);
    out += text.substr(0, taken);
    text.remove_prefix(taken);
  }
  return out;
}

std::string papers_of(const std::filesystem::path& folder) {
  std::string text;
  for (const auto& [name, content] : test::files_of(folder)) {
    if (name.ends_with(".safetensors") || name.ends_with(".svg")) continue;
    text += concat("==== ", name, "\n", content, "\n");
  }
  const Inspection inspection = inspect_checkpoint(folder).value();
  text += concat("==== inspect\n", inspection_text(inspection),
                 inspection_json(inspection, TensorList::left_out).dump_pretty(), "\n",
                 tensor_list_text(inspection));
  replace_all(text, folder.parent_path().string(), "FOLDER");
  const Json report =
      parse_json(test::file_text(folder / "quantize_report.json"), "report").value();
  replace_all(text, report.find("producer")->find("version")->as_string(), "VERSION");
  return constant_part(text);
}

void expect_golden(const std::string& name, const std::filesystem::path& folder) {
  expect_golden_text(concat("quantize_papers/", name, ".txt"), papers_of(folder));
}

TEST(Papers, OfMixedFormats) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(
      test::run(folder / "in", folder / "out", {.recipe = load_recipe("mixed").value()}).ok());
  expect_golden("mixed", folder / "out");
}

TEST(Papers, OfModelOpt) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts);
  const Asked asked{.recipe = load_recipe("mixed").value(), .dialect = Dialect::modelopt};
  ASSERT_TRUE(test::run(folder / "in", folder / "out", asked).ok());
  expect_golden("modelopt", folder / "out");
}

TEST(Papers, NameWhatWasRoundedWithoutData) {
  QuantizeReport report;
  report.fallbacks = {{"layers.1.up", "few tokens"}, {"layers.2.up", "none"}};
  const Json json = report.json();
  const Json::Array& rows = json.find("rounded_without_data")->as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].dump(), R"({"linear":"layers.1.up","reason":"few tokens"})");
  EXPECT_EQ(rows[1].dump(), R"({"linear":"layers.2.up","reason":"none"})");
}

TEST(Papers, OfACalibration) {
  test::Model model(Layout::fused_experts);
  const CalibrationData data = test::random_data();
  test::write_model(model.folder / "in", Layout::fused_experts);
  Calibration calibration = Calibration::start(*model.checkpoint, model.weights, model.config, data,
                                               test::options(moment_needed(RoundAlgorithm::gptq)))
                                .value();
  Asked asked{.recipe = load_recipe("mixed").value()};
  asked.options.algorithm = RoundAlgorithm::gptq;
  asked.options.calibration = &calibration;
  asked.options.data_hash = data.hash();
  ASSERT_TRUE(test::run(model.folder / "m", model.folder / "out", asked).ok());
  expect_golden("calibrated", model.folder / "out");
}

}  // namespace
}  // namespace nibble
