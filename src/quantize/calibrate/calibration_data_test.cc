// Records of every shape become the tokens that shape means; choosing is by seed; what is cut,
// skipped or wrong is counted or named.
#include "quantize/calibrate/calibration_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "quantize/calibrate/calibration_record.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

const std::filesystem::path kModel = NIBBLE_SOURCE_DIR "/pebble/model";
constexpr int64_t kPositions = 16384;

const RecordEncoder& encoder() {
  static const RecordEncoder kEncoder = RecordEncoder::load(kModel).value();
  return kEncoder;
}

std::vector<int32_t> encoded(std::string_view record, const FieldMap& fields = {}) {
  return encoder().encode(parse_json(record, "record").value(), fields).value();
}

std::vector<int32_t> chat(std::string_view asked, std::string_view answered) {
  return encoded(concat(R"({"messages":[{"role":"user","content":")", asked,
                        R"("},{"role":"assistant","content":")", answered, R"("}]})"));
}

std::filesystem::path write(const TemporaryFolder& folder, const std::string& name,
                            const std::string& text) {
  std::ofstream(folder / name, std::ios::binary) << text;
  return folder / name;
}

std::string numbered_texts(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += concat(R"({"text":"the number )", i, R"("})", "\n");
  return text;
}

TEST(CalibrationRecord, EveryShapeOfAnExchangeIsTheSameConversation) {
  const auto expected = chat("Hi there", "Hello");
  const std::string_view records[] = {
      R"({"conversations":[{"from":"human","value":"Hi there"},{"from":"gpt","value":"Hello"}]})",
      R"({"prompt":"Hi there","completion":"Hello"})",
      R"({"prompt":"Hi there","response":"Hello"})",
      R"({"prompt":"Hi there","output":"Hello"})",
      R"({"question":"Hi there","answer":"Hello"})",
      R"({"instruction":"Hi there","input":"","output":"Hello"})",
      R"({"instruction":"Hi there","output":"Hello"})",
      R"({"inputs":"Hi there","targets":"Hello","language":"English"})",
  };
  for (const auto record : records) EXPECT_EQ(encoded(record), expected) << record;
  EXPECT_EQ(encoded(R"({"query":"Hi there","reply":"Hello"})",
                    {{"prompt", "query"}, {"response", "reply"}}),
            expected);
  EXPECT_EQ(encoded(R"({"instruction":"Hi","input":"there","output":"Hello"})"),
            chat(R"(Hi\n\nthere)", "Hello"));
}

TEST(CalibrationRecord, ToolsAreRendered) {
  const std::string_view tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})";
  const auto with = encoded(concat(R"({"messages":[{"role":"user","content":"Hi"}])", tools));
  const auto without = encoded(R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_GT(with.size(), without.size() + 10);
}

TEST(CalibrationRecord, TextsAreTokenisedAsTheyAre) {
  EXPECT_EQ(encoded(R"({"text":"one two"})"), encoder().encode_text("one two").value());
  EXPECT_EQ(encoded(R"({"article":"one","highlights":"two"})"),
            encoder().encode_text("one\n\ntwo").value());
  EXPECT_EQ(encoded(R"({"article":"one"})"), encoder().encode_text("one").value());
  EXPECT_EQ(encoded(R"({"input_ids":[3,1,2]})"), (std::vector<int32_t>{3, 1, 2}));
  // Data that looks like a special token is text.
  const auto ids = encoded(R"({"text":"<|im_end|>"})");
  EXPECT_GT(ids.size(), 1U);
}

