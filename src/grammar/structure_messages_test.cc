// The messages of the structure worker give back what was written, and whatever is cut short or
// goes on too long is refused.
#include "grammar/structure_messages.h"

#include <gtest/gtest.h>

#include "grammar/byte_message.h"

namespace nibble {
namespace {

GrammarSource full_source() {
  return {.kind = GrammarSource::Kind::free_calls,
          .text = "a text",
          .choices = {"one", "", "three"},
          .tools = {{.name = "f", .parameters = parse_json(R"({"a":[1,"b"]})", "t").value()},
                    {.name = "g", .parameters = Json()}},
          .parallel_calls = false,
          .tool_begin = 258,
          .tool_end = 259};
}

WorkerSetup full_setup() {
  return {.vocabulary = {.tokens = {"a", "", std::string("\0b", 2)},
                         .stop_ids = {2, 7},
                         .tags = {1},
                         .encode = {}},
          .looks_max = 3'000'000'001,
          .memory_bytes_max = 4'000'000'002,
          .time_max_ms = 5'000'000'003};
}

TEST(StructureMessages, ASourceComesBackWhole) {
  for (const bool parallel : {true, false}) {
    GrammarSource sent = full_source();
    sent.parallel_calls = parallel;
    const GrammarSource got = source_of(bytes_of(sent)).value();
    EXPECT_EQ(got.kind, sent.kind);
    EXPECT_EQ(got.text, sent.text);
    EXPECT_EQ(got.choices, sent.choices);
    ASSERT_EQ(got.tools.size(), sent.tools.size());
    for (size_t i = 0; i < sent.tools.size(); ++i) {
      EXPECT_EQ(got.tools[i].name, sent.tools[i].name);
      EXPECT_EQ(got.tools[i].parameters.dump(), sent.tools[i].parameters.dump());
    }
    EXPECT_EQ(got.parallel_calls, parallel);
    EXPECT_EQ(got.tool_begin, sent.tool_begin);
    EXPECT_EQ(got.tool_end, sent.tool_end);
  }
}

TEST(StructureMessages, ASetupComesBackWhole) {
  const WorkerSetup sent = full_setup();
  const WorkerSetup got = setup_of(bytes_of(sent)).value();
  EXPECT_EQ(got.vocabulary.tokens, sent.vocabulary.tokens);
  EXPECT_EQ(got.vocabulary.stop_ids, sent.vocabulary.stop_ids);
  EXPECT_EQ(got.vocabulary.tags, sent.vocabulary.tags);
  EXPECT_EQ(got.looks_max, sent.looks_max);
  EXPECT_EQ(got.memory_bytes_max, sent.memory_bytes_max);
  EXPECT_EQ(got.time_max_ms, sent.time_max_ms);
}

/// A cache finds a structure by the bytes of its source: they differ wherever two sources do.
TEST(StructureMessages, DifferentSourcesHaveDifferentBytes) {
  std::vector<GrammarSource> all(9, full_source());
  all[1].kind = GrammarSource::Kind::tool_calls;
  all[2].text = "another";
  all[3].choices = {"on", "e", "three"};
  all[4].tools[0].name = "h";
  all[5].tools[1].parameters = Json(true);
  all[6].parallel_calls = true;
  all[7].tool_begin = 1;
  all[8].tool_end = 1;
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(bytes_of(all[i]), bytes_of(all[k])) << i << ", " << k;
}

TEST(StructureMessages, WhatIsCutShortOrTooLongIsRefused) {
  const std::string source = bytes_of(full_source());
  for (size_t size = 0; size < source.size(); ++size)
    EXPECT_FALSE(source_of(source.substr(0, size)).ok()) << size;
  const auto longer = source_of(source + '\0');
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code, ErrorCode::corrupt);
  EXPECT_NE(longer.error().message.find("a source of a structure"), std::string::npos);

  const std::string setup = bytes_of(full_setup());
  for (size_t size = 0; size < setup.size(); ++size) {
    const auto cut = setup_of(setup.substr(0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().code, ErrorCode::corrupt) << size;
    EXPECT_NE(cut.error().message.find("setup of a structure worker"), std::string::npos);
  }
  EXPECT_FALSE(setup_of(setup + '\0').ok());
}

TEST(StructureMessages, AKindThatThereIsNotIsRefused) {
  std::string bytes = bytes_of(full_source());
  bytes[0] = static_cast<char>(static_cast<int>(GrammarSource::Kind::free_calls) + 1);
  EXPECT_FALSE(source_of(bytes).ok());
}

/// A length that nobody could hold is seen before anything is reserved for it.
TEST(StructureMessages, AListIsNeverLongerThanItsBytes) {
  for (const uint64_t size : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}}) {
    ByteWriter out;
    out.number(size);
    out.number(uint64_t{0});
    out.number(uint64_t{0});
    const std::string bytes = out.take();
    ByteReader texts(bytes);
    EXPECT_TRUE(texts.texts().empty()) << size;
    EXPECT_FALSE(texts.sound()) << size;
    EXPECT_EQ(texts.number<uint64_t>(), 0U) << size;
    EXPECT_FALSE(texts.at_end()) << size;
  }
}

}  // namespace
}  // namespace nibble
