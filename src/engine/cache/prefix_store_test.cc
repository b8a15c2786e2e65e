// The disk tier: whole, absent, or dropped with a reason; never half used.
#include "engine/cache/prefix_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/cache/prefix_file.h"
#include "engine/cache/prefix_writer.h"
#include "engine/testing/prefix_world.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr PrefixStoreOptions kOptions = {
    .fingerprint = {1, 2, 3, 4}, .page_bytes = 16, .state_slot_bytes = 8, .bytes_max = 4096};

PrefixBytes sample(int32_t word, int32_t pages = 2) {
  PrefixBytes prefix;
  prefix.salt = 9;
  prefix.tokens.assign(static_cast<size_t>(pages * kPageTokens), word);
  prefix.media = {{.begin = 3, .count = 60, .digest = {7, 8}},
                  {.begin = 63, .count = 500, .digest = {9, 10}}};
  for (int32_t i = 0; i < pages * 16; ++i) prefix.pages.push_back(static_cast<std::byte>(i + word));
  prefix.state.assign(8, std::byte{0x5A});
  return prefix;
}

void expect_equal(const PrefixBytes& a, const PrefixBytes& b) {
  EXPECT_EQ(a.salt, b.salt);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.pages, b.pages);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(prefix_media_bytes(a.media), prefix_media_bytes(b.media));
}

PrefixStore open(const TemporaryFolder& folder, const PrefixStoreOptions& options = kOptions) {
  return PrefixStore::open(folder / "pins", options).value();
}

size_t files_in(const TemporaryFolder& folder) {
  size_t count = 0;
  for (const auto& file : fs::directory_iterator(folder / "pins"))
    count += file.is_regular_file() ? 1 : 0;
  return count;
}

/// The number of prefixes that are whole.
int64_t saved_in(const TemporaryFolder& folder) {
  return std::ranges::count_if(fs::directory_iterator(folder / "pins"), [](const auto& entry) {
    return entry.path().extension() == ".prefix";
  });
}

TEST(PrefixStore, SurvivesARestart) {
  const TemporaryFolder folder;
  {
    PrefixStore store = open(folder);
    store.save(sample(1)).value();
    store.save(sample(2)).value();
    store.save(sample(2)).value();  // replaces
    EXPECT_EQ(store.entries().size(), 2U);
  }
  write_test_file(folder / "pins/cut.prefix-part", "half");
  write_test_file(folder / "pins/notes.txt", "not ours");
  PrefixStore store = open(folder);
  const auto entries = store.entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].tokens, 128U);
  EXPECT_EQ(entries[0].salt, 9U);
  int seen = 0;
  for (const auto& entry : entries) {
    const PrefixBytes prefix = store.load(entry).value();
    expect_equal(prefix, sample(prefix.tokens[0]));
    seen += prefix.tokens[0];
  }
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(store.dropped().empty());
  EXPECT_EQ(files_in(folder), 3U);  // the half file is gone, the stranger is not
  store.remove(entries[0]);
  EXPECT_EQ(store.entries().size(), 1U);
  EXPECT_EQ(files_in(folder), 2U);
}

TEST(PrefixStore, TenantsThatPinTheSameTextKeepAFileEach) {
  const TemporaryFolder folder;
  PrefixStore store = open(folder);
  std::vector<PrefixBytes> saved;
  for (const uint64_t salt : {7U, 8U}) {
    saved.push_back(sample(1));
    saved.back().salt = salt;
    saved.back().state.assign(8, static_cast<std::byte>(salt));
    store.save(saved.back()).value();
  }
  EXPECT_EQ(files_in(folder), 2U);
  const auto entries = open(folder).entries();
  ASSERT_EQ(entries.size(), 2U);
  for (const auto& entry : entries)
    expect_equal(store.load(entry).value(), saved.at(entry.salt - 7));
}

TEST(PrefixStore, StaleFilesAreDeletedAndSaidSo) {
  PrefixStoreOptions model = kOptions;
  model.fingerprint[3] = 5;
  PrefixStoreOptions layout = kOptions;
  layout.page_bytes = 32;
  PrefixStoreOptions state = kOptions;
  state.state_slot_bytes = 16;
  for (const auto& other : {model, layout, state}) {
    const TemporaryFolder folder;
    open(folder).save(sample(1)).value();
    PrefixStore store = open(folder, other);
    EXPECT_TRUE(store.entries().empty());
    ASSERT_EQ(store.dropped().size(), 1U);
    EXPECT_EQ(store.dropped()[0].reason, PrefixStore::Reason::stale);
    EXPECT_NE(store.dropped()[0].message.find("dropped"), std::string::npos);
    EXPECT_EQ(files_in(folder), 0U);
  }
}

