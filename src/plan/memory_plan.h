// MemoryPlan: how many bytes weights, KV pages, state slots, their host twins and workspace take,
// decided before
// anything is allocated. Pure arithmetic of model, flags and machine; the engine reserves exactly
// this, once. Not a measurement, and nothing here asks the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/backend.h"
#include "model/config.h"

namespace nibble {

/// Bytes of one KV page: attention layers x kPageTokens x (K and V) x kv heads x head_dim.
int64_t kv_page_bytes(const ModelConfig& config, int64_t element_bytes);
/// Bytes of one state slot: delta-net layers x (v_heads x k_dim x v_dim elements of the state +
/// (kernel - 1) x qkv_rows in F32).
int64_t state_slot_bytes(const ModelConfig& config, int64_t element_bytes);

struct MemoryRequest {
  int64_t memory_bytes = 0;                // what the process may use in all
  int64_t weight_bytes = 0;                // as the backend holds them
  int64_t page_bytes = 0;                  // of the backend; kv_page_bytes() if it adds nothing
  int64_t slot_bytes = 0;                  // likewise
  std::optional<int64_t> model_len;        // prompt + output of one request; absent: auto
  int32_t full_length_sequences = 1;       // that auto must hold at once
  int32_t sequences_max = 16;              // running at once
  std::optional<int32_t> snapshots;        // of the state, for the prefix cache; absent: auto
  int64_t host_bytes = 0;                  // for swapped sequences and the cache's second tier
  std::optional<int64_t> kv_cache_bytes;   // absent: enough for all, within a share of memory
  int32_t rows_max = 512;                  // of one pass, prompt pieces and decoding sequences
  std::optional<int64_t> workspace_bytes;  // as the backend knows it; absent: an upper estimate
  int64_t driver_bytes = 0;                // of a card: the driver's context, recorded passes
  int32_t replay_rows = 0;                 // as PoolSizes; slot_bytes has room for them
};

struct MemoryPlan {
  PoolSizes pools;
  int32_t sequences_max = 0;
  int32_t context_max = 0;  // prompt + generated tokens of one sequence
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;      // of live sequences and snapshots
  int64_t host_bytes = 0;       // in host memory; not part of total_bytes()
  int32_t snapshots = 0;        // state slots beyond sequences_max
  int64_t workspace_bytes = 0;  // activations of one pass
  int64_t driver_bytes = 0;     // as requested
  int64_t memory_bytes = 0;

  int64_t total_bytes() const {
    return weight_bytes + kv_bytes + state_bytes + workspace_bytes + driver_bytes;
  }
  /// Sequences of full length that fit the pages at once.
  double concurrency() const;
  /// Sequences of `tokens` tokens that fit at once.
  double concurrency(int64_t tokens) const;
  /// A few lines for people, each ending in a newline: bytes, then lengths against concurrency.
  std::string table() const;
};

/// Errors: invalid_argument (a flag outside what the model allows), no_memory (cannot fit; states
/// need and supply). With model_len absent, length, concurrency and snapshots are solved together:
/// a state for each sequence first, then snapshots for at most a quarter of what is left, then
/// pages; the context is the longest of which full_length_sequences fit, at most the model's own.
Result<MemoryPlan> plan_memory(const ModelConfig& config, const MemoryRequest& request);

}  // namespace nibble
