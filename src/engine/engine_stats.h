// EngineStats: what the engine holds and has done, at one moment: for metrics and people.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/cache/prefix_cache.h"
#include "engine/engine_core.h"
#include "model/backend_options.h"

namespace nibble {

struct EngineStats {
  // Sequences by phase.
  int64_t waiting = 0;
  int64_t prefill = 0;
  int64_t decode = 0;
  int64_t swapped = 0;
  // Ids taken and there are, by pool; pages and slots that the prefix cache could give back count
  // as free.
  struct Pool {
    int64_t used = 0;
    int64_t total = 0;
  };
  Pool pages, slots, host_pages, host_slots;
  EngineCounters engine;
  PrefixCounters prefix;
  MediaCounters media;
  std::optional<HostWeights> weights;  // on a CPU that keeps an account of them
  double first_token_ms = 0.0;         // predicted for a prompt of middling size

  int64_t running() const { return prefill + decode; }
};

}  // namespace nibble
