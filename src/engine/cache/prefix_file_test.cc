// A prefix file has the words that prefix_store.h names, read and written in their whole width; and
// whoever runs the engine is told in a line why one was dropped or not saved.
#include "engine/cache/prefix_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/cache/prefix_writer.h"
#include "testing/gate.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

constexpr PrefixStoreOptions kOptions = {
    .fingerprint = {21, 22, 23, 24}, .page_bytes = 16, .state_slot_bytes = 8, .bytes_max = 4096};

/// Numbers whose bytes all differ.
constexpr MediaSpan kWide = {
    .begin = 0x01020304, .count = 0x05060708, .digest = {0x1112131415161718, 0x2122232425262728}};

using Words = std::array<uint64_t, kPrefixHeaderBytes / 8>;

Words words_of(const std::array<std::byte, kPrefixHeaderBytes>& bytes) {
  Words words;
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

TEST(PrefixFile, HeadersHaveTheWordsInOrder) {
  const PrefixFileHeader header{31, 32, 33, 34, 35, 36};
  Words words = words_of(prefix_header_bytes(header, kOptions));
  EXPECT_NE(words.back(), 0U);  // the checksum
  words.back() = 0;
  EXPECT_EQ(words, (Words{0x4658455250424E1A, 1, 21, 22, 23, 24, 31, 32, 33, 34, 35, 36}));
  const PrefixFileHeader sound{31, 128, 2, 32, 8, 36};
  const uint64_t bytes = kPrefixHeaderBytes + 128 * 4 + 2 * 24 + 32 + 8;
  const auto parsed = parse_prefix_header(prefix_header_bytes(sound, kOptions), bytes, kOptions);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(words_of(prefix_header_bytes(parsed.value(), kOptions)),
            words_of(prefix_header_bytes(sound, kOptions)));
}

TEST(PrefixFile, MediaAreWrittenInTheirWholeWidth) {
  const std::vector<MediaSpan> spans = {{.begin = 1, .count = 2, .digest = {3, 4}}, kWide};
  const std::vector<std::byte> bytes = prefix_media_bytes(spans);
  ASSERT_EQ(bytes.size(), 48U);
  const uint8_t expected[] = {0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05,
                              0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
                              0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21};
  EXPECT_EQ(std::memcmp(bytes.data() + 24, expected, sizeof expected), 0);
}

/// A span may begin as far on as the tokens go, and end beyond them.
TEST(PrefixFile, MediaAreReadInTheirWholeWidth) {
  const std::vector<MediaSpan> spans = {{.begin = 1, .count = 2, .digest = {3, 4}}, kWide};
  PrefixFileHeader header{.salt = 5, .tokens = 0x01020305, .media = 2};
  std::vector<std::byte> body(header.body_bytes());
  const size_t tokens = header.tokens * 4;
  std::ranges::copy(prefix_media_bytes(spans), body.begin() + static_cast<ptrdiff_t>(tokens));
  Checksum sum;
  sum.add(std::span(body).first(tokens));
  sum.add(std::span(body).subspan(tokens));
  sum.add({});
  sum.add({});
  header.checksum = sum.value();
  const auto read = parse_prefix_body(header, body);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().salt, 5U);
  EXPECT_EQ(read.value().tokens.size(), header.tokens);
  EXPECT_EQ(prefix_media_bytes(read.value().media), prefix_media_bytes(spans));
}

TEST(PrefixFile, RefusalsSayWhatIsWrong) {
  const PrefixFileHeader sound{9, 128, 2, 32, 8, 0};
  const uint64_t bytes = kPrefixHeaderBytes + sound.body_bytes();
  constexpr std::string_view kAgain = "; it is computed again when asked for";
  struct Case {
    size_t word;
    uint64_t value;
    std::string message;
  };
  const Case cases[] = {
      {0, 1,
       concat("prefix file: no prefix file: expected its magic, found something else", kAgain)},
      {1, 7, "prefix file: version 7, this program writes 1; it is dropped"},
      {5, 7,
       "prefix file: made by another model, quantization, program or kind of device; it is "
       "dropped"},
      {7, 100, concat("prefix file: tokens: expected whole pages, found 100", kAgain)},
      {7, (1ULL << 30) + 64,
       concat("prefix file: tokens: expected whole pages, found 1073741888", kAgain)},
      {8, 129, concat("prefix file: media spans: expected few, found 129", kAgain)},
      {8, 3,
       concat("prefix file: wrong length: expected ", bytes + 24, " bytes, found ", bytes, kAgain)},
      {9, 64, "prefix file: pages of 32 and a state of 8 bytes; it is dropped"},
      {10, 9, "prefix file: pages of 16 and a state of 9 bytes; it is dropped"},
      {15, 1, concat("prefix file: damaged header: expected its checksum, found another", kAgain)}};
  for (const Case& c : cases) {
    Words words = words_of(prefix_header_bytes(sound, kOptions));
    words[c.word] = c.value;
    if (c.word != 15) {
      Checksum sum;
      sum.add(std::as_bytes(std::span(words).first(15)));
      words[15] = sum.value();
    }
    const auto parsed = parse_prefix_header(std::as_bytes(std::span(words)), bytes, kOptions);
    ASSERT_FALSE(parsed.ok()) << c.message;
    EXPECT_EQ(parsed.error().message, c.message);
  }
}

PrefixBytes sample(int32_t word) {
  PrefixBytes prefix;
  prefix.tokens.assign(128, word);
  prefix.pages.assign(32, std::byte{1});
  prefix.state.assign(8, std::byte{2});
  return prefix;
}

/// While the writer stands at a gate, which is in its first report, four more may wait and no
/// fifth.
TEST(PrefixWriter, SaysWhatItCouldNotSave) {
  const TemporaryFolder folder;
  PrefixStoreOptions options = kOptions;
  options.bytes_max = 4 * 688;
  PrefixStore store = PrefixStore::open(folder / "pins", options).value();
  testing::Gate gate;
  std::vector<std::string> lines;  // the writer stands while this thread's are added
  PrefixBytes large = sample(1);
  large.tokens.assign(64 * 20, 1);
  large.pages.assign(16 * 20, std::byte{1});
  {
    PrefixWriter writer(store, [&](const std::string& line) {
      lines.push_back(line);
      if (lines.size() == 1) gate.pass();
    });
    writer.save(std::move(large));
    gate.wait_for_one();
    for (int32_t word = 2; word <= 6; ++word) writer.save(sample(word));
    gate.open();
  }
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "pinned prefix of 1280 tokens not saved: a pinned prefix is too large for "
                       "the disk: expected at most 2752 bytes, found 5576",
                       "pinned prefix of 128 tokens not saved: the disk is slower than the "
                       "requests"}));
  std::vector<int32_t> saved;
  for (const auto& entry : store.entries())
    saved.push_back(store.load(entry).value().tokens.front());
  EXPECT_EQ(saved, (std::vector<int32_t>{2, 3, 4, 5}));
}

}  // namespace
}  // namespace nibble
