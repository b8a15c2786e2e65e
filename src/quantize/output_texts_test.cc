// The texts beside the tensors of an output, against tests/golden/output_texts: config.json, the
// model card, report, recipe, index and hashes, and what inspect shows. Measured numbers are left
// out: they are tested where they are made. Experts differ in their numbers alone, so only those of
// number 0 are compared. A failing test names the file to take over where a change is meant.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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

/// JSON with one line for each array and object of few members that has none of these in it.
std::string in_lines(const Json& value, const std::string& indent) {
  constexpr size_t kMembersMax = 16;
  const auto nested = [](const Json& each) { return each.is_array() || each.is_object(); };
  std::vector<std::pair<std::string, const Json*>> members;
  if (value.is_array())
    for (const Json& each : value.as_array()) members.emplace_back("", &each);
  if (value.is_object())
    for (const Json::Member& each : value.as_object())
      members.emplace_back(concat(Json(each.key).dump(), ": "), &each.value);
  const auto is_nested = [&](const auto& member) { return nested(*member.second); };
  if (members.size() <= kMembersMax && std::ranges::none_of(members, is_nested))
    return value.dump();
  std::string out = value.is_array() ? "[\n" : "{\n";
  for (const auto& [name, member] : members)
    out += concat(indent, "  ", name, in_lines(*member, indent + "  "), "\n");
  return concat(out, indent, value.is_array() ? "]" : "}");
}

/// The text without lines of experts but the first.
std::string without_further_experts(std::string_view text) {
  constexpr std::string_view kExperts = ".experts.";
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    const size_t at = line.find(kExperts);
    const bool further =
        at != line.npos && line[at + kExperts.size()] >= '1' && line[at + kExperts.size()] <= '9';
    if (!further) out += line;
    text.remove_prefix(end);
  }
  return out;
}

std::string text_of(const std::string& name, const std::string& content) {
  const bool json = name.ends_with(".json");
  return concat("==== ", name, "\n",
                json ? in_lines(parse_json(content, name).value(), "") : content, "\n");
}

/// Compares texts about the output in `folder` with a file of goldens.
void expect_texts(const std::string& name, const std::filesystem::path& folder, std::string texts) {
  replace_all(texts, folder.parent_path().string(), "FOLDER");
  const Json report =
      parse_json(test::file_text(folder / "quantize_report.json"), "report").value();
  replace_all(texts, report.find("producer")->find("version")->as_string(), "VERSION");
  expect_golden_text(concat("output_texts/", name, ".txt"),
                     constant_part(without_further_experts(texts)));
}

/// Compares the files in `folder`, but those `left_out`, and what inspect shows of them.
void expect_golden(const std::string& name, const std::filesystem::path& folder,
                   const std::set<std::string>& left_out) {
  std::string texts;
  for (const auto& [file, content] : test::files_of(folder))
    if (!file.ends_with(".safetensors") && !file.ends_with(".svg") && !left_out.contains(file))
      texts += text_of(file, content);
  const Inspection inspection = inspect_checkpoint(folder).value();
  texts += concat("==== inspect\n", inspection_text(inspection),
                  in_lines(inspection_json(inspection, TensorList::left_out), ""), "\n",
                  tensor_list_text(inspection));
  expect_texts(name, folder, texts);
}

TEST(OutputTexts, OfMixedFormats) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(
      test::run(folder / "in", folder / "out", {.recipe = load_recipe("mixed").value()}).ok());
  expect_golden("mixed", folder / "out", {"model.safetensors.index.json"});
}

TEST(OutputTexts, OfModelOpt) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts);
  const Asked asked{.recipe = load_recipe("mixed").value(), .dialect = Dialect::modelopt};
  ASSERT_TRUE(test::run(folder / "in", folder / "out", asked).ok());
  // These are as in mixed.txt but for the dialect, which the others show.
  expect_golden("modelopt", folder / "out", {"README.md", "recipe.yaml", "quantize_report.json"});
}

TEST(OutputTexts, NameWhatWasRoundedWithoutData) {
  QuantizeReport report;
  report.fallbacks = {{"layers.1.up", "few tokens"}, {"layers.2.up", "none"}};
  const Json json = report.json();
  const Json::Array& rows = json.find("rounded_without_data")->as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].dump(), R"({"linear":"layers.1.up","reason":"few tokens"})");
  EXPECT_EQ(rows[1].dump(), R"({"linear":"layers.2.up","reason":"none"})");
}

TEST(OutputTexts, OfACalibration) {
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
  const auto out = model.folder / "out";
  ASSERT_TRUE(test::run(model.folder / "m", out, asked).ok());
  Json report = parse_json(test::file_text(out / "quantize_report.json"), "report").value();
  for (const char* rows : {"kinds", "layers"}) report.set(rows, "as in mixed.txt");
  expect_texts("calibrated", out,
               text_of("README.md", test::file_text(out / "README.md")) +
                   text_of("quantize_report.json", report.dump()));
}

}  // namespace
}  // namespace nibble
