// Files: what is there stays, what is made is whole.
#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/concat.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(concat(::testing::TempDir(), "nibble_file_test.", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }

  fs::path at(const char* name) const { return folder_ / name; }
  static std::string text_of(const fs::path& path) {
    auto text = read_text_file(path, 1000);
    return text.ok() ? text.value() : text.error().message;
  }

 private:
  fs::path folder_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(FileTest, ANewFileIsNeverAnOldOne) {
  ASSERT_TRUE(write_file_atomically(at("a"), "old").ok());
  const auto made = File::create_new(at("a"));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(text_of(at("a")), "old");
}

TEST_F(FileTest, WritingGoesOnOverWhatIsThere) {
  ASSERT_TRUE(write_file_atomically(at("a"), "0123456789").ok());
  for (const char* name : {"a", "missing"}) {
    auto file = File::open_write(at(name));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().write_at(bytes_of("xy"), 2).ok());
  }
  EXPECT_EQ(text_of(at("a")), "01xy456789");
  EXPECT_EQ(text_of(at("missing")), std::string("\0\0xy", 4));
}

TEST_F(FileTest, ReservingGivesTheSize) {
  ASSERT_TRUE(write_file_atomically(at("a"), "0123456789").ok());
  for (const uint64_t size : {uint64_t{4096}, uint64_t{4}}) {
    auto file = File::open_write(at("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().reserve(size).ok());
    EXPECT_EQ(fs::file_size(at("a")), size);
  }
  EXPECT_EQ(text_of(at("a")), "0123");
}

TEST_F(FileTest, ShortFilesAndMissingFoldersAreErrors) {
  ASSERT_TRUE(write_file_atomically(at("a"), "0123").ok());
  auto file = File::open_read(at("a"));
  ASSERT_TRUE(file.ok());
  std::array<std::byte, 8> room = {};
  EXPECT_EQ(file.value().read_at(room, 0).error().code, ErrorCode::corrupt);
  EXPECT_TRUE(sync_folder(at("a").parent_path()).ok());
  EXPECT_EQ(sync_folder(at("nowhere")).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace nibble
