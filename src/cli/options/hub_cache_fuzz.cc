// Fuzz entry: by the first byte a name on the hub, the file of a revision or the index of a
// snapshot, in a small Hugging Face cache. A folder that is found lies in that cache; all else is
// refused in one line.
#include "base/check.h"
#include "cli/options/hub_cache.h"
#include "testing/test_files.h"

namespace {

using namespace nibble;

constexpr std::string_view kCommit = "0123456789abcdef0123456789abcdef01234567";

struct Cache {
  Cache() : home(folder / "models--org--name"), snapshot(home / "snapshots" / kCommit) {
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directories(home / "refs");
    restore();
  }
  void restore() const {
    write_test_file(home / "refs" / "main", kCommit);
    write_test_file(snapshot / "config.json", "{}");
    std::filesystem::remove(snapshot / "model.safetensors.index.json");
  }
  TemporaryFolder folder;
  std::filesystem::path home;
  std::filesystem::path snapshot;
};

void look_up(const Cache& cache, const HubName& name) {
  const auto found = find_hub_folder(cache.folder.path(), name, SnapshotNeeds::weights);
  if (!found.ok()) {
    CHECK(found.error().message.find('\n') == std::string::npos, found.error().message);
    return;
  }
  CHECK(found.value() == cache.snapshot, found.value().string());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Cache cache;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'n') {
    if (const auto name = parse_hub_name(text)) look_up(cache, *name);
    return 0;
  }
  if (data[0] == 'r')
    write_test_file(cache.home / "refs" / "main", text);
  else
    write_test_file(cache.snapshot / "model.safetensors.index.json", text);
  look_up(cache, {.repository = "org/name", .revision = ""});
  cache.restore();
  return 0;
}
