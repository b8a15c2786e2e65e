// The words of calibration data: mixes and what is wrong with them line by line, records of every
// shape, and the limits of both.
#include <gtest/gtest.h>

#include "quantize/calibrate/calibration_data.h"
#include "quantize/calibrate/calibration_record.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

const std::filesystem::path kModel = NIBBLE_SOURCE_DIR "/pebble/model";

std::string error_of(std::string_view text) {
  const auto mix = parse_calibration_mix(text, "m", "");
  return mix.ok() ? std::string("none") : mix.error().message;
}

TEST(CalibrationWords, WhatIsWrongInAMixIsNamedWithItsLine) {
  struct Row {
    const char* text;
    const char* expected;
  };
  constexpr const char* kKeys = "name, about, length, samples, seed, sources";
  const std::string unknown = concat("m line 2: unknown key \"x\": expected ", kKeys);
  const std::string no_map = concat("m line 1: mix: expected lines of ", kKeys);
  const Row kRows[] = {
      {"- a\n", no_map.c_str()},
      {"name: a\nx: 3\n", unknown.c_str()},
      {"name: a\nname: b\n", "m line 2: key \"name\" appears twice"},
      {"about: b\n", "m line 1: key \"name\" is missing"},
      {"name: a\n", "m line 1: key \"about\" is missing"},
      {"name: ''\nabout: b\n", "m line 1: \"name\": expected a word or a line"},
      {"name: [a]\nabout: b\n", "m line 1: \"name\": expected a word or a line"},
      {"name: a\nabout: b\nlength: -1\n", "m line 3: \"length\": expected a whole number"},
      {"name: a\nabout: b\nsamples: many\n", "m line 3: \"samples\": expected a whole number"},
      {"name: a\nabout: b\nseed: [1]\n", "m line 3: \"seed\": expected a whole number"},
      {"name: a\nabout: b\n", "m line 1: \"sources\": expected a list of 1 to 64"},
      {"name: a\nabout: b\nsources: []\n", "m line 1: \"sources\": expected a list of 1 to 64"},
      {"name: a\nabout: b\nsources: 3\n", "m line 1: \"sources\": expected a list of 1 to 64"},
      {"name: a\nabout: b\nsources: [3]\n", "m line 3: mix: expected lines of file, samples, map"},
      {"name: a\nabout: b\nsources: [{samples: 3}]\n", "m line 3: key \"file\" is missing"},
      {"name: a\nabout: b\nsources: [{file: x.txt, map: 3}]\n",
       "m line 3: \"map\": expected lines like prompt: query"},
      {"name: a\nabout: b\nsources:\n- file: x.txt\n  map: {title: q}\n",
       "m line 5: \"title\": expected a known field, as in prompt: query"},
      {"name: a\nabout: b\nsources:\n- file: x.txt\n  map: {prompt: [q]}\n",
       "m line 5: \"prompt\": expected a known field, as in prompt: query"},
  };
  for (const Row& row : kRows) EXPECT_EQ(error_of(row.text), row.expected) << row.text;
  const auto many = [](int count) {
    std::string text = "name: a\nabout: b\nsources:\n";
    for (int i = 0; i < count; ++i) text += "- file: x.txt\n";
    return text;
  };
  EXPECT_EQ(error_of(many(64)), "none");
  EXPECT_EQ(error_of(many(65)), "m line 1: \"sources\": expected a list of 1 to 64");
  const std::string sound = many(1);
  const size_t most = size_t{1} << 20;
  EXPECT_EQ(error_of(sound + "#" + std::string(most - sound.size() - 1, 'x')), "none");
  EXPECT_EQ(error_of(sound + "#" + std::string(most - sound.size(), 'x')),
            "m: expected at most 1048576 bytes");
}

TEST(CalibrationWords, AMixIsReadWhole) {
  const auto mix = parse_calibration_mix(
                       "name: a\nabout: b\nlength: 11\nsamples: 12\nseed: 13\nsources:\n"
                       "- file: x.jsonl\n  samples: 14\n  map:\n    prompt: q\n    response: r\n"
                       "- file: y.txt:7\n",
                       "m", "/data")
                       .value();
  EXPECT_EQ(mix.mix, "a");
  EXPECT_EQ(mix.length, 11);
  EXPECT_EQ(mix.samples, 12);
  EXPECT_EQ(mix.seed, 13U);
  ASSERT_EQ(mix.sources.size(), 2U);
  EXPECT_EQ(mix.sources[0].file, "/data/x.jsonl");
  EXPECT_EQ(mix.sources[0].samples, 14);
  EXPECT_EQ(mix.sources[0].fields, (FieldMap{{"prompt", "q"}, {"response", "r"}}));
  EXPECT_EQ(mix.sources[1].file, "/data/y.txt");
  EXPECT_EQ(mix.sources[1].samples, 7);
  EXPECT_TRUE(mix.sources[1].fields.empty());
  const CalibrationRequest usual;
  const auto short_mix =
      parse_calibration_mix("name: a\nabout: b\nsources: [{file: x.txt}]\n", "m", "").value();
  EXPECT_EQ(short_mix.length, usual.length);
  EXPECT_EQ(short_mix.samples, usual.samples);
  EXPECT_EQ(short_mix.seed, 0U);
}

