// Names, the place of the cache, and snapshots that are whole, partial or not there. That the
// layout is huggingface_hub's own is tests/cli/hub_cache_test.py.
#include "cli/options/hub_cache.h"

#include <gtest/gtest.h>

#include <map>

#include "testing/test_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST(HubName, Forms) {
  struct Row {
    std::string word;
    std::string repository;  // empty: no name of the hub
    std::string revision;
  };
  const std::string long_part(97, 'a');
  const Row rows[] = {
      {"Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.6-35B-A3B", ""},
      {"org/name@main", "org/name", "main"},
      {"org/name@refs/pr/3", "org/name", "refs/pr/3"},
      {"org/name@../x", "org/name", "../x"},  // its folder is refused, by name
      {"a/b@c@d", "a/b", "c@d"},
      {"name", "", ""},
      {"/org/name", "", ""},
      {"org/name/", "", ""},
      {"org/name/part", "", ""},
      {"./name", "", ""},
      {"../name", "", ""},
      {"org/..", "", ""},
      {"org/na..me", "", ""},
      {"org/na--me", "", ""},
      {"org/name.git", "", ""},
      {"-org/name", "", ""},
      {"org/name-", "", ""},
      {"org/na me", "", ""},
      {"org/n\xC3\xA4me", "", ""},
      {"org/name@", "", ""},
      {"org/", "", ""},
      {"/name", "", ""},
      {"", "", ""},
      {"org/" + long_part, "", ""},
  };
  for (const Row& row : rows) {
    const auto name = parse_hub_name(row.word);
    ASSERT_EQ(name.has_value(), !row.repository.empty()) << row.word;
    if (!name) continue;
    EXPECT_EQ(name->repository, row.repository);
    EXPECT_EQ(name->revision, row.revision);
  }
}

std::map<std::string, std::string>& variables() {
  static std::map<std::string, std::string> values;
  return values;
}
const char* variable(const char* name) {
  const auto found = variables().find(name);
  return found == variables().end() ? nullptr : found->second.c_str();
}

