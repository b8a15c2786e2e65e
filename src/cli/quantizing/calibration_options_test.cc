// The --calib options: what is refused, in words that say what to do, and what is read.
#include "cli/quantizing/calibration_options.h"

#include <gtest/gtest.h>

#include <fstream>

#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

const std::filesystem::path kModel = NIBBLE_SOURCE_DIR "/pebble/model";

Result<std::unique_ptr<PreparedCalibration>> prepared(std::vector<std::string> words,
                                                      CalibrationNeeds needs) {
  static const Checkpoint kCheckpoint = Checkpoint::open(kModel).value();
  words.insert(words.begin(), {"in", "out"});
  const Arguments arguments =
      parse_arguments(kQuantizeVerb, words, [](const std::string&) -> std::optional<std::string> {
        return {};
      }).value();
  return prepare_calibration(arguments, kCheckpoint, {}, needs);
}

std::string refusal(const std::vector<std::string>& words, CalibrationNeeds needs = {}) {
  const auto result = prepared(words, needs);
  return result.ok() ? "none" : result.error().message;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(CalibrationOptions, WithoutDataThereIsNone) {
  EXPECT_EQ(prepared({}, {}).value(), nullptr);
  EXPECT_TRUE(has(refusal({}, {.algorithm = RoundAlgorithm::gptq}), "add --calib FILE.jsonl"));
  EXPECT_TRUE(has(refusal({"--calib-seed", "3"}), "--calib-seed"));
}

TEST(CalibrationOptions, WhatIsNotThereIsNamed) {
  EXPECT_TRUE(has(refusal({"--calib", "ultra"}), "chat-math-code-languages"));
  EXPECT_TRUE(has(refusal({"--calib", "/none/x.jsonl"}), "/none/x.jsonl"));
  EXPECT_TRUE(has(refusal({"--calib", "/none/x.yaml"}), "/none/x.yaml"));
  EXPECT_TRUE(has(refusal({"--calib", "news-and-posttraining", "--calib-folder", "/none"}),
                  "/none/cnn_dailymail.jsonl"));
  EXPECT_TRUE(has(refusal({"--calib", "x.parquet"}), "parquet_to_jsonl"));
}

TEST(CalibrationOptions, SamplesAreReadAndMemoryIsKept) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.jsonl") << R"({"query":"Hi","reply":"Hello"})"
                                    << "\n"
                                    << R"({"query":"Ho","reply":"Hello"})"
                                    << "\n";
  const std::vector<std::string> words = {"--calib",         (folder / "a.jsonl").string(),
                                          "--calib-map",     "prompt=query,response=reply",
                                          "--calib-samples", "1",
                                          "--calib-length",  "5"};
  const auto run = prepared(words, {.algorithm = RoundAlgorithm::gptq, .threads = 1}).value();
  EXPECT_EQ(run->data.samples.size(), 1U);
  EXPECT_EQ(run->data.tokens(), 5);
  const Checkpoint checkpoint = Checkpoint::open(kModel).value();
  const auto refused = run->start(checkpoint, 1000);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().message, "hidden states"));
  ASSERT_TRUE(run->start(checkpoint, 0).ok());
  EXPECT_GT(run->run->memory().total(), 0);
  EXPECT_TRUE(has(run->text(), "1 samples, 5 tokens"));
}

TEST(CalibrationOptions, SecondMomentsAreTheOptionsOrTheRecipes) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.jsonl") << R"({"text":"Hello"})"
                                    << "\n";
  const std::string file = (folder / "a.jsonl").string();
  const Checkpoint checkpoint = Checkpoint::open(kModel).value();
  const auto fisher = [&](std::vector<std::string> words, CalibrationNeeds needs) {
    words.insert(words.begin(), {"--calib", file});
    const auto run = prepared(words, needs).value();
    EXPECT_TRUE(run->start(checkpoint, 0).ok());
    EXPECT_EQ(run->fisher.has_value(), has(run->hash(), " fisher:")) << run->hash();
    return run->fisher.has_value();
  };
  const CalibrationNeeds gptq{.algorithm = RoundAlgorithm::gptq};
  const CalibrationNeeds recipe{.algorithm = RoundAlgorithm::gptq,
                                .second_moments = SecondMoments::fisher};
  EXPECT_FALSE(fisher({}, gptq));
  EXPECT_TRUE(fisher({"--second-moments", "fisher"}, gptq));
  EXPECT_TRUE(fisher({}, recipe));
  EXPECT_FALSE(fisher({"--second-moments", "plain"}, recipe));
  EXPECT_FALSE(fisher({}, {.second_moments = SecondMoments::fisher}));  // search takes no sums
}

TEST(CalibrationOptions, SecondMomentsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(has(refusal({"--second-moments", "fisher"}), "--calib FILE beside it"));
  const TemporaryFolder folder;
  std::ofstream(folder / "a.jsonl") << R"({"text":"Hello"})"
                                    << "\n";
  const std::string file = (folder / "a.jsonl").string();
  EXPECT_TRUE(has(refusal({"--calib", file, "--second-moments", "fisher"}),
                  "--algorithm diagonal, blocks or gptq"));
  EXPECT_TRUE(has(refusal({"--calib", file, "--second-moments", "hessian"},
                          {.algorithm = RoundAlgorithm::gptq}),
                  "found hessian"));
}

}  // namespace
}  // namespace nibble