TEST(PrefixStore, EveryDamagedByteIsNoticed) {
  const TemporaryFolder folder;
  open(folder).save(sample(1)).value();
  const fs::path file = open(folder).entries().at(0).file;
  const std::string good = read_test_file(file);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_test_file(file, bad);
    PrefixStore store = open(folder);
    for (const auto& entry : store.entries()) EXPECT_FALSE(store.load(entry).ok()) << at;
    EXPECT_TRUE(store.entries().empty()) << at;
    ASSERT_EQ(store.dropped().size(), 1U) << at;
    EXPECT_FALSE(fs::exists(file)) << at;
  }
}

TEST(PrefixStore, EveryWrongLengthIsNoticed) {
  const TemporaryFolder folder;
  open(folder).save(sample(1)).value();
  const fs::path file = open(folder).entries().at(0).file;
  const std::string good = read_test_file(file);
  for (size_t size = 0; size < good.size(); ++size) {
    write_test_file(file, good.substr(0, size));
    PrefixStore store = open(folder);
    EXPECT_TRUE(store.entries().empty()) << size;
    ASSERT_EQ(store.dropped().size(), 1U) << size;
    EXPECT_EQ(store.dropped()[0].reason, PrefixStore::Reason::corrupt);
  }
  write_test_file(file, good + "x");
  EXPECT_EQ(open(folder).dropped().size(), 1U);
  EXPECT_EQ(files_in(folder), 0U);
}

// A header whose checksum is right and whose words are not.
TEST(PrefixStore, HeadersAreCheckedWordByWord) {
  struct Case {
    size_t word;
    uint64_t value;
    ErrorCode code;
  };
  const PrefixBytes prefix = sample(1);
  const PrefixFileHeader header{9, 128, 2, 32, 8, 0};
  const uint64_t bytes = kPrefixHeaderBytes + header.body_bytes();
  const auto good = prefix_header_bytes(header, kOptions);
  EXPECT_TRUE(parse_prefix_header(good, bytes, kOptions).ok());
  const Case cases[] = {
      {0, 1, ErrorCode::corrupt},
      {1, 2, ErrorCode::unsupported},
      {2, 9, ErrorCode::unsupported},
      {7, 0, ErrorCode::corrupt},
      {7, 100, ErrorCode::corrupt},
      {7, ~0ULL - 63, ErrorCode::corrupt},
      {7, 192, ErrorCode::unsupported},
      {8, (1ULL << 61) + 2, ErrorCode::corrupt},  // its bytes are those of 2, modulo 2^64
      {8, 1ULL << 62, ErrorCode::corrupt},
      {8, 129, ErrorCode::corrupt},
      {8, 3, ErrorCode::corrupt},
      {9, 0, ErrorCode::unsupported},
      {9, ~0ULL, ErrorCode::unsupported},
      {10, ~0ULL, ErrorCode::unsupported},
  };
  for (const Case& c : cases) {
    auto bad = good;
    std::memcpy(bad.data() + c.word * 8, &c.value, 8);
    Checksum sum;
    sum.add(std::span(bad).first(kPrefixHeaderBytes - 8));
    const uint64_t value = sum.value();
    std::memcpy(bad.data() + kPrefixHeaderBytes - 8, &value, 8);
    const auto parsed = parse_prefix_header(bad, bytes, kOptions);
    ASSERT_FALSE(parsed.ok()) << c.word << " = " << c.value;
    EXPECT_EQ(parsed.error().code, c.code) << parsed.error().message;
  }
}

TEST(PrefixStore, MediaSpansMustAscend) {
  const TemporaryFolder folder;
  const std::vector<std::vector<MediaSpan>> wrong = {
      {{.begin = -1, .count = 5, .digest = {}}},
      {{.begin = 5, .count = 0, .digest = {}}},
      {{.begin = 128, .count = 1, .digest = {}}},
      {{.begin = 5, .count = 5, .digest = {}}, {.begin = 9, .count = 1, .digest = {}}},
      {{.begin = 5, .count = 2147483647, .digest = {}}}};
  for (const auto& media : wrong) {
    PrefixBytes prefix = sample(1);
    prefix.media = media;
    PrefixStore store = open(folder);
    store.save(prefix).value();
    const auto loaded = store.load(store.entries().at(0));
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, ErrorCode::corrupt);
    EXPECT_EQ(files_in(folder), 0U);
  }
}

TEST(PrefixStore, OldestGoWhenTheFolderIsFull) {
  const TemporaryFolder folder;
  PrefixStoreOptions options = kOptions;
  options.bytes_max = 2200;  // three files of 728 bytes
  PrefixStore store = open(folder, options);
  for (int32_t word = 1; word <= 4; ++word) store.save(sample(word)).value();
  ASSERT_EQ(store.entries().size(), 3U);
  EXPECT_EQ(store.load(store.entries()[0]).value().tokens[0], 2);
  ASSERT_EQ(store.dropped().size(), 1U);
  EXPECT_EQ(store.dropped()[0].reason, PrefixStore::Reason::over_limit);
  const auto refused = store.save(sample(5, 8));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_space);
  EXPECT_EQ(store.entries().size(), 3U);
  options.bytes_max = 800;
  EXPECT_EQ(open(folder, options).entries().size(), 1U);
}

