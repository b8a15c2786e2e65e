// From flags to a memory plan; asks the system how much memory there is.
#include "cli/engine_setup.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace nibble {

namespace {

/// Bytes of the tensors a text engine loads, as stored.
int64_t text_weight_bytes(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const TensorEntry& entry : checkpoint.entries()) {
    const bool other =
        entry.name.find("visual.") != std::string::npos || entry.name.starts_with("mtp.");
    if (!other) bytes += entry.bytes;
  }
  return bytes;
}

Result<std::optional<int64_t>> read_model_len(const Arguments& arguments) {
  if (arguments.text(kMaxModelLenOption.name) == "auto") return std::optional<int64_t>();
  return std::optional(TRY(arguments.integer(kMaxModelLenOption.name, 2, INT32_MAX)));
}

}  // namespace

int64_t available_memory_bytes() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::ifstream memory("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string unit;
  while (memory >> key >> kilobytes) {
    std::getline(memory, unit);
    if (key == "MemAvailable:") bytes = kilobytes * 1024;
  }
  int64_t limit = 0;
  int64_t used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");  // "max" where there is no limit
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  if (limit_file >> limit && used_file >> used) bytes = std::min(bytes, limit - used);
  return bytes;
}

EngineSettings EngineSetup::settings() const {
  return {
      .pools = plan.pools, .sequences_max = plan.sequences_max, .context_max = plan.context_max};
}

Result<EngineSetup> set_up_engine(const Arguments& arguments, const std::filesystem::path& folder,
                                  int32_t sequences_max) {
  MemoryRequest request{.memory_bytes = available_memory_bytes(), .sequences_max = sequences_max};
  request.model_len = TRY(read_model_len(arguments));
  if (arguments.text(kKvCacheBytesOption.name))
    request.kv_cache_bytes = TRY(arguments.integer(kKvCacheBytesOption.name, 1, INT64_MAX));
  request.rows_max = std::max(request.rows_max, sequences_max + kPageTokens);
  if (arguments.text(kMaxBatchedTokensOption.name))
    request.rows_max = static_cast<int32_t>(
        TRY(arguments.integer(kMaxBatchedTokensOption.name, kPageTokens + 1, 1 << 20)));

  EngineSetup setup;
  const ModelRequest model = TRY(model_request(arguments, folder));
  setup.model = TRY(load_model(model));
  request.weight_bytes = text_weight_bytes(*setup.model.checkpoint);
  request.page_bytes = setup.model.backend->page_bytes();
  request.slot_bytes = setup.model.backend->state_slot_bytes();
  setup.plan = TRY(plan_memory(setup.model.config, request));
  return setup;
}

}  // namespace nibble
