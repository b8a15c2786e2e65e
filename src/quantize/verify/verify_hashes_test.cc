// verify against the hashes beside a checkpoint: each way to differ from them is told by name.
#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "quantize/report/content_hashes.h"
#include "quantize/verify/verify.h"
#include "testing/golden_text.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReport = "quantize_report.json";
const std::string kZeros(64, '0');

/// Writes a sound checkpoint, and what quantize would write of its hashes.
ContentHashes write_hashed(const fs::path& folder) {
  const TinyCheckpoint tiny = TinyCheckpoint::moe();
  tiny.write(folder);
  ContentHashes hashes;
  for (const auto& [name, tensor] : tiny.tensors)
    hashes.tensors[name] = hash_of(std::as_bytes(std::span(tensor.bytes)));
  hashes.heads["model.safetensors"] = hash_of_head(folder / "model.safetensors").value();
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    hashes.files[name] = hash_of_file(folder / name).value();
  return hashes;
}

struct Change {
  const char* name;
  std::function<void(ContentHashes&)> to_hashes = {};
  std::function<void(const fs::path& folder)> to_folder = {};  // after the hashes were written
};

/// All hexadecimal digits but zeros look the same.
std::string listing(const VerifyReport& report) {
  std::string out;
  for (const Finding& finding : report.findings)
    out += concat(finding.severity == Severity::error ? "error " : "warning ", finding.subject,
                  ": ", finding.text, "\n");
  return std::regex_replace(out, std::regex("(?!0{12})[0-9a-f]{12}\\.\\.\\."), "HASH...");
}

VerifyReport verified(const Change& change) {
  const TemporaryFolder root;
  ContentHashes hashes = write_hashed(root / "model");
  if (change.to_hashes) change.to_hashes(hashes);
  write_test_file(root / "model" / kHashesFile, hashes.text());
  if (change.to_folder) change.to_folder(root / "model");
  return verify_checkpoint(root / "model").value();
}

std::function<void(const fs::path&)> with_file(std::string_view name, std::string_view text) {
  return [=](const fs::path& folder) { write_test_file(folder / name, text); };
}

TEST(VerifyHashes, WhatIsAsItWasWrittenHasNoFindings) {
  const VerifyReport report = verified({"nothing"});
  EXPECT_EQ(listing(report), "");
  EXPECT_EQ(report.hashed, VerifyReport::Hashed::compared);
}

TEST(VerifyHashes, EveryChangeIsToldByName) {
  const Change kChanges[] = {
      {"a tensor has another hash", [](auto& h) { h.tensors["lm_head.weight"] = kZeros; }},
      {"a tensor is not listed", [](auto& h) { h.tensors.erase("lm_head.weight"); }},
      {"a listed tensor is not there", [](auto& h) { h.tensors["no.such\nweight"] = kZeros; }},
      {"a head has another hash", [](auto& h) { h.heads["model.safetensors"] = kZeros; }},
      {"a listed head is not there", [](auto& h) { h.heads["more.safetensors"] = kZeros; }},
      {"a head is of no such file", [](auto& h) { h.heads["config.json"] = kZeros; }},
      {"a file has another hash", [](auto& h) { h.files["tokenizer.json"] = kZeros; }},
      {"a listed file is not there", [](auto& h) { h.files["vocab.json"] = kZeros; }},
      {"a name leads out of the folder", [](auto& h) { h.files["../vocab.json"] = kZeros; }},
      {"a name leads away from the folder", [](auto& h) { h.files["/etc/hostname"] = kZeros; }},
      {"a name is empty", [](auto& h) { h.files[""] = kZeros; }},
      {"a setting was added", {}, with_file("generation_config.json", "{}")},
      {"a template was added", {}, with_file("chat_template.jinja", "{{ bos_token }}")},
      {"a tokenizer was added", {}, with_file("tokenizer.model", "x")},
      {"a note was added", {}, with_file("notes.txt", "x")},
      {"the hashes are no JSON", {}, with_file(kHashesFile, "{")},
      {"the hashes are of another kind", {}, with_file(kHashesFile, R"({"algorithm":"MD5"})")},
  };
  std::string all;
  for (const Change& change : kChanges)
    all += concat("==== ", change.name, "\n", listing(verified(change)));
  expect_golden_text("verify/hashes.txt", all);
}

/// The report of the run decides where there are none.
TEST(VerifyHashes, MissingOnesAreAFaultOnlyIfTheReportNamesThem) {
  struct Row {
    const char* report;
    VerifyReport::Hashed hashed;
    bool sound;
  };
  using enum VerifyReport::Hashed;
  const Row kRows[] = {{nullptr, none, true},
                       {"{", none, true},
                       {R"({"hashes":"quantize_hashes.json"})", none, true},
                       {R"({"producer":{}})", not_kept, true},
                       {R"({"producer":{},"hashes":"quantize_hashes.json"})", none, false}};
  for (const Row& row : kRows) {
    const TemporaryFolder root;
    TinyCheckpoint::moe().write(root / "model");
    if (row.report != nullptr) write_test_file(root / "model" / kReport, row.report);
    const VerifyReport report = verify_checkpoint(root / "model").value();
    EXPECT_EQ(report.hashed, row.hashed) << row.report;
    EXPECT_EQ(report.sound(), row.sound) << listing(report);
    if (row.sound) continue;
    EXPECT_TRUE(
        listing(report).starts_with("error quantize_hashes.json: is missing, but quantize_"
                                    "report.json names it"))
        << listing(report);
  }
}

TEST(VerifyHashes, ATensorThatIsBegunAgainIsHashedAnew) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  TensorHasher hasher;
  hasher.add("a", bytes("first, "));
  hasher.add("b", bytes("another"));
  hasher.add("a", bytes("in two pieces"));
  EXPECT_EQ(hasher.finish("a"), hash_of(bytes("first, in two pieces")));
  hasher.add("a", bytes("second"));
  EXPECT_EQ(hasher.finish("a"), hash_of(bytes("second")));
  EXPECT_EQ(hasher.finish("b"), hash_of(bytes("another")));
  EXPECT_EQ(hasher.finish("of no bytes"), hash_of({}));
  hasher.keep("c", kZeros);
  const Hashes expected = {{"a", hash_of(bytes("second"))},
                           {"b", hash_of(bytes("another"))},
                           {"c", kZeros},
                           {"of no bytes", hash_of({})}};
  EXPECT_EQ(hasher.take(), expected);
}

}  // namespace
}  // namespace nibble
