// What serve, run and chat share: from a folder and flags to a loaded model, a memory plan and
// engine settings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/model_loader.h"
#include "engine/engine.h"
#include "plan/memory_plan.h"

namespace nibble {

// Rows for a verb's option table.
inline constexpr Option kMaxModelLenOption = {"max-model-len", "N|auto", "auto",
                                              "longest prompt + answer in tokens; auto: what fits"};
inline constexpr Option kKvCacheBytesOption = {
    "kv-cache-memory-bytes", "N", "", "bytes for the KV cache; default: by need, within memory"};
inline constexpr Option kMaxBatchedTokensOption = {
    "max-num-batched-tokens", "N", "",
    "rows of one pass, prompt pieces and decoding sequences; default: 512, or as many as needed"};

struct EngineSetup {
  LoadedModel model;
  MemoryPlan plan;
  EngineSettings settings() const;
};

/// Loads the model and plans its memory from the rows above and those of model_loader.h.
Result<EngineSetup> set_up_engine(const Arguments& arguments, const std::filesystem::path& folder,
                                  int32_t sequences_max);

/// Memory this process may take, now: what the system has available, within its control group.
int64_t available_memory_bytes();

}  // namespace nibble
