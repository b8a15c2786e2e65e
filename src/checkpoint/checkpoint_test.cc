// Reading whole folders: single file, shards with and without an index, look-up, partial reads.
// Folders that must be refused are in corrupt_test.cc.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <array>

#include "testing/test_files.h"

namespace nibble {
namespace {

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("a":{"dtype":"BF16","shape":[3,1],"data_offsets":[8,14]}}   )";

TEST(Checkpoint, ReadsASingleFile) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", R"({"model_type":"x"})");
  write_test_file(folder / "model.safetensors", safetensors_bytes(kTwoTensors, 14));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  ASSERT_EQ(checkpoint.entries().size(), 2U);
  EXPECT_EQ(checkpoint.entries()[0].name, "a");
  EXPECT_EQ(checkpoint.config().find("model_type")->as_string(), "x");
  const TensorEntry* a = checkpoint.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::bf16);
  EXPECT_EQ(a->shape, (Shape{3, 1}));
  EXPECT_EQ(a->bytes, 6);
  const Tensor tensor = checkpoint.read(*a).value();
  EXPECT_EQ(tensor.as<uint8_t>()[0], 8);
  EXPECT_EQ(tensor.as<uint8_t>()[5], 13);
  std::array<std::byte, 2> part = {};
  ASSERT_TRUE(checkpoint.read_bytes(*a, 3, part).ok());
  EXPECT_EQ(part[0], std::byte{11});
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

/// Whatever their names and their order in the header.
TEST(Checkpoint, EmptyTensorsMayBeginWhereAnotherDoes) {
  for (const char* empty : {"a", "z"}) {
    const TemporaryFolder folder;
    const std::string header =
        concat(R"({"m":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},")", empty,
               R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})");
    write_test_file(folder / "config.json", "{}");
    write_test_file(folder / "model.safetensors", safetensors_bytes(header, 2));
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint.value().find(empty)->bytes, 0);
    EXPECT_EQ(checkpoint.value().read(*checkpoint.value().find("m")).value().bytes(), 2);
  }
}

TEST(Checkpoint, ExpectSaysWhatItWanted) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", "{}");
  write_test_file(folder / "model.safetensors", safetensors_bytes(kTwoTensors, 14));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  constexpr std::array kTypes = {DType::bf16, DType::f32};
  EXPECT_EQ(checkpoint.expect("b", kTypes, Shape{2}).value()->name, "b");
  const Error wrong = checkpoint.expect("b", kTypes, Shape{3}).error();
  EXPECT_EQ(wrong.code, ErrorCode::corrupt);
  EXPECT_EQ(wrong.message,
            "tensor \"b\" does not fit the model: expected BF16 or F32 [3], found F32 [2]");
  const Error type = checkpoint.expect("b", std::span(kTypes).first(1), Shape{2}).error();
  EXPECT_EQ(type.code, ErrorCode::corrupt);
  const Error missing = checkpoint.expect("c\n", kTypes, Shape{3}).error();
  EXPECT_EQ(missing.code, ErrorCode::not_found);
  EXPECT_EQ(missing.message,
            "missing tensor \"c\\n\": expected BF16 or F32 [3], found none; the checkpoint is "
            "incomplete");
}

constexpr std::string_view kOne = R"({"one":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
constexpr std::string_view kTwo = R"({"two":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                                  R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[1,1]}})";

TEST(Checkpoint, ReadsShardsThroughTheIndex) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", "{}");
  write_test_file(folder / "s1.safetensors", safetensors_bytes(kOne, 3));
  write_test_file(folder / "s2.safetensors", safetensors_bytes(kTwo, 1));
  write_test_file(folder / "stray.safetensors", safetensors_bytes(kOne, 3));
  // Some writers store total_size as a float; nothing depends on it.
  write_test_file(folder / "model.safetensors.index.json",
                  R"({"metadata":{"total_size":4.0},"weight_map":{"two":"s2.safetensors",)"
                  R"("none":"s2.safetensors","one":"s1.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  ASSERT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.files()[0], "s1.safetensors");
  EXPECT_EQ(checkpoint.find("two")->file, 1);
  EXPECT_EQ(checkpoint.find("two")->shape.rank(), 0);
  EXPECT_EQ(checkpoint.read(*checkpoint.find("none")).value().bytes(), 0);
}

TEST(Checkpoint, ReadsLooseFilesWithoutAnIndex) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", "{}");
  write_test_file(folder / "y.safetensors", safetensors_bytes(kTwo, 1));
  write_test_file(folder / "x.safetensors", safetensors_bytes(kOne, 3));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  EXPECT_EQ(checkpoint.files()[0], "x.safetensors");
  EXPECT_EQ(checkpoint.entries().size(), 3U);
}

TEST(Checkpoint, AFileThatShrinksLaterIsAnError) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", "{}");
  write_test_file(folder / "model.safetensors", safetensors_bytes(kTwoTensors, 14));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  std::filesystem::resize_file(folder / "model.safetensors", 20);
  const auto read = checkpoint.read(*checkpoint.find("a"));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("truncated"), std::string::npos) << read.error().message;
}

}  // namespace
}  // namespace nibble