TEST(CalibrationRecord, WhatCannotBeReadIsNamed) {
  const auto unknown = encoder().encode(parse_json(R"({"body":"x","score":1})", "r").value(), {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(unknown.error().message.find("body, score"), std::string::npos);
  const auto image = encoder().encode(
      parse_json(R"({"messages":[{"role":"user","content":[{"type":"image","image":"x"}]}]})", "r")
          .value(),
      {});
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(encoder().encode(parse_json(R"({"ids":[99999999]})", "r").value(), {}).ok());
}

TEST(CalibrationRecord, AModelMayLackATemplateButNotHaveABrokenOne) {
  const TemporaryFolder folder;
  for (const char* name : {"tokenizer.json", "config.json"})
    std::filesystem::copy(kModel / name, folder / name);
  const Json talk = parse_json(R"({"messages":[{"role":"user","content":"x"}]})", "record").value();
  const auto without = RecordEncoder::load(folder.path());
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_NE(without.value().encode(talk, {}).error().message.find("no chat template"),
            std::string::npos);
  write(folder, "chat_template.jinja", "{% if %}");
  EXPECT_FALSE(RecordEncoder::load(folder.path()).ok());
}

TEST(CalibrationData, ChoosesBySeedAndReportsWhatItChose) {
  const TemporaryFolder folder;
  const auto file = write(folder, "a.jsonl", numbered_texts(40) + "\n\n" + numbered_texts(10));
  const auto read = [&](uint64_t seed, int64_t samples) {
    CalibrationRequest request{.sources = {{.file = file}}};
    request.samples = samples;
    request.seed = seed;
    return read_calibration(request, kModel, kPositions).value();
  };
  const CalibrationData first = read(1, 8), again = read(1, 8), other = read(2, 8);
  ASSERT_EQ(first.samples.size(), 8U);
  EXPECT_EQ(first.hash(), again.hash());
  EXPECT_NE(first.hash(), other.hash());
  EXPECT_EQ(first.sources[0].records, 50);
  EXPECT_EQ(first.sources[0].chosen, again.sources[0].chosen);
  EXPECT_TRUE(std::ranges::is_sorted(first.sources[0].chosen));
  EXPECT_NE(first.sources[0].chosen, other.sources[0].chosen);
  // The line a sample names holds it.
  for (const CalibrationSample& sample : first.samples) {
    const int64_t number = sample.record <= 40 ? sample.record - 1 : sample.record - 43;
    EXPECT_EQ(sample.ids, encoder().encode_text(concat("the number ", number)).value());
  }
  EXPECT_EQ(read(3, 500).samples.size(), 50U);  // all there are
  const Json json = first.json();
  EXPECT_EQ(json.find("tokens")->as_int(), first.tokens());
  EXPECT_EQ(json.find("sources")->as_array()[0].find("chosen")->as_array().size(), 8U);
  EXPECT_EQ(json.find("sha256_of_ids")->as_string().size(), 64U);
}

TEST(CalibrationData, SharesSamplesAmongSourcesAndCutsThem) {
  const TemporaryFolder folder;
  const auto a = write(folder, "a.jsonl", numbered_texts(30));
  const auto b = write(folder, "b.jsonl", numbered_texts(30));
  const auto c = write(folder, "c.txt", std::string(3000, 'x') + " and so on");
  CalibrationRequest request{.sources = {{.file = a}, {.file = b, .samples = 4}, {.file = c}}};
  request.samples = 11;
  request.length = 3;
  const CalibrationData data = read_calibration(request, kModel, kPositions).value();
  EXPECT_EQ(data.sources[0].samples, 6);
  EXPECT_EQ(data.sources[1].samples, 4);
  EXPECT_EQ(data.sources[2].samples, 5);
  EXPECT_EQ(data.sources[0].truncated, 6);
  EXPECT_EQ(data.sources[2].truncated, 0);  // pieces, not samples that lost their end
  EXPECT_EQ(data.longest(), 3);
}

TEST(CalibrationData, WhatCannotBeUsedIsSkippedAndCounted) {
  const TemporaryFolder folder;
  const auto file = write(folder, "a.jsonl",
                          numbered_texts(3) + R"({"text":""})" + "\n" +
                              R"({"messages":[{"role":"wizard","content":"x"}]})" + "\n");
  const CalibrationData data =
      read_calibration({.mix = "", .sources = {{.file = file}}}, kModel, kPositions).value();
  EXPECT_EQ(data.samples.size(), 3U);
  EXPECT_EQ(data.sources[0].skipped, 2);
  EXPECT_FALSE(data.sources[0].skipped_why.empty());
}

TEST(CalibrationData, BadInputIsOneClearLine) {
  const TemporaryFolder folder;
  const auto message = [&](const std::filesystem::path& file, int64_t length = 100) {
    CalibrationRequest request{.sources = {{.file = file}}};
    request.length = length;
    const auto read = read_calibration(request, kModel, kPositions);
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.error().message;
  };
  const auto contains = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos ? "" : text;
  };
  EXPECT_EQ(contains(message(folder / "none.jsonl"), "none.jsonl"), "");
  EXPECT_EQ(contains(message(write(folder, "empty.jsonl", "")), "is empty"), "");
  EXPECT_EQ(contains(message(write(folder, "empty.txt", "")), "is empty"), "");
  EXPECT_EQ(contains(message(write(folder, "bad.jsonl", "{\"text\":\"a\"}\n{oops\n")), "line 2"),
            "");
  EXPECT_EQ(contains(message(write(folder, "odd.jsonl", "{\"body\":\"a\"}\n")), "--calib-map"), "");
  const auto good = write(folder, "good.jsonl", numbered_texts(2));
  EXPECT_EQ(contains(message(good, kPositions + 1), "16384"), "");
  EXPECT_EQ(contains(message(good, 0), "16384"), "");
}

TEST(CalibrationSources, AreFilesWithCounts) {
  const auto sources = parse_calibration_sources("a.jsonl:256,/x/b:c.txt").value();
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].file, "a.jsonl");
  EXPECT_EQ(sources[0].samples, 256);
  EXPECT_EQ(sources[1].file, "/x/b:c.txt");
  EXPECT_EQ(sources[1].samples, 0);
  EXPECT_FALSE(parse_calibration_sources("").ok());
  EXPECT_NE(parse_calibration_sources("a.parquet").error().message.find("parquet_to_jsonl"),
            std::string::npos);
  EXPECT_EQ(parse_field_map("prompt=q,response=a b").value().at("response"), "a b");
  for (const std::string_view wrong : {"prompt", "title=x", "prompt=", "=x"})
    EXPECT_FALSE(parse_field_map(wrong).ok()) << wrong;
}

