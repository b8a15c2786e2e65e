// Direct reads give the bytes that buffered ones give, at any offset, over more than a buffer;
// where they are refused the checkpoint stays as it was.
#include "checkpoint/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 random(9);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

void write_bytes(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  File file = File::create_new(path).value();
  file.write_at(bytes, 0).value();
}

TEST(DirectFile, ReadsWhatIsThereAtAnyOffset) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = random_bytes((size_t{9} << 20) + 123);
  write_bytes(folder / "data", bytes);
  const Result<DirectFile> opened = DirectFile::open(folder / "data");
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) {
    size_t offset = random() % bytes.size();
    size_t count = random() % (bytes.size() - offset) + 1;
    if (i == 0) offset = 0, count = bytes.size();
    if (i == 1) offset = bytes.size() - 1, count = 1;
    if (i % 2 == 0 && i > 1) count = std::min<size_t>(count, 5000);
    std::vector<std::byte> out(count);
    opened.value().read_at(out, offset).value();
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(offset);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), begin)) << count << " bytes at " << offset;
  }
}

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(DirectFile, AMovedOneReadsItsFileAndIsClosedOnce) {
  const std::filesystem::path model = NIBBLE_SOURCE_DIR "/pebble/model";
  const int64_t before = open_descriptors();
  {
    Result<DirectFile> first = DirectFile::open(model / "config.json");
    Result<DirectFile> second = DirectFile::open(model / "tokenizer.json");
    if (!first.ok() || !second.ok()) GTEST_SKIP() << "no direct reads here";
    DirectFile file = std::move(first.value());
    file = std::move(second.value());
    std::vector<std::byte> out(200);
    file.read_at(out, 0).value();
    const std::string text = read_text_file(model / "tokenizer.json", uint64_t{1} << 30).value();
    EXPECT_TRUE(std::ranges::equal(out, std::as_bytes(std::span(text).first(out.size()))));
    const Result<void> beyond = file.read_at(out, uint64_t{1} << 30);
    ASSERT_FALSE(beyond.ok());
    EXPECT_NE(beyond.error().message.find("tokenizer.json"), std::string::npos)
        << beyond.error().message;
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DirectFile, AShortFileIsAnError) {
  const TemporaryFolder folder;
  write_bytes(folder / "data", random_bytes(10000));
  const Result<DirectFile> opened = DirectFile::open(folder / "data");
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  std::vector<std::byte> out(200);
  for (const uint64_t offset : {uint64_t{9900}, uint64_t{20000}}) {
    const Result<void> read = opened.value().read_at(out, offset);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
  }
}

TEST(DirectFile, ARefusalIsOneLine) {
  const Result<DirectFile> opened = DirectFile::open("/proc/self/status");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::unsupported) << opened.error().message;
  EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
}

TEST(DirectFile, AFileThatCannotBeOpenedIsNoRefusal) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("absent"), std::string(300, 'x')}) {
    const Result<DirectFile> opened = DirectFile::open(folder / name);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().code, ErrorCode::unsupported) << opened.error().message;
  }
}

TEST(DirectFile, AnEarlierFailureIsForgotten) {
  const std::filesystem::path file = NIBBLE_SOURCE_DIR "/pebble/model/config.json";
  if (const auto first = DirectFile::open(file); !first.ok()) GTEST_SKIP() << first.error().message;
  errno = EINVAL;
  EXPECT_TRUE(DirectFile::open(file).ok());
}

/// The descriptors of this process that leave the page cache alone.
int64_t direct_descriptors() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int flags = ::fcntl(std::stoi(entry.path().filename().string()), F_GETFL);
    count += flags >= 0 && (flags & O_DIRECT) != 0 ? 1 : 0;
  }
  return count;
}

TEST(DirectFile, ACheckpointReadDirectlyHasItsFilesOpenForThat) {
  const int64_t before = direct_descriptors();
  {
    Checkpoint checkpoint = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
    if (const auto done = checkpoint.read_directly(); !done.ok())
      GTEST_SKIP() << done.error().message;
    EXPECT_EQ(direct_descriptors(), before + std::ssize(checkpoint.files()));
  }
  EXPECT_EQ(direct_descriptors(), before);
}

TEST(DirectFile, ACheckpointReadDirectlyIsTheSame) {
  const std::string path = NIBBLE_SOURCE_DIR "/pebble/model";
  const Checkpoint buffered = Checkpoint::open(path).value();
  Checkpoint direct = Checkpoint::open(path).value();
  if (const auto done = direct.read_directly(); !done.ok()) GTEST_SKIP() << done.error().message;
  for (const TensorEntry& entry : buffered.entries()) {
    Tensor expected = buffered.read(entry).value();
    Tensor found = direct.read(*direct.find(entry.name)).value();
    EXPECT_TRUE(std::ranges::equal(expected.span(), found.span())) << entry.name;
  }
}

}  // namespace
}  // namespace nibble