/// The conversation of a record as JSON, or null.
std::string messages_of(std::string_view record, const FieldMap& fields = {}) {
  return record_messages(parse_json(record, "record").value(), fields).dump();
}

TEST(CalibrationWords, ConversationsOfOtherToolsHaveRoles) {
  struct Row {
    const char* record;
    const char* messages;
  };
  const Row kRows[] = {
      {R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},)"
       R"({"from":"model","value":"c"},{"from":"chatgpt","value":"d"},)"
       R"({"from":"function_response","value":"e"},{"from":"observation","value":"f"},)"
       R"({"from":"system","value":"g"}]})",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
       R"({"role":"assistant","content":"c"},{"role":"assistant","content":"d"},)"
       R"({"role":"tool","content":"e"},{"role":"tool","content":"f"},)"
       R"({"role":"system","content":"g"}])"},
      {R"({"messages":[{"role":"user","content":"a"},{"from":3,"value":"b"},{"from":"gpt"}]})",
       R"([{"role":"user","content":"a"},{"from":3,"value":"b"},{"from":"gpt"}])"},
      {R"({"messages":[],"conversations":[{"from":"gpt","value":"b"}]})",
       R"([{"role":"assistant","content":"b"}])"},
      {R"({"messages":null,"prompt":"a","completion":"b"})",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"},
      {R"({"messages":"no list"})", "null"},
      {R"({"prompt":"a"})", "null"},
      {R"({"prompt":3,"completion":"b"})", "null"},
      {R"({"question":"a","output":"b"})", "null"},
      {R"({"instruction":"a","input":"i"})", "null"},
      {R"({"inputs":"a","target":"b"})", "null"},
      {R"({"answer":"b","targets":"c"})", "null"},
  };
  for (const Row& row : kRows) EXPECT_EQ(messages_of(row.record), row.messages) << row.record;
  EXPECT_EQ(messages_of(R"({"prompt":"a","completion":"b","q":"c"})", {{"prompt", "q"}}),
            R"([{"role":"user","content":"c"},{"role":"assistant","content":"b"}])");
}

TEST(CalibrationWords, RecordsThatCannotBeUsedSayWhy) {
  const RecordEncoder encoder = RecordEncoder::load(kModel).value();
  const auto refusal = [&](std::string_view record) {
    const auto ids = encoder.encode(parse_json(record, "record").value(), {});
    return ids.ok() ? concat(ids.value().size(), " ids")
                    : concat(ids.error().code == ErrorCode::unsupported ? "skip " : "stop ",
                             ids.error().message.substr(0, 60));
  };
  const auto user = [](std::string_view content) {
    return concat(R"({"messages":[{"role":"user","content":)", content, "}]}");
  };
  EXPECT_EQ(refusal(user(R"([{"type":"image"}])")),
            "skip a message holds an image, a video or a sound");
  EXPECT_EQ(refusal(user(R"([{"type":"text","text":"x"},{"type":"audio"}])")),
            "skip a message holds an image, a video or a sound");
  EXPECT_EQ(refusal(user(R"([{"type":"text","text":"x"}])")), refusal(user(R"("x")")));
  const int64_t most = Tokenizer::load(kModel).value().vocab_size() - 1;
  EXPECT_EQ(refusal(concat(R"({"ids":[0,)", most, "]}")), "2 ids");
  EXPECT_EQ(refusal(concat(R"({"ids":[)", most + 1, "]}")),
            concat("skip token id ", most + 1, " is not one of this tokenizer"));
  EXPECT_EQ(refusal(R"({"input_ids":[-1]})"), "skip token id -1 is not one of this tokenizer");
  EXPECT_EQ(refusal(R"({"ids":[1.5]})"), "skip token id 1.5 is not one of this tokenizer");
  EXPECT_EQ(refusal(R"({"ids":[]})"), "0 ids");
  EXPECT_TRUE(refusal(R"({"ids":3})").starts_with("stop record: expected messages, prompt"));
  EXPECT_TRUE(refusal(R"([1])").starts_with("stop record: expected messages, prompt"));
  const auto without_tools = refusal(user(R"("x")"));
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"x"}],"tools":[]})"), without_tools);
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"x"}],"tools":3})"), without_tools);
}

TEST(CalibrationWords, MessagesAreOneLineOfALimitedLength) {
  EXPECT_EQ(one_line({ErrorCode::io,
                      "a\nb\tc\x7F"
                      "d"})
                .message,
            "a?b?c?d");
  EXPECT_EQ(one_line({ErrorCode::io, std::string(400, 'x')}).message, std::string(400, 'x'));
  EXPECT_EQ(one_line({ErrorCode::io, std::string(401, 'x')}).message,
            std::string(400, 'x') + "...");
  EXPECT_EQ(one_line({ErrorCode::io, "a"}).code, ErrorCode::io);
  for (const char* field :
       {"messages", "conversations", "tools", "prompt", "completion", "response", "output",
        "question", "answer", "input", "inputs", "instruction", "targets", "article", "highlights",
        "text", "input_ids", "ids"})
    EXPECT_TRUE(is_record_field(field)) << field;
  EXPECT_FALSE(is_record_field("title"));
}

}  // namespace
}  // namespace nibble
