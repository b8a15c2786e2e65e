// A fingerprint stays while the folder stays, and changes with any header, size or time.
#include "checkpoint/source_fingerprint.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/sha256.h"
#include "checkpoint/checkpoint_writer.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

TEST(Sha256, StandardExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

void write_source(const fs::path& folder, int64_t bytes, char value) {
  auto writer = CheckpointWriter::create(folder, {{"w", DType::u8, Shape{bytes}}}).value();
  const std::string data(static_cast<size_t>(bytes), value);
  writer.append("w", std::as_bytes(std::span(data))).value();
  writer.finish(Json(Json::Object{})).value();
}

std::string print_of(const fs::path& folder) {
  return source_fingerprint(Checkpoint::open(folder).value()).value();
}

TEST(SourceFingerprint, ChangesWithTheSource) {
  const TemporaryFolder root;
  const fs::path folder = root / "in";
  const fs::path file = folder / "model.safetensors";
  write_source(folder, 1000, 'a');
  const std::string first = print_of(folder);
  EXPECT_EQ(print_of(folder), first);
  const auto time = fs::last_write_time(file);
  fs::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_NE(print_of(folder), first);
  fs::last_write_time(file, time);
  EXPECT_EQ(print_of(folder), first);
  fs::remove_all(folder);
  write_source(folder, 1000, 'b');
  fs::last_write_time(file, time);
  EXPECT_NE(print_of(folder), first) << "same size and time, other bytes";
  write_test_file(folder / "config.json", R"({"x": 1})");
  const std::string changed = print_of(folder);
  write_test_file(folder / "config.json", R"({"x": 2})");
  EXPECT_NE(print_of(folder), changed);
}

}  // namespace
}  // namespace nibble