TEST(HubCache, PlaceFollowsTheEnvironment) {
  struct Row {
    std::map<std::string, std::string> variables;
    std::string folder;
  };
  const Row rows[] = {
      {{{"HOME", "/home/ada"}}, "/home/ada/.cache/huggingface/hub"},
      {{{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", "/c"}}, "/c/huggingface/hub"},
      {{{"XDG_CACHE_HOME", "/c"}, {"HF_HOME", "/h"}}, "/h/hub"},
      {{{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}, "/old"},
      {{{"HF_HUB_CACHE", "/new"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}, "/new"},
      {{{"HF_HUB_CACHE", ""}, {"HF_HOME", "/h"}}, "/h/hub"},
      {{{"HOME", "/home/ada"}, {"HF_HOME", "~/hf"}}, "/home/ada/hf/hub"},
      {{{"D", "/disk"}, {"HF_HOME", "${D}/$D/$E/$"}}, "/disk//disk/$E/$/hub"},
      {{{"D", "/disk"}, {"HF_HUB_CACHE", "${D"}}, "${D"},
  };
  for (const Row& row : rows) {
    variables() = row.variables;
    EXPECT_EQ(hub_cache_folder(variable), row.folder);
  }
}

/// models--org--name as huggingface_hub writes it, of two shards and the branch main.
class HubSnapshot : public ::testing::Test {
 protected:
  HubSnapshot() {
    fs::create_directories(home() / "blobs");
    fs::create_directories(home() / "refs");
    fs::create_directories(snapshot());
    write_test_file(home() / "refs/main", kCommit);
    add("config.json", "{}");
    add("model.safetensors.index.json",
        R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    add("one.safetensors", "1");
    add("two.safetensors", "2");
  }
  fs::path home() const { return cache_ / "models--org--name"; }
  fs::path snapshot() const { return home() / "snapshots" / kCommit; }
  void add(const std::string& file, std::string_view content) const {
    write_test_file(home() / "blobs" / file, content);
    fs::create_symlink("../../blobs/" + file, snapshot() / file);
  }
  Result<fs::path> find(const std::string& revision = "",
                        SnapshotNeeds needs = SnapshotNeeds::weights) const {
    return find_hub_folder(cache_.path(), {.repository = "org/name", .revision = revision}, needs);
  }
  /// The error has all of `words`, on one line.
  void expect_error(const Result<fs::path>& found, ErrorCode code,
                    std::initializer_list<std::string_view> words) const {
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, code) << found.error().message;
    EXPECT_EQ(found.error().message.find('\n'), std::string::npos) << found.error().message;
    for (const auto word : words)
      EXPECT_NE(found.error().message.find(word), std::string::npos)
          << word << " in " << found.error().message;
  }

 private:
  TemporaryFolder cache_;
};

TEST_F(HubSnapshot, RevisionsAndCommits) {
  EXPECT_EQ(find().value(), snapshot());
  EXPECT_EQ(find("main").value(), snapshot());
  EXPECT_EQ(find(std::string(kCommit)).value(), snapshot());
  fs::create_directories(home() / "refs/refs/pr");
  write_test_file(home() / "refs/refs/pr/3", concat(kCommit, "\n"));
  EXPECT_EQ(find("refs/pr/3").value(), snapshot());
}

TEST_F(HubSnapshot, WhatIsNotThereSaysHowToGetIt) {
  TemporaryFolder empty;
  expect_error(find_hub_folder(empty.path(), {.repository = "org/name", .revision = ""},
                               SnapshotNeeds::weights),
               ErrorCode::not_found, {"org/name", "neither", "`nibble pull org/name` gets it"});
  expect_error(find("fp8-head"), ErrorCode::not_found,
               {"revision fp8-head", "found main", "nibble pull org/name@fp8-head"});
  const std::string other(40, 'a');
  expect_error(find(other), ErrorCode::not_found, {other, "nibble pull org/name@aaaa"});
  write_test_file(home() / "refs/broken", "../../../etc");
  expect_error(find("broken"), ErrorCode::corrupt, {"refs/broken", "40 hexadecimal digits"});
}

TEST_F(HubSnapshot, RevisionsThatLeaveTheCacheAreRefused) {
  for (const std::string revision :
       {"..", "../main", "a/../../b", "/etc", "a//b", "a/", ".hidden", "a b", "a\nb", "a\\b"})
    expect_error(find(revision), ErrorCode::invalid_argument, {"revision of org/name"});
  expect_error(find(std::string(256, 'a')), ErrorCode::invalid_argument, {"at most 255 bytes"});
}

TEST_F(HubSnapshot, PartialSnapshots) {
  fs::remove(snapshot() / "two.safetensors");
  expect_error(find(), ErrorCode::not_found,
               {"in part", "2 shards of its index", "1, without two.safetensors", "nibble pull"});
  EXPECT_TRUE(find("", SnapshotNeeds::papers).ok());
  fs::create_symlink("../../blobs/gone", snapshot() / "two.safetensors");
  expect_error(find(), ErrorCode::not_found,
               {"two.safetensors", "a link to ../../blobs/gone, where nothing is"});
  EXPECT_TRUE(find("", SnapshotNeeds::papers).ok());
  fs::remove(home() / "blobs/config.json");
  expect_error(find("", SnapshotNeeds::papers), ErrorCode::not_found, {"config.json", "a link to"});
  fs::remove(snapshot() / "config.json");
  expect_error(find("", SnapshotNeeds::papers), ErrorCode::not_found, {"config.json, found none"});
}

TEST_F(HubSnapshot, ANameWithoutItsOwner) {
  const TemporaryFolder aliases;
  for (const char* folder : {"models--Org--Name-1", "models--a--twice", "models--b--Twice",
                             "datasets--org--data", ".locks"})
    fs::create_directories(aliases / folder);
  const auto alias = [&](std::string_view word) { return find_hub_alias(aliases.path(), word); };
  EXPECT_EQ(alias("name-1").value()->repository, "Org/Name-1");
  EXPECT_EQ(alias("NAME-1@v2").value()->revision, "v2");
  for (const char* none : {"name", "data", "", "a/b", "..", "@v2", "Org/Name-1"})
    EXPECT_FALSE(alias(none).value()) << none;
  const auto twice = alias("twice");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("found a/twice, b/Twice"), std::string::npos);
  EXPECT_FALSE(find_hub_alias(aliases / "gone", "name-1").value());
}

TEST_F(HubSnapshot, ADamagedIndexIsTold) {
  write_test_file(home() / "blobs/model.safetensors.index.json",
                  R"({"weight_map":{"a":"../../x.safetensors"}})");
  expect_error(find(), ErrorCode::corrupt, {"model.safetensors.index.json"});
}

}  // namespace
}  // namespace nibble
