// An engine that starts with a folder of pinned prefixes says in a line of each that is of no use.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/testing/fake_backend.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

/// The lines of an engine that starts on a folder with a prefix of another model.
std::vector<std::string> lines_at_start(CacheMode cache) {
  const TemporaryFolder folder;
  FakeBackend sizes;
  PrefixStoreOptions of_store{.fingerprint = {1, 2, 3, 4},
                              .page_bytes = sizes.page_bytes(),
                              .state_slot_bytes = sizes.state_slot_bytes(),
                              .bytes_max = 1 << 20};
  PrefixBytes prefix;
  prefix.tokens.assign(64, 1);
  prefix.pages.assign(static_cast<size_t>(sizes.page_bytes()), std::byte{0});
  prefix.state.assign(static_cast<size_t>(sizes.state_slot_bytes()), std::byte{0});
  PrefixStore::open(folder.path(), of_store).value().save(prefix).value();
  of_store.fingerprint[0] = 5;
  std::vector<std::string> lines;
  Engine::Options options;
  options.settings = {.pools = {.pages = 8, .state_slots = 2, .rows_max = 66, .host_pages = 4},
                      .sequences_max = 2,
                      .context_max = 256,
                      .waiting_max = 2,
                      .cache = cache};
  options.store = std::make_shared<PrefixStore>(PrefixStore::open(folder.path(), of_store).value());
  options.report = [&](const std::string& line) { lines.push_back(line); };
  Engine::start(std::make_unique<FakeBackend>(), FakeBackend::config(), std::move(options)).value();
  return lines;
}

TEST(EngineRestore, SaysWhichPrefixesAreOfNoUse) {
  EXPECT_EQ(lines_at_start(CacheMode::exact),
            std::vector<std::string>{"prefix file: made by another model, quantization, program "
                                     "or kind of device; it is dropped"});
  EXPECT_EQ(lines_at_start(CacheMode::off), std::vector<std::string>());
}

}  // namespace
}  // namespace nibble
