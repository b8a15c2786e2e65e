// Any thread may call a PrefixStore: what several remove at once is gone, and nothing else.
#include <gtest/gtest.h>

#include <thread>

#include "engine/cache/prefix_store.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

TEST(PrefixStoreThreads, RemoveWhatIsTheirs) {
  constexpr PrefixStoreOptions kOptions = {
      .fingerprint = {}, .page_bytes = 16, .state_slot_bytes = 8, .bytes_max = 1 << 30};
  constexpr size_t kThreads = 4, kEntries = 800, kKept = 5;
  const TemporaryFolder folder;
  PrefixBytes prefix;
  prefix.tokens.assign(64, 1);
  prefix.pages.assign(16, std::byte{1});
  prefix.state.assign(8, std::byte{2});
  PrefixStore::open(folder / "one", kOptions).value().save(prefix).value();
  const std::filesystem::path file = std::filesystem::directory_iterator(folder / "one")->path();
  std::filesystem::create_directory(folder / "many");
  for (size_t i = 0; i < kEntries; ++i)
    std::filesystem::copy_file(file, folder / concat("many/", i, ".prefix"));
  PrefixStore store = PrefixStore::open(folder / "many", kOptions).value();
  const std::vector<PrefixStore::Entry> entries = store.entries();
  ASSERT_EQ(entries.size(), kEntries);
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (size_t i = kKept + thread; i < kEntries; i += kThreads) store.remove(entries[i]);
      });
  }
  const std::vector<PrefixStore::Entry> left = store.entries();
  ASSERT_EQ(left.size(), kKept);
  for (size_t i = 0; i < kKept; ++i) EXPECT_EQ(left[i].file, entries[i].file);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "many"), {}),
            static_cast<ptrdiff_t>(kKept));
}

}  // namespace
}  // namespace nibble
