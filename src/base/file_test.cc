// Files: what is there stays, what is made is whole.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
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

TEST_F(FileTest, NoLinkIsFollowedToWrite) {
  ASSERT_TRUE(write_file_atomically(at("victim"), "mine").ok());
  fs::create_symlink(at("victim"), at("link"));
  const auto opened = File::open_write(at("link"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().message,
            concat(at("link").string(),
                   " cannot be written: expected a regular file or none, "
                   "found a symbolic link; remove it, or name another place"));
  fs::create_symlink(at("nowhere"), at("dangling"));
  EXPECT_FALSE(File::open_write(at("dangling")).ok());
  EXPECT_FALSE(fs::exists(at("nowhere")));
  EXPECT_FALSE(File::create_new(at("link")).ok());
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(File::open_write(at("pipe")).ok());
  // A written file takes the link's place; what it led to stays.
  ASSERT_TRUE(write_file_atomically(at("link"), "new").ok());
  EXPECT_FALSE(fs::is_symlink(at("link")));
  EXPECT_EQ(text_of(at("victim")), "mine");
  // Folders may be links, and so may what is read.
  fs::create_directory_symlink(at("link").parent_path(), at("folder"));
  EXPECT_TRUE(File::open_write(at("folder") / "new").ok());
  fs::create_symlink(at("victim"), at("input"));
  EXPECT_EQ(text_of(at("input")), "mine");
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
