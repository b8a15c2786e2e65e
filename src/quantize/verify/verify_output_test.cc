// A run whose own last check fails leaves no checkpoint; one that changed later is named.
#include "quantize/verify/verify_output.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/report/content_hashes.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;

void make_output(const Folder& folder) {
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(test::run(folder / "in", folder / "out").ok());
}

/// Flips the last byte of a file.
void spoil(const std::filesystem::path& file) {
  std::string bytes = test::file_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomically(file, bytes).value();
}

TEST(VerifyOutput, ASoundOutputStays) {
  const Folder folder;
  make_output(folder);
  const auto report = verify_output(folder / "out", {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report.value().sound());
  EXPECT_EQ(report.value().hashed, VerifyReport::Hashed::compared);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/config.json"));
}

TEST(VerifyOutput, WhatTheDiskChangedHasNoConfig) {
  const Folder folder;
  make_output(folder);
  const auto report = verify_output(folder / "out", {}, [](const auto& output, const auto& how) {
    spoil(output / "model_mtp.safetensors");
    return verify_checkpoint(output, how);
  });
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::vector<std::string> wrong;
  for (const Finding& finding : report.value().findings)
    if (finding.severity == Severity::error) wrong.push_back(finding.subject + ": " + finding.text);
  ASSERT_EQ(wrong.size(), 1U) << wrong.back();
  EXPECT_TRUE(wrong.front().starts_with("mtp.norm.weight: ")) << wrong.front();
  EXPECT_FALSE(std::filesystem::exists(folder / "out/config.json"));
  EXPECT_FALSE(Checkpoint::open(folder / "out").ok());
}

TEST(VerifyOutput, WhatCannotBeReadHasNoConfig) {
  const Folder folder;
  make_output(folder);
  const auto report = verify_output(folder / "out", {}, [](const auto&, const auto&) {
    return Result<VerifyReport>(Error{ErrorCode::io, "the disk is gone"});
  });
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().message, "the disk is gone");
  EXPECT_FALSE(std::filesystem::exists(folder / "out/config.json"));
}

TEST(ContentHashes, AreReadAsTheyWereWritten) {
  const ContentHashes hashes{.tensors = {{"a\"b", std::string(64, 'a')}},
                             .heads = {},
                             .files = {{"x.json", std::string(64, '0')}}};
  const Json json = parse_json(hashes.text(), "test").value();
  EXPECT_EQ(ContentHashes::parse(json).value().text(), hashes.text());
}

TEST(ContentHashes, MalformedOnesAreRefusedByName) {
  struct Row {
    const char* text;
    const char* words;
  };
  const Row kRows[] = {
      {"{}", "quantize_hashes.json: algorithm"},
      {R"({"algorithm":"MD5"})", "algorithm: expected SHA-256, found \"MD5\""},
      {R"({"algorithm":"SHA-256","heads":{},"tensors":{}})", "files: expected an object of hashes"},
      {R"({"algorithm":"SHA-256","files":[],"heads":{},"tensors":{}})",
       "files: expected an object of hashes"},
      {R"({"algorithm":"SHA-256","files":{"a\nb":"AB"},"heads":{},"tensors":{}})",
       "expected 64 hexadecimal digits"},
      {R"({"algorithm":"SHA-256","files":{"a":1},"heads":{},"tensors":{}})",
       "expected 64 hexadecimal digits"}};
  for (const Row& row : kRows) {
    const auto hashes = ContentHashes::parse(parse_json(row.text, "test").value());
    ASSERT_FALSE(hashes.ok()) << row.text;
    EXPECT_NE(hashes.error().message.find(row.words), std::string::npos) << hashes.error().message;
    EXPECT_EQ(hashes.error().message.find('\n'), std::string::npos) << hashes.error().message;
  }
}

}  // namespace
}  // namespace nibble
