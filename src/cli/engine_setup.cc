// From flags to a memory plan; asks the system how much memory there is.
#include "cli/engine_setup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

#include "backend/cuda/cuda_backend.h"

namespace nibble {

namespace {

/// "N", "auto" or "auto:SEQS".
Result<void> read_model_len(const Arguments& arguments, MemoryRequest& request) {
  constexpr std::string_view kAutomatic = "auto";
  const std::string text = arguments.text(kMaxModelLenOption.name).value_or("auto");
  if (text == kAutomatic) return {};
  if (!text.starts_with("auto:")) {
    request.model_len = TRY(arguments.integer(kMaxModelLenOption.name, 2, INT32_MAX));
    return {};
  }
  int32_t count = 0;
  const char* begin = text.data() + kAutomatic.size() + 1;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size())
    return make_error(ErrorCode::invalid_argument, {.what = "--max-model-len",
                                                    .expected = "a number, auto, or auto:SEQUENCES",
                                                    .found = text});
  request.full_length_sequences = count;
  return {};
}

/// Rows of a pass on a card unless the flag says otherwise: on an H200 the 35B computes 43,400
/// prompt tokens a second in passes of 2,048 rows, 16,600 in passes of 512.
constexpr int32_t kCardRows = 2048;

Result<double> read_share(const Arguments& arguments) {
  const std::string text = *arguments.text(kMemoryShareOption.name);
  double share = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error == std::errc() && end == text.data() + text.size() && share > 0.0 && share <= 1.0)
    return share;
  return make_error(ErrorCode::invalid_argument, {.what = "--gpu-memory-utilization",
                                                  .expected = "a number above 0 and at most 1",
                                                  .found = text});
}

/// What only a server takes.
Result<void> read_serving(const Arguments& arguments, MemoryRequest& request, EngineSetup& setup) {
  constexpr int64_t kHostBytesMost = int64_t{4} << 30;
  constexpr int64_t kHostShareDivisor = 8;
  if (!arguments.enabled(kPrefixCachingOption.name)) {
    setup.cache = CacheMode::off;
    request.snapshots = 0;
  } else if (TRY(arguments.choice(kCacheModeOption.name, {"exact", "fast"})) == "fast") {
    setup.cache = CacheMode::fast;
  }
  if (arguments.text(kSnapshotsOption.name))
    request.snapshots =
        static_cast<int32_t>(TRY(arguments.integer(kSnapshotsOption.name, 0, 1 << 20)));
  request.host_bytes = std::min(available_memory_bytes() / kHostShareDivisor, kHostBytesMost);
  if (arguments.text(kHostCacheOption.name))
    request.host_bytes = TRY(arguments.integer(kHostCacheOption.name, 0, INT64_MAX));
  setup.step_ms = static_cast<double>(TRY(arguments.integer(kStepTimeOption.name, 1, 60000)));
  setup.long_prompt_tokens =
      static_cast<int32_t>(TRY(arguments.integer(kLongPromptOption.name, 4, 1 << 30)));
  return {};
}

/// `share` of the card, and what is taken of it beside weights and caches.
Result<void> read_card(Backend& backend, double share, MemoryRequest& request) {
  constexpr int32_t kSnapshotsEach = 2;  // as the plan has them
  const CudaMemory card = cuda_memory(backend);
  request.workspace_bytes = TRY(cuda_workspace_bytes(
      backend, {.pages = 1 << 20,
                .state_slots = request.sequences_max +
                               request.snapshots.value_or(kSnapshotsEach * request.sequences_max),
                .rows_max = request.rows_max,
                .replay_rows = request.replay_rows}));
  request.driver_bytes = card.driver + card.recorded;
  request.memory_bytes = static_cast<int64_t>(static_cast<double>(card.card) * share);
  return {};
}

/// A pass that takes longer will not end. Counted, not measured: the longest honest one, 2,048 rows
/// behind 262,144 tokens, takes under a second on an H200; on a slow CPU a pass of a dense model
/// takes minutes.
Result<std::chrono::duration<double>> read_step_deadline(const Arguments& arguments,
                                                         const Backend& backend) {
  if (!arguments.text(kStepDeadlineOption.name))
    return std::chrono::duration<double>(backend.name() == "cuda" ? 60.0 : 600.0);
  return std::chrono::duration<double>(
      TRY(arguments.number(kStepDeadlineOption.name, 0.0, 86400.0)));
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

Result<int> end_of_verb(std::string_view verb, const Result<void>& failure, Result<int> code,
                        Terminal& terminal) {
  if (failure.ok()) return code;
  terminal.err(concat("nibble ", verb, ": ", failure.error().message, "\n"));
  return kExitDevice;
}

EngineSettings EngineSetup::settings() const {
  return {.pools = plan.pools,
          .sequences_max = plan.sequences_max,
          .context_max = plan.context_max,
          .cache = cache,
          .step_ms = step_ms,
          .drafter = drafter,
          .long_prompt_tokens = long_prompt_tokens,
          .sampling_threads = sampling_threads};
}

Result<EngineSetup> set_up_engine(const Arguments& arguments, const std::filesystem::path& folder,
                                  const EngineNeeds& needs) {
  EngineSetup setup;
  MemoryRequest request{.memory_bytes = available_memory_bytes(),
                        .sequences_max = needs.sequences_max};
  const double share = TRY(read_share(arguments));
  request.memory_bytes = static_cast<int64_t>(static_cast<double>(request.memory_bytes) * share);
  TRY(read_model_len(arguments, request));
  if (needs.use == EngineUse::serving) TRY(read_serving(arguments, request, setup));
  if (arguments.text(kKvCacheBytesOption.name))
    request.kv_cache_bytes = TRY(arguments.integer(kKvCacheBytesOption.name, 1, INT64_MAX));
  request.rows_max = std::max(request.rows_max, needs.sequences_max + kPageTokens);
  if (arguments.text(kMaxBatchedTokensOption.name))
    request.rows_max = static_cast<int32_t>(
        TRY(arguments.integer(kMaxBatchedTokensOption.name, kPageTokens + 1, 1 << 20)));

  if (const auto json = arguments.text(kSpeculativeOption.name)) {
    const Speculation speculation = TRY(read_speculation(*json));
    setup.drafter = std::make_shared<NgramDrafter>(speculation.lookup);
    request.replay_rows = speculation.tokens + 1;
  }

  const ModelRequest model = TRY(model_request(arguments, folder));
  setup.sampling_threads = model.options.threads;
  setup.model = TRY(load_model(model));
  request.weight_bytes = setup.model.weight_bytes;
  Backend& backend = *setup.model.backend;
  setup.step_deadline = TRY(read_step_deadline(arguments, backend));
  if (backend.name() == "cuda") {
    if (!arguments.text(kMaxBatchedTokensOption.name))
      request.rows_max = std::max(request.rows_max, kCardRows);
    TRY(read_card(backend, share, request));
  }
  request.page_bytes = backend.page_bytes();
  request.slot_bytes =
      backend.state_slot_bytes() + request.replay_rows * backend.replay_row_bytes();
  setup.plan = TRY(plan_memory(setup.model.config, request));
  return setup;
}

}  // namespace nibble