TEST(PrefixStore, AHalfFileOfTheSameNameIsReplaced) {
  const TemporaryFolder folder;
  PrefixStore store = open(folder);
  store.save(sample(1)).value();
  const fs::path file = fs::directory_iterator(folder / "pins")->path();
  write_test_file(fs::path(file).replace_extension(".prefix-part"), "half, of another process");
  store.save(sample(1)).value();
  expect_equal(store.load(store.entries().at(0)).value(), sample(1));
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(PrefixStore, AVanishedFolderIsAnErrorNotACrash) {
  const TemporaryFolder folder;
  PrefixStore store = open(folder);
  store.save(sample(1)).value();
  fs::remove_all(folder / "pins");
  EXPECT_EQ(store.load(store.entries().at(0)).error().code, ErrorCode::not_found);
  EXPECT_TRUE(store.entries().empty());
  EXPECT_FALSE(store.save(sample(2)).ok());
  EXPECT_TRUE(store.entries().empty());
  write_test_file(folder / "file", "");
  EXPECT_FALSE(PrefixStore::open(folder / "file", kOptions).ok());
}

TEST(PrefixStore, CarriesACachedPrefixToTheNextProcess) {
  const TemporaryFolder folder;
  const PoolSizes sizes = {
      .pages = 8, .state_slots = 4, .rows_max = 64, .host_pages = 8, .host_slots = 2};
  PrefixStoreOptions options = kOptions;
  options.bytes_max = 1 << 20;
  Prompt prompt = prompt_of({1, 2, 3}, 4);
  prompt.media = {{.begin = 30, .count = 70, .digest = {1, 2}}};
  {
    PrefixWorld world(sizes);
    options.page_bytes = world.backend.page_bytes();
    options.state_slot_bytes = world.backend.state_slot_bytes();
    PrefixCache::Cursor cursor = world.cache->root(4);
    world.pools.pages.release(world.publish(cursor, prompt, 3));
    world.snapshot(cursor, prompt, SnapshotPlace::pinned);
    open(folder, options).save(world.cache->read(cursor, 0).value()).value();
  }
  PrefixWorld world(sizes);
  PrefixStore store = open(folder, options);
  const PrefixBytes prefix = store.load(store.entries().at(0)).value();
  ASSERT_EQ(world.cache->restore(prefix, 0), PrefixCache::Restore::done);
  std::vector<int32_t> pages;
  PrefixCache::Cursor cursor;
  const int32_t slot = world.cache->allocate_slot(0).value();
  EXPECT_TRUE(world.acquire_checked(prompt, 192, slot, pages, cursor));
  world.check({.pages = pages, .slots = {slot}});
}

TEST(PrefixStore, APrefixThatIsKnownAlreadyIsPinnedWhenRestored) {
  PrefixWorld world(
      {.pages = 8, .state_slots = 4, .rows_max = 64, .host_pages = 1, .host_slots = 1});
  const Prompt restored = prompt_of({1}), other = prompt_of({2});
  PrefixCache::Cursor cursor = world.cache->root(restored.salt);
  world.pools.pages.release(world.publish(cursor, restored, 1));
  world.snapshot(cursor, restored, SnapshotPlace::interval);
  const PrefixBytes prefix = world.cache->read(cursor, 0).value();
  ASSERT_EQ(world.cache->restore(prefix, 0), PrefixCache::Restore::done);
  world.now_ms = 1000;
  world.add(other, 1);
  const auto known = [&](const Prompt& p) { return world.cache->match(p.key(), 1000).tokens > 0; };
  std::vector<int32_t> slots;
  while (known(restored) && known(other) && world.cache->available_slots() > 0)
    slots.push_back(world.cache->allocate_slot(2000).value());
  EXPECT_TRUE(known(restored));
  EXPECT_FALSE(known(other));
  world.check({.slots = slots});
}

TEST(PrefixWriter, SavesOneAfterAnotherAndWhatIsQueuedAtTheEnd) {
  const TemporaryFolder folder;
  PrefixStore store = open(folder);
  std::string reported;
  {
    PrefixWriter writer(store, [&](const std::string& line) { reported += line; });
    writer.save(sample(1));
    while (saved_in(folder) < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    writer.save(sample(2));
    while (saved_in(folder) < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    writer.save(sample(3));
  }
  EXPECT_EQ(saved_in(folder), 3);
  EXPECT_EQ(reported, "");
}

}  // namespace
}  // namespace nibble
