// Segments that come in any order are written from front to back, and the hash sees them so.
#include "hub/segment_window.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "testing/test_files.h"

namespace nibble {
namespace {

std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

std::span<const std::byte> part(const std::string& text, uint64_t begin, uint64_t end) {
  return std::as_bytes(std::span(text)).subspan(begin, end - begin);
}

std::string hash_of(const std::string& text) {
  BlobHasher hasher(BlobHashKind::sha256, text.size());
  hasher.add(std::as_bytes(std::span(text)));
  return hasher.hex();
}

class Window : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "file";
  std::string text_ = pattern(1000);
};

TEST_F(Window, AnyOrderGivesTheFile) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 draw(seed);
    File file = File::open_write(path_).value();
    ASSERT_TRUE(file.reserve(0).ok());
    BlobHasher hasher(BlobHashKind::sha256, text_.size());
    SegmentWindow window(
        file, hasher,
        {.file_bytes = 1000, .written = 0, .segment_bytes = 64, .window_bytes = 2000});
    std::vector<FileSegment> open = {*window.take()};
    window.ranges_work();
    while (!open.empty()) {
      if (open.size() < 4 && draw() % 2 == 0)
        if (auto more = window.take()) open.push_back(*more);
      FileSegment& one = open[draw() % open.size()];
      const uint64_t end = std::min<uint64_t>(one.position() + 1 + draw() % 40, one.end);
      ASSERT_TRUE(window.add(one, part(text_, one.position(), end)).ok());
      ASSERT_EQ(read_test_file(path_), text_.substr(0, window.written()));
      std::erase_if(open, [](const FileSegment& segment) { return segment.complete(); });
      if (open.empty())
        if (auto more = window.take()) open.push_back(*more);
    }
    EXPECT_EQ(read_test_file(path_), text_) << seed;
    EXPECT_EQ(hasher.hex(), hash_of(text_)) << seed;
  }
}

TEST_F(Window, AServerWithoutRangesGivesOneSegment) {
  File file = File::open_write(path_).value();
  BlobHasher hasher(BlobHashKind::sha256, text_.size());
  SegmentWindow window(
      file, hasher, {.file_bytes = 1000, .written = 0, .segment_bytes = 64, .window_bytes = 128});
  FileSegment only = *window.take();
  window.ranges_absent(only);
  EXPECT_EQ(only.end, 1000U);
  EXPECT_FALSE(window.take());
  ASSERT_TRUE(window.add(only, part(text_, 0, 1000)).ok());
  EXPECT_EQ(read_test_file(path_), text_);
}

TEST_F(Window, TheFirstErrorStaysAndNothingIsGivenOut) {
  File file = File::open_write(path_).value();
  BlobHasher hasher(BlobHashKind::sha256, text_.size());
  SegmentWindow window(
      file, hasher, {.file_bytes = 1000, .written = 0, .segment_bytes = 64, .window_bytes = 128});
  window.fail({ErrorCode::io, "first"});
  window.fail({ErrorCode::io, "second"});
  EXPECT_FALSE(window.take());
  EXPECT_EQ(window.result().error().message, "first");
}

TEST_F(Window, MoreBytesThanTheSegmentHasAreLeft) {
  File file = File::open_write(path_).value();
  BlobHasher hasher(BlobHashKind::sha256, text_.size());
  SegmentWindow window(
      file, hasher, {.file_bytes = 1000, .written = 0, .segment_bytes = 64, .window_bytes = 128});
  FileSegment first = *window.take();
  ASSERT_TRUE(window.add(first, part(text_, 0, 200)).ok());
  EXPECT_EQ(window.written(), 64U);
}

TEST(BlobHash, AsGitAndSha256Do) {
  BlobHasher git(BlobHashKind::git_sha1, 6);
  git.add(std::as_bytes(std::span("hello\n", 6)));
  EXPECT_EQ(git.hex(), "ce013625030ba8dba906f756967f9e9ca394464a");  // git hash-object
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_kind_of(std::string(40, 'a')), BlobHashKind::git_sha1);
  EXPECT_EQ(hash_kind_of(std::string(64, 'A')), std::nullopt);
}

}  // namespace
}  // namespace nibble
