// Tests what is flushed to the disk and in what order: after a power loss a note of finished work
// never stands without its data, nor config.json without the other files. Every flush of this
// program passes the two functions below, which note it and do it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/concat.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/write_journal.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

std::vector<std::string> flushed;  // file names, in order

void note_flush(int descriptor) {
  std::error_code failure;
  const auto path =
      std::filesystem::read_symlink(concat("/proc/self/fd/", descriptor), failure).string();
  flushed.push_back(path.substr(path.rfind('/') + 1));
}

std::vector<std::string> take_flushed() { return std::exchange(flushed, {}); }

}  // namespace
}  // namespace nibble

extern "C" int fsync(int descriptor) {
  nibble::note_flush(descriptor);
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int fdatasync(int descriptor) {
  nibble::note_flush(descriptor);
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

namespace nibble {
namespace {

TEST(Durability, DataBeforeItsNoteAndEverythingBeforeTheConfig) {
  const TemporaryFolder root;
  const std::vector<TensorPlan> plan = {{"a", DType::u8, Shape{2}}, {"b", DType::u8, Shape{2}}};
  Json work;
  work.set("source", "x");
  auto writer = CheckpointWriter::create(root / "out", plan,
                                         {.shard_bytes_max = 2, .work = work, .journal_seconds = 0})
                    .value();
  EXPECT_TRUE(std::ranges::count(take_flushed(), kJournalFile)) << "what the work is";
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  const std::byte data[2] = {};
  ASSERT_TRUE(writer.append("a", data).ok());
  ASSERT_TRUE(writer.note_finished("unit a", Json(1)).ok());
  EXPECT_EQ(take_flushed(), (std::vector<std::string>{first, second, std::string(kJournalFile)}));
  ASSERT_TRUE(writer.append("b", data).ok());
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  const std::string mine = concat(".tmp.", ::getpid());
  EXPECT_EQ(take_flushed(),
            (std::vector<std::string>{first, second, "model.safetensors.index.json" + mine, "out",
                                      "config.json" + mine, "out", "out"}));
}

}  // namespace
}  // namespace nibble
