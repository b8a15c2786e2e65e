// MappedFile: the bytes of the file, and what happens where it changes while it is mapped.
#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace nibble {
namespace {

constexpr size_t kBytes = size_t{64} << 10;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest()
      : path_(std::filesystem::path(testing::TempDir()) / concat("mapped_", ::getpid())) {
    std::string text(kBytes, 0);
    for (size_t i = 0; i < kBytes; ++i) text[i] = static_cast<char>(i * 7 + i / 256);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~MappedFileTest() override { std::filesystem::remove(path_); }

  static std::byte byte_of(size_t i) { return static_cast<std::byte>(i * 7 + i / 256); }

  std::filesystem::path path_;
};

TEST_F(MappedFileTest, HasTheBytesOfTheFile) {
  const MappedFile file = MappedFile::map(path_).value();
  ASSERT_EQ(file.bytes().size(), kBytes);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(file.bytes()[i], byte_of(i)) << i;
  EXPECT_TRUE(file.fetch(file.bytes()).ok());
  EXPECT_TRUE(file.fetch(file.bytes().subspan(4097, 3)).ok());
  will_need(file.bytes().subspan(5000, 100));
  EXPECT_TRUE(file.intact().ok());
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  std::filesystem::resize_file(path_, 0);
  const MappedFile file = MappedFile::map(path_).value();
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_TRUE(file.fetch({}).ok());
  EXPECT_TRUE(file.intact().ok());
}

TEST_F(MappedFileTest, WhatIsReplacedByRenamingStays) {
  const MappedFile file = MappedFile::map(path_).value();
  const std::filesystem::path other = concat(path_.string(), ".new");
  std::ofstream(other) << "another file";
  std::filesystem::rename(other, path_);
  EXPECT_EQ(file.bytes()[kBytes - 1], byte_of(kBytes - 1));
  EXPECT_TRUE(file.intact().ok());
}

TEST_F(MappedFileTest, AShrunkenFileIsAnErrorOfFetching) {
  const MappedFile file = MappedFile::map(path_).value();
  std::filesystem::resize_file(path_, 10000);
  EXPECT_TRUE(file.fetch(file.bytes().first(8000)).ok());
  const Result<void> fetched = file.fetch(file.bytes().last(8000));
  ASSERT_FALSE(fetched.ok());
  EXPECT_EQ(fetched.error().code, ErrorCode::corrupt);
  EXPECT_NE(fetched.error().message.find(path_.string()), std::string::npos);
}

TEST_F(MappedFileTest, WhoOutlivesItReadsZerosAndIsTold) {
  MappedFile file = MappedFile::map(path_).value();
  const MappedFile other = MappedFile::map("/proc/self/exe").value();
  file.outlive();
  std::filesystem::resize_file(path_, 10000);
  EXPECT_EQ(file.bytes()[kBytes - 1], std::byte{0});
  EXPECT_EQ(file.bytes()[kBytes - 30000], std::byte{0});
  EXPECT_EQ(file.bytes()[500], byte_of(500));
  const Result<void> intact = file.intact();
  ASSERT_FALSE(intact.ok());
  EXPECT_NE(intact.error().message.find("was changed while its weights were in use"),
            std::string::npos);
  EXPECT_NE(intact.error().message.find("found 10000 bytes"), std::string::npos)
      << intact.error().message;
  EXPECT_TRUE(other.intact().ok());
}

TEST_F(MappedFileTest, BytesWrittenInPlaceAreTold) {
  const MappedFile file = MappedFile::map(path_).value();
  std::filesystem::last_write_time(
      path_, std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  const Result<void> intact = file.intact();
  ASSERT_FALSE(intact.ok());
  EXPECT_EQ(intact.error().code, ErrorCode::corrupt);
}

using MappedFileDeath = MappedFileTest;

TEST_F(MappedFileDeath, WhoDoesNotOutliveItEndsWithALineThatNamesTheFile) {
  EXPECT_DEATH(
      {
        const MappedFile file = MappedFile::map(path_).value();
        std::filesystem::resize_file(path_, 10000);
        const volatile std::byte* last = &file.bytes()[kBytes - 1];
        static_cast<void>(*last);
      },
      "nibble: .*mapped_.* was truncated, or could not be read");
}

}  // namespace
}  // namespace nibble
