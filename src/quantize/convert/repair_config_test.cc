// A file whose patterns vLLM does not match: it runs here, verify says so, --repair cures it.
#include "quantize/convert/repair_config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/testing/test_runs.h"
#include "quantize/verify/verify.h"

namespace nibble {
namespace {

using test::Folder;

/// Patterns as this program once wrote them: anchored at the file's own prefix.
void write_anchored_targets(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  std::string text = test::file_text(path);
  const auto replace_all = [&](std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
      text.replace(at, from.size(), to);
  };
  replace_all(R"(re:(?:model\\.|language_model\\.)*layers)",
              R"(re:model\\.language_model\\.layers)");
  replace_all(R"(re:(?:model\\.|language_model\\.)*lm_head$)", "re:lm_head$");
  write_file_atomically(path, text).value();
}

std::string findings_of(const std::filesystem::path& folder) {
  std::string all;
  for (const Finding& finding : verify_checkpoint(folder).value().findings)
    all += concat(finding.subject, ": ", finding.text, "\n");
  return all;
}

TEST(RepairConfig, VerifyNamesTheFaultAndRepairCuresItWithoutTouchingWeights) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::fused_experts);
  ASSERT_TRUE(
      test::run(folder / "in", folder / "new", {.recipe = load_recipe("mixed").value()}).ok());
  std::filesystem::copy(folder / "new", folder / "old");
  EXPECT_EQ(findings_of(folder / "old").find("vLLM"), std::string::npos);
  write_anchored_targets(folder / "old");
  const VerifyReport old = verify_checkpoint(folder / "old").value();
  EXPECT_FALSE(old.sound());
  const std::string found = findings_of(folder / "old");
  EXPECT_NE(found.find("config.json: the targets of quantization_config miss"), std::string::npos);
  EXPECT_NE(found.find("--repair"), std::string::npos) << found;
  const test::Opened loads(folder / "old");  // here it binds as before
  EXPECT_EQ(loads.weights.head().scheme.weights, WeightFormat::fp8_channel);

  const auto report = repair_config(Checkpoint::open(folder / "old").value(), folder / "repaired");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(test::file_text(folder / "repaired" / "config.json"),
            test::file_text(folder / "new" / "config.json"));
  EXPECT_TRUE(verify_checkpoint(folder / "repaired").value().sound());
  int64_t shared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "old"))
    if (entry.path().extension() == ".safetensors") {
      ++shared;
      EXPECT_TRUE(
          std::filesystem::equivalent(entry.path(), folder / "repaired" / entry.path().filename()));
    }
  EXPECT_EQ(shared, report.value().linked_files);
}

TEST(RepairConfig, ADeclaredHeadUnderLinearAloneIsNamed) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  const Recipe recipe =
      parse_recipe(
          "name: all\nstatus: production\nrules:\n  - match: 're:.*'\n    weights: nvfp4\n", "test")
          .value();
  const auto made = test::run(folder / "in", folder / "out", {.recipe = recipe});
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(verify_checkpoint(folder / "out").value().sound()) << findings_of(folder / "out");
  const auto path = folder / "out" / "config.json";
  std::string text = test::file_text(path);
  const size_t head = text.find(R"("re:(?:model\\.|language_model\\.)*lm_head$")");
  ASSERT_NE(head, std::string::npos) << text;
  text.replace(head, text.find('"', head + 1) + 1 - head, R"("Linear")");
  write_file_atomically(path, text).value();
  EXPECT_NE(findings_of(folder / "out").find("first language_model.lm_head"), std::string::npos)
      << findings_of(folder / "out");
}

TEST(RepairConfig, RefusesWhatItWouldLose) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  const auto plain = repair_config(Checkpoint::open(folder / "in").value(), folder / "x");
  ASSERT_FALSE(plain.ok());
  EXPECT_NE(plain.error().message.find("no quant_method"), std::string::npos);
  ASSERT_TRUE(test::run(folder / "in", folder / "out", {}).ok());
  const auto path = folder / "out" / "config.json";
  std::string text = test::file_text(path);
  const std::string_view none = R"("kv_cache_scheme": null)";
  ASSERT_NE(text.find(none), std::string::npos) << text;
  text.replace(text.find(none), none.size(), R"("kv_cache_scheme": {"num_bits": 8})");
  write_file_atomically(path, text).value();
  const auto cache = repair_config(Checkpoint::open(folder / "out").value(), folder / "y");
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.error().message.find("kv_cache_scheme"), std::string::npos);
}

}  // namespace
}  // namespace nibble