TEST(CalibrationMix, TheBuiltInOnesAreReadAndNameTheirSources) {
  ASSERT_EQ(builtin_mixes().size(), 2U);
  for (const BuiltinMix& mix : builtin_mixes()) {
    const auto request = parse_calibration_mix(mix.text, mix.name, "/data").value();
    EXPECT_EQ(request.mix, mix.name);
    EXPECT_GE(request.sources.size(), 2U);
    for (const CalibrationSource& source : request.sources) {
      EXPECT_EQ(source.file.parent_path(), "/data");
      EXPECT_GT(source.samples, 0);
    }
  }
}

TEST(CalibrationMix, ErrorsNameTheLine) {
  const auto error = [](std::string_view text) {
    const auto mix = parse_calibration_mix(text, "m.yaml", "");
    return mix.ok() ? std::string("none") : mix.error().message;
  };
  EXPECT_EQ(error("name: a\nabout: b\nsources:\n  - file: x.jsonl\n    map:\n      prompt: q\n"),
            "none");
  EXPECT_NE(error("name: a\nabout: b\nlenght: 3\n").find("m.yaml line 3"), std::string::npos);
  EXPECT_NE(error("name: a\nabout: b\n").find("sources"), std::string::npos);
  EXPECT_NE(error("name: a\nabout: b\nsources: [{file: x.zip}]\n").find(".jsonl"),
            std::string::npos);
  EXPECT_NE(error("name: [\n").find("m.yaml line"), std::string::npos);
  EXPECT_NE(error("name: a\nabout: b\nsources: [{file: x.txt, map: {title: q}}]\n").find("title"),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
