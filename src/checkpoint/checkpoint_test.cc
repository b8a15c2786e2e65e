// Reading whole folders: single file, shards with and without an index, look-up, partial reads.
// Folders that must be refused are in corrupt_test.cc.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <array>

#include "checkpoint/checkpoint_index.h"
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

/// The same tensors as of the files; none of them can be read.
TEST(Checkpoint, IsKnownFromHeadersAlone) {
  const TemporaryFolder folder;
  constexpr std::string_view kOther = R"({"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  constexpr std::string_view kIndex = R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors",)"
                                      R"("c":"2.safetensors"}})";
  write_test_file(folder / "config.json", R"({"model_type":"x"})");
  write_test_file(folder / "1.safetensors", safetensors_bytes(kTwoTensors, 14));
  write_test_file(folder / "2.safetensors", safetensors_bytes(kOther, 4));
  write_test_file(folder / "model.safetensors.index.json", kIndex);
  CheckpointHeaders headers{
      .name = "org/name",
      .config = R"({"model_type":"x"})",
      .index = std::string(kIndex),
      .files = {{"1.safetensors", 8 + kTwoTensors.size() + 14, std::string(kTwoTensors)},
                {"2.safetensors", 8 + kOther.size() + 4, std::string(kOther)}}};
  const Checkpoint opened = Checkpoint::open(folder.path()).value();
  const Checkpoint known = Checkpoint::from_headers(headers).value();
  ASSERT_EQ(known.entries().size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const TensorEntry& one = known.entries()[i];
    const TensorEntry& other = opened.entries()[i];
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.dtype, other.dtype);
    EXPECT_EQ(one.shape, other.shape);
    EXPECT_EQ(one.offset, other.offset);
    EXPECT_EQ(one.bytes, other.bytes);
    EXPECT_EQ(one.file, other.file);
  }
  EXPECT_EQ(known.config().find("model_type")->as_string(), "x");
  EXPECT_EQ(known.folder(), "org/name");
  const Error unread = known.read(*known.find("a")).error();
  EXPECT_EQ(unread.code, ErrorCode::unsupported);
  EXPECT_NE(unread.message.find("headers of org/name alone"), std::string::npos) << unread.message;

  headers.index->replace(headers.index->find("2.safe"), 1, "1");
  headers.files.pop_back();
  EXPECT_EQ(Checkpoint::from_headers(headers).error().code, ErrorCode::corrupt);
  headers.index.reset();
  headers.files.push_back({"3.safetensors", 8 + kTwoTensors.size() + 14, std::string(kTwoTensors)});
  EXPECT_NE(Checkpoint::from_headers(headers).error().message.find("exists twice"),
            std::string::npos);
  headers.files.back().bytes -= 1;
  EXPECT_EQ(Checkpoint::from_headers(headers).error().code, ErrorCode::corrupt);
}

TEST(CheckpointIndex, WeightFilesAreFoundByTheirNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(weight_files_of(
                {"b.safetensors", "a.safetensors", "x.bin", ".c.safetensors", "d/e.safetensors"}),
            (Names{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(weight_files_of({"b.safetensors", "model.safetensors"}), Names{"model.safetensors"});
  EXPECT_EQ(weight_files_of({"config.json"}), Names{});
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

TEST(Checkpoint, MapsTheTensorsThatItsFilesHold) {
  const TemporaryFolder folder;
  write_test_file(folder / "config.json", "{}");
  write_test_file(folder / "x.safetensors", safetensors_bytes(kOne, 3));
  write_test_file(folder / "y.safetensors", safetensors_bytes(kTwo, 1));
  Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  EXPECT_FALSE(checkpoint.mapped(*checkpoint.find("one")).present());  // nobody asked for it
  std::filesystem::resize_file(folder / "x.safetensors", 20);
  checkpoint.map_files().value();
  EXPECT_FALSE(checkpoint.mapped(*checkpoint.find("one")).present());
  EXPECT_EQ(checkpoint.mapped(*checkpoint.find("two")).bytes.size(), 1U);
  EXPECT_TRUE(checkpoint.mapped(*checkpoint.find("none")).bytes.empty());
}

}  // namespace
}  // namespace nibble
