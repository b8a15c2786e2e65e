// Files and folders that must be refused, each with words that name the trouble; and headers with
// random damage, which may only be refused or be sound.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/safetensors_header.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

struct BadHeader {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* expected_words;
};

const BadHeader kBadHeaders[] = {
    {"empty_text", "", 0, "expected a header that begins with {"},
    {"array", "[]", 0, "expected a header that begins with {"},
    {"leading_space", " {}", 0, "expected a header that begins with {"},
    {"broken_json", R"({"a":)", 0, "model.safetensors header is not valid JSON at byte"},
    {"nul_byte_follows", "{}x", 0, "not valid JSON"},
    {"duplicate_tensor",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "duplicate key \"a\""},
    {"entry_is_list", R"({"a":[1]})", 0,
     "tensor \"a\": bad entry: expected an object, found array"},
    {"no_dtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "bad dtype: expected a string"},
    {"dtype_number", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "found integer"},
    {"unknown_dtype", R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1,
     "tensor \"a\": unknown element type: expected one of F64, F32"},
    {"no_shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "bad shape: expected a list"},
    {"negative_size", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
     "bad shape: expected sizes from 0 to 2^63 - 1, found -1"},
    {"fractional_size", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
     "found 1.0"},
    {"huge_size", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1,
     "bad shape"},
    {"product_overflows",
     R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "impossible shape: expected a whole number of bytes below 2^60"},
    {"overflow_then_zero",
     R"({"a":{"dtype":"F32","shape":[9223372036854775807,3,0],"data_offsets":[0,0]}})", 0,
     "impossible shape"},
    {"seven_dimensions", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
     "too many dimensions: expected at most 6, found 7"},
    {"odd_nibbles", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
     "impossible shape"},
    {"no_offsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1, "bad data_offsets"},
    {"three_offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1,
     "bad data_offsets"},
    {"negative_offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1,
     "bad data_offsets"},
    {"backward_offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 2,
     "expected [begin, end] with 0 <= begin <= end, found [2,1]"},
    {"too_many_bytes", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", 2,
     "size disagrees with shape [1] U8: expected 1 bytes, found 2"},
    {"truncated_data", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8,
     "lies outside the file, which may be truncated"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
     6, "tensor \"b\": overlaps tensor \"a\": expected begin 4, found 2"},
    {"hole",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3, "tensor \"b\": a hole lies before it: expected begin 1, found 2"},
    {"trailing_bytes", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
     "bytes after the last tensor: expected 62 bytes, found 63"},
    {"unknown_key", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1,
     "model.safetensors: tensor \"a\": unknown key: expected dtype, shape, data_offsets, found "
     "\"x\""},
    {"metadata_list", R"({"__metadata__":[]})", 0, "bad __metadata__"},
    {"metadata_number", R"({"__metadata__":{"n":1}})", 0, "found integer at \"n\""},
    {"deep", R"({"a":[[[[[1]]]]]})", 0, "nesting deeper than 4"},
};

TEST(Corrupt, HeadersAreRefusedByName) {
  for (const BadHeader& bad : kBadHeaders) {
    const TemporaryFolder folder;
    write_test_file(folder / "config.json", "{}");
    write_test_file(folder / "model.safetensors", safetensors_bytes(bad.header, bad.data_bytes));
    const auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << bad.name;
    const std::string& message = opened.error().message;
    EXPECT_NE(message.find(bad.expected_words), std::string::npos) << bad.name << ": " << message;
    EXPECT_TRUE(message.starts_with("model.safetensors")) << bad.name << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << bad.name << ": " << message;
  }
}

constexpr std::string_view kA = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
constexpr std::string_view kB = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

constexpr std::string_view kC = R"({"c":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

struct BadFolder {
  const char* name;
  std::vector<std::pair<std::string, std::string>> files;  // beside config.json {}
  const char* expected_words;
};

std::pair<std::string, std::string> index_file(std::string_view weight_map) {
  return {"model.safetensors.index.json", concat(R"({"weight_map":)", weight_map, "}")};
}

std::vector<BadFolder> bad_folders() {
  const std::pair<std::string, std::string> x = {"x.safetensors", safetensors_bytes(kA, 2)};
  const std::pair<std::string, std::string> y = {"y.safetensors", safetensors_bytes(kB, 2)};
  const std::pair<std::string, std::string> two = {
      "x.safetensors", safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                         R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                                         2)};
  std::string endless(8, '\xFF');
  return {
      {"no_weights", {{"pytorch_model.bin", "PK"}}, "holds no weights"},
      {"empty_file", {{"model.safetensors", ""}}, "no safetensors file: expected at least 8 bytes"},
      {"seven_bytes", {{"model.safetensors", "1234567"}}, "found 7"},
      {"header_past_the_end",
       {{"model.safetensors", safetensors_bytes(kA, 2).substr(0, 20)}},
       "truncated inside its header: expected at least 61 bytes, found 20"},
      {"endless_header", {{"model.safetensors", endless + "{}"}}, "header too long"},
      {"config_is_list", {{"config.json", "[]"}}, "config.json is no model configuration"},
      {"config_broken", {{"config.json", "{"}}, "config.json is not valid JSON"},
      {"twice_in_two_files",
       {x, {"z.safetensors", x.second}},
       "tensor \"a\" exists twice: expected one file, found x.safetensors and z.safetensors"},
      {"index_broken", {x, {"model.safetensors.index.json", "{"}}, "index.json is not valid JSON"},
      {"index_without_map", {x, {"model.safetensors.index.json", "{}"}}, "no usable weight_map"},
      {"index_empty_map", {x, index_file("{}")}, "found an empty one"},
      {"index_number", {x, index_file(R"({"a":1})")}, "bad file of tensor \"a\""},
      {"index_climbs_out", {x, index_file(R"({"a":"../x.safetensors"})")}, "a plain file name"},
      {"index_absolute", {x, index_file(R"({"a":"/etc/passwd"})")}, "a plain file name"},
      {"index_subfolder", {x, index_file(R"({"a":"sub/x.safetensors"})")}, "a plain file name"},
      {"index_hidden", {x, index_file(R"({"a":".x.safetensors"})")}, "a plain file name"},
      {"index_pickle", {x, index_file(R"({"a":"pytorch_model.bin"})")}, "a plain file name"},
      {"index_nul",
       {x, index_file(R"({"a":"x.safetensors\u0000.safetensors"})")},
       "a plain file name that ends in .safetensors, found \"x.safetensors"},
      {"index_duplicate",
       {x, index_file(R"({"a":"x.safetensors","a":"x.safetensors"})")},
       "duplicate key"},
      {"missing_shard",
       {x, index_file(R"({"a":"x.safetensors","b":"gone.safetensors"})")},
       "gone.safetensors: No such file"},
      {"shard_is_a_folder", {index_file(R"({"a":"folder.safetensors"})")}, "found a directory"},
      {"absent_from_its_shard",
       {x, index_file(R"({"a":"x.safetensors","c":"x.safetensors"})")},
       "about tensor \"c\": expected it in x.safetensors, found it in no file"},
      {"in_another_shard",
       {x, y, index_file(R"({"a":"y.safetensors","b":"x.safetensors"})")},
       "about tensor \"a\": expected it in y.safetensors, found it in x.safetensors"},
      {"absent_from_the_index",
       {two, index_file(R"({"a":"x.safetensors"})")},
       "about tensor \"b\": expected an entry in the index, found none"},
      {"absent_between_others_of_the_index",
       {two,
        {"z.safetensors", safetensors_bytes(kC, 2)},
        index_file(R"({"a":"x.safetensors","c":"z.safetensors"})")},
       "about tensor \"b\": expected an entry in the index, found none"},
  };
}

TEST(Corrupt, FoldersAreRefusedByName) {
  for (const BadFolder& bad : bad_folders()) {
    const TemporaryFolder folder;
    write_test_file(folder / "config.json", "{}");
    if (bad.name == std::string_view("shard_is_a_folder")) {
      std::filesystem::create_directory(folder / "folder.safetensors");
    }
    for (const auto& [name, data] : bad.files) write_test_file(folder / name, data);
    const auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << bad.name;
    const std::string& message = opened.error().message;
    EXPECT_NE(message.find(bad.expected_words), std::string::npos) << bad.name << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << bad.name << ": " << message;
  }
}

TEST(Corrupt, MissingFolderAndConfig) {
  const TemporaryFolder folder;
  const Error gone = Checkpoint::open(folder / "gone").error();
  EXPECT_EQ(gone.code, ErrorCode::not_found);
  EXPECT_NE(gone.message.find("found nothing there"), std::string::npos) << gone.message;
  write_test_file(folder / "file", "x");
  const Error file = Checkpoint::open(folder / "file").error();
  EXPECT_NE(file.message.find("found a file"), std::string::npos) << file.message;
  write_test_file(folder / "model.safetensors", safetensors_bytes(kA, 2));
  const Error config = Checkpoint::open(folder.path()).error();
  EXPECT_EQ(config.code, ErrorCode::not_found);
  EXPECT_NE(config.message.find("config.json"), std::string::npos) << config.message;
}

TEST(Corrupt, DamagedHeadersAreRefusedOrSound) {
  const std::string sound = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F8_E4M3","shape":[2,8],)"
      R"("data_offsets":[0,16]},"g":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}})",
      20);
  std::mt19937_64 random(20260101);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = sound;
    const auto edits = 1 + random() % 4;
    for (uint64_t i = 0; i < edits; ++i) {
      const auto at = random() % file.size();
      if (random() % 3 == 0) {
        file.erase(at, 1 + random() % 8);
      } else if (random() % 3 == 0) {
        file.insert(at, file.substr(random() % file.size(), 1 + random() % 16));
      } else {
        file[at] = static_cast<char>(random() & 255);
      }
      if (file.empty()) file.push_back('x');
    }
    const auto bytes = std::as_bytes(std::span(file));
    const auto length = safetensors_header_bytes(bytes, file.size(), "damaged");
    refused += !length.ok();
    if (!length.ok()) continue;
    const auto text = std::string_view(file).substr(8, length.value());
    const auto header = parse_safetensors_header(text, file.size(), "damaged");
    refused += !header.ok();
    if (!header.ok()) continue;
    uint64_t at = 8 + length.value();
    for (const auto& tensor : header.value().tensors) {
      ASSERT_EQ(tensor.offset, at);
      at += static_cast<uint64_t>(tensor.bytes);
    }
    ASSERT_EQ(at, file.size());
  }
  EXPECT_GT(refused, 15000);
  EXPECT_LT(refused, 20000);
}

/// File systems take names of 255 bytes.
TEST(CheckpointIndex, NamesHaveAtMost255Bytes) {
  const auto parse = [](size_t bytes) {
    const std::string ending = ".safetensors";
    const std::string name = std::string(bytes - ending.size(), 'x') + ending;
    return parse_checkpoint_index(index_file(concat(R"({"a":")", name, "\"}")).second);
  };
  EXPECT_TRUE(parse(255).ok());
  ASSERT_FALSE(parse(256).ok());
  EXPECT_NE(parse(256).error().message.find("a plain file name"), std::string::npos);
}

TEST(Corrupt, NamesAreShownUpToTwoHundredBytes) {
  EXPECT_EQ(quoted_name("a\nb"), "\"a\\nb\"");
  const std::string name(200, 'n');
  EXPECT_EQ(quoted_name(name), concat("\"", name, "\""));
  EXPECT_EQ(quoted_name(name + "x"), concat("\"", name, "\"..."));
}

}  // namespace
}  // namespace nibble
