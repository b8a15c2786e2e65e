// A sound output is close to its source and else identical; defects that leave a file loadable
// show.
#include "quantize/verify/compare.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/testing/test_runs.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;

Result<Comparison> compare_folders(const std::filesystem::path& folder,
                                   const std::filesystem::path& source) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const Checkpoint from = TRY(Checkpoint::open(source));
  return compare_checkpoints(checkpoint, from);
}

TEST(Compare, ASoundOutputIsCloseAndElseIdentical) {
  const Folder folder;
  for (const auto layout : {Layout::fused_experts, Layout::dense}) {
    const auto source = folder / concat("in", static_cast<int>(layout));
    const auto output = folder / concat("out", static_cast<int>(layout));
    test::write_model(source, layout);
    ASSERT_TRUE(test::run(source, output, {.recipe = load_recipe("mixed").value()}).ok());
    const auto compared = compare_folders(output, source);
    ASSERT_TRUE(compared.ok()) << compared.error().message;
    const Comparison& c = compared.value();
    EXPECT_TRUE(c.changed.empty());
    EXPECT_TRUE(c.missing.empty());
    EXPECT_GT(c.identical, 15);
    EXPECT_EQ(c.linears.size(), layout == Layout::dense ? 14U : 38U);
    EXPECT_GT(c.relative_error(), 0.04);
    EXPECT_LT(c.worst()->relative_error, 0.1);
  }
}

TEST(Compare, TellsHowManyBytesOfTheSourceAreCompared) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(test::run(folder / "in", folder / "out").ok());
  const Checkpoint checkpoint = Checkpoint::open(folder / "out").value();
  const Checkpoint source = Checkpoint::open(folder / "in").value();
  int64_t bytes = 0, last = 0;
  for (const TensorEntry& entry : source.entries()) bytes += entry.bytes;
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, bytes);
    last = done;
  };
  ASSERT_TRUE(compare_checkpoints(checkpoint, source, {.progress = progress}).ok());
  EXPECT_EQ(last, bytes);
}

/// Overwrites bytes of one tensor where it lies.
void patch(const std::filesystem::path& folder, const std::string& name,
           const std::function<void(std::vector<uint8_t>&)>& change) {
  std::filesystem::path file;
  TensorEntry entry;
  {
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    entry = *checkpoint.find(name);
    file = folder / checkpoint.files()[static_cast<size_t>(entry.file)];
  }
  std::string text = test::file_text(file);
  std::vector<uint8_t> bytes(text.begin() + static_cast<int64_t>(entry.offset),
                             text.begin() + static_cast<int64_t>(entry.offset) + entry.bytes);
  change(bytes);
  std::copy(bytes.begin(), bytes.end(), text.begin() + static_cast<int64_t>(entry.offset));
  write_file_atomically(file, text).value();
}

struct Damage {
  const char* name;
  const char* tensor;
  std::function<void(std::vector<uint8_t>&)> change;
  const char* seen_at;  // module or tensor
};

// Each leaves a file that loads and passes every check that has no source to look at.
TEST(Compare, DamageThatOnlyTheSourceShows) {
  const std::string expert = "model.language_model.layers.0.mlp.experts.2.";
  const std::string up = expert + "up_proj.weight_packed";
  const std::string scales = expert + "down_proj.weight_scale";
  const Damage kDamages[] = {
      {"nibbles in the other order", up.c_str(),
       [](auto& bytes) {
         for (uint8_t& b : bytes) b = static_cast<uint8_t>(b << 4 | b >> 4);
       },
       "experts.2.up_proj"},
      {"two rows exchanged", up.c_str(),
       [](auto& bytes) {
         std::swap_ranges(bytes.begin(), bytes.begin() + 32, bytes.begin() + 320);
       },
       "experts.2.up_proj"},
      {"block scales doubled", scales.c_str(),
       [](auto& bytes) {
         for (uint8_t& b : bytes) b = static_cast<uint8_t>(b + 8);
       },
       "experts.2.down_proj"},
      {"one code of a row", up.c_str(), [](auto& bytes) { bytes[32 * 5 + 17] ^= 1; },
       "experts.2.up_proj"},
      {"one code of eight bits", "model.language_model.layers.1.self_attn.q_proj.weight",
       [](auto& bytes) { bytes[64 * 3 + 7] ^= 1; }, "self_attn.q_proj"},
      {"signs lost", "model.language_model.layers.1.self_attn.q_proj.weight",
       [](auto& bytes) {
         for (uint8_t& b : bytes) b &= 0x7F;
       },
       "self_attn.q_proj"},
      {"the MTP head of another training", "mtp.fc.weight", [](auto& bytes) { bytes[9] ^= 1; },
       "mtp.fc.weight"},
      {"a norm that is off by one", "model.language_model.norm.weight",
       [](auto& bytes) { bytes[1] ^= 0x80; }, "model.language_model.norm.weight"},
  };
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(
      test::run(folder / "in", folder / "sound", {.recipe = load_recipe("mixed").value()}).ok());
  std::string said;
  for (const Damage& damage : kDamages) {
    std::filesystem::remove_all(folder / "out");
    std::filesystem::copy(folder / "sound", folder / "out");
    patch(folder / "out", damage.tensor, damage.change);
    const Comparison c = compare_folders(folder / "out", folder / "in").value();
    said += concat("==== ", damage.name, "\n");
    for (const std::string& changed : c.changed) said += concat("changed: ", changed, "\n");
    for (const ComparedLinear& linear : c.linears)
      if (!linear.odd.empty()) said += concat(linear.module, ": ", linear.odd, "\n");
    if (!c.changed.empty()) {
      EXPECT_EQ(c.changed.front(), damage.seen_at) << damage.name;
      EXPECT_EQ(c.changed.size(), 1U) << damage.name;
      continue;
    }
    if (std::string_view(damage.name).starts_with("one ")) continue;  // its rounding is odd
    EXPECT_GT(c.worst()->relative_error, 0.15) << damage.name;
    EXPECT_TRUE(c.worst()->module.ends_with(damage.seen_at)) << damage.name << c.worst()->module;
  }
  expect_golden_text("verify/comparisons.txt", said);
}

}  // namespace
}  // namespace nibble
