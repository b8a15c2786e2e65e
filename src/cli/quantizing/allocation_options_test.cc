// --target-bytes and --target-kl: sizes in words, and what is refused in one line.
#include "cli/quantizing/allocation_options.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(ByteCount, ReadsTheUnitsThatPeopleWrite) {
  EXPECT_EQ(read_byte_count("22GB"), 22'000'000'000);
  EXPECT_EQ(read_byte_count("18.5GiB"), 19'864'223'744);
  EXPECT_EQ(read_byte_count("900 MB"), 900'000'000);
  EXPECT_EQ(read_byte_count("512KiB"), 524'288);
  EXPECT_EQ(read_byte_count("1kB"), 1'000);
  EXPECT_EQ(read_byte_count("7B"), 7);
  EXPECT_EQ(read_byte_count("20000000"), 20'000'000);
  EXPECT_EQ(read_byte_count("2G"), int64_t{2} << 30);
  EXPECT_EQ(read_byte_count("2.5g"), 2'500'000'000);
  for (const char* bad :
       {"", "GB", "-1GB", "1e3GB", "nanGB", "infGB", "1..5GB", "12XB", "99999999999TB", "0x10GB"})
    EXPECT_FALSE(read_byte_count(bad)) << bad;
}

Result<std::optional<AllocationTarget>> target_of(std::vector<std::string> words) {
  words.insert(words.begin(), {"in", "out"});
  const Arguments arguments =
      parse_arguments(kQuantizeVerb, words, [](const std::string&) -> std::optional<std::string> {
        return {};
      }).value();
  return read_allocation_target(arguments);
}

std::string refusal(const std::vector<std::string>& words) {
  const auto result = target_of(words);
  if (result.ok()) return "none";
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
  return result.error().message;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(AllocationTarget, IsOneOfBothWithData) {
  EXPECT_FALSE(target_of({}).value().has_value());
  const auto bytes = target_of({"--target-bytes", "22GB", "--calib", "a.jsonl"}).value();
  EXPECT_EQ(bytes->bytes, 22'000'000'000);
  EXPECT_FALSE(bytes->kl.has_value());
  EXPECT_EQ(bytes->text, "--target-bytes 22000000000");
  const auto kl = target_of({"--target-kl", "1e-3", "--calib", "a.jsonl"}).value();
  EXPECT_EQ(kl->kl, 1e-3);
  EXPECT_FALSE(kl->bytes.has_value());
  EXPECT_EQ(kl->text, "--target-kl 1e-3");
}

TEST(AllocationTarget, WhatIsWrongIsSaidInOneLine) {
  EXPECT_TRUE(has(refusal({"--target-bytes", "1GB", "--target-kl", "1", "--calib", "a.jsonl"}),
                  "--target-bytes and --target-kl"));
  EXPECT_TRUE(has(refusal({"--target-bytes", "1GB"}), "add --calib FILE.jsonl"));
  EXPECT_TRUE(has(refusal({"--target-kl", "1"}), "add --calib FILE.jsonl"));
  EXPECT_TRUE(has(refusal({"--target-bytes", "much", "--calib", "a.jsonl"}), "\"much\""));
  EXPECT_TRUE(has(refusal({"--target-bytes", "-5", "--calib", "a.jsonl"}), "22GB"));
  EXPECT_TRUE(has(refusal({"--target-kl", "0", "--calib", "a.jsonl"}), "more than 0"));
  EXPECT_TRUE(has(refusal({"--target-kl", "x", "--calib", "a.jsonl"}), "--target-kl"));
}

}  // namespace
}  // namespace nibble
