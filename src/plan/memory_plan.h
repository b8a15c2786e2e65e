// MemoryPlan: how many bytes weights, KV pages, state slots, their host twins and workspace take,
// decided before anything is allocated. Pure arithmetic of model, flags and machine; the engine
// reserves exactly this, once. Not a measurement, and nothing here asks the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble {

/// Bytes of one KV page: attention layers x kPageTokens x (K and V) x kv heads x head_dim.
int64_t kv_page_bytes(const ModelConfig& config, int64_t element_bytes);
/// Bytes of one state slot: delta-net layers x (v_heads x k_dim x v_dim elements of the state +
/// (kernel - 1) x qkv_rows in F32).
int64_t state_slot_bytes(const ModelConfig& config, int64_t element_bytes);
/// An estimate of what one pass needs besides weights and caches, for a backend that allocates as
/// it computes and has no formula of its own (reference).
int64_t pass_bytes(const ModelConfig& config, int64_t rows, int64_t logit_rows);
/// Requests of `tokens` tokens that `cache_bytes` hold when each takes one state and its pages.
double requests_held(int64_t cache_bytes, int64_t tokens, int64_t page_bytes, int64_t slot_bytes);

/// The use of the memory that weights, workspace and driver leave.
enum class CacheRule : uint8_t {
  by_need,  // pages that the sequences can fill, within half of it: other programs use memory too
  all,      // every byte of it is a state, a snapshot or a page: a card
};
/// shared: requests find what others computed. none: pages beyond those that the sequences can fill
/// are of no use.
enum class PrefixReuse : uint8_t { none, shared };
/// CacheRule::all: the states of sequences take at most this part of what the fixed claims leave. A
/// state alone serves nobody: beside 64 of the 35B a card of 32 GB has pages for one request of
/// full length.
inline constexpr int64_t kSequenceShareDivisor = 4;
/// So many may take more than that.
inline constexpr int64_t kSequencesLeast = 4;

struct MemoryRequest {
  int64_t memory_bytes = 0;                // what the process may use in all
  int64_t asked_bytes = 0;                 // what it would be without other processes; 0: the same
  int64_t others_bytes = 0;                // that other processes hold of a card
  int64_t weight_bytes = 0;                // as the backend holds them
  int64_t mapped_bytes = 0;                // the part of these that is read in mapped files
  int64_t table_bytes = 0;                 // rotary tables, likewise
  int64_t page_bytes = 0;                  // of the backend; kv_page_bytes() if it adds nothing
  int64_t slot_bytes = 0;                  // likewise
  std::optional<int64_t> model_len;        // prompt + output of one request; absent: auto
  int32_t full_length_sequences = 1;       // that auto must hold at once
  int32_t sequences_max = 16;              // running at once
  std::optional<int32_t> snapshots;        // of the state, for the prefix cache; absent: auto
  int64_t host_bytes = 0;                  // for swapped sequences and the cache's second tier
  std::optional<int64_t> kv_cache_bytes;   // exactly so many bytes of pages; absent: by the rule
  int32_t rows_max = 512;                  // of one pass, prompt pieces and decoding sequences
  std::optional<int64_t> workspace_bytes;  // as the backend knows it; absent: an estimate
  int64_t driver_bytes = 0;                // of a card: the driver's context, recorded passes
  int32_t replay_rows = 0;                 // as PoolSizes; slot_bytes has room for them
  int32_t image_tokens_max = 0;            // tokens of the largest image; 0: none is taken
  int32_t media_rows = 0;                  // the same as in PoolSizes, and
  int64_t vision_rows = 0;                 // likewise: those of the largest image
  int64_t media_bytes = 0;                 // bytes of both, as the backend knows them
  int64_t media_cache_bytes = 0;           // the part of these for rows of encoded media
  CacheRule rule = CacheRule::by_need;
  PrefixReuse reuse = PrefixReuse::shared;
};

struct MemoryPlan {
  PoolSizes pools;
  int32_t sequences_max = 0;    // that run at once, each with a state slot
  int32_t sequences_asked = 0;  // more than sequences_max where their states would take too much
  int32_t context_max = 0;      // prompt + generated tokens of one sequence
  int64_t weight_bytes = 0;
  int64_t mapped_bytes = 0;  // the part of these that is read in mapped files
  int64_t table_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;       // states of live sequences and snapshots
  int64_t host_bytes = 0;        // in host memory; not part of total_bytes()
  int32_t snapshots = 0;         // state slots beyond sequences_max
  int64_t workspace_bytes = 0;   // activations of one pass
  int32_t image_tokens_max = 0;  // tokens of the largest image; 0: none is taken
  int64_t media_bytes = 0;       // the vision tower's workspace and the rows of encoded media
  int64_t driver_bytes = 0;      // the same as requested
  int64_t memory_bytes = 0;
  int64_t asked_bytes = 0;
  int64_t others_bytes = 0;

  int64_t total_bytes() const {
    return weight_bytes + table_bytes + kv_bytes + state_bytes + workspace_bytes + media_bytes +
           driver_bytes;
  }
  /// The parts that a backend must hold after reserve(), to the byte. The driver's are an estimate
  /// and not among them.
  ReservedBytes reserved() const;
  /// Requests of full length whose pages there are, however many may run at once.
  double full_length_requests() const;
  /// Sequences of full length that run at once.
  double concurrency() const;
  /// Sequences of `tokens` tokens that run at once.
  double concurrency(int64_t tokens) const;
  /// A few lines for people, each ending in a newline: bytes, then lengths against concurrency.
  std::string table() const;
};

/// The sizes of a pass under a request, with the most pages that a rule gives: what reserve() will
/// be asked for has the same or less of each, so its workspace is at most that of these.
PoolSizes largest_pass(const MemoryRequest& request);

/// The order of claims on the memory (docs/serving.md, "The card"): weights, driver, workspace and
/// media;
/// then one request of full length; explicit --kv-cache-memory-bytes and --prefix-snapshots; a
/// state for each sequence; snapshots; pages. On a card (CacheRule::all) the states of sequences
/// take at most a quarter of what the first three leave; snapshots a quarter of what is left beyond
/// the pages of four requests of full length, and at least one for 8 sequences; pages all the rest.
/// With model_len absent the context is the longest of which full_length_sequences fit the pages,
/// at most the model's own.
/// Errors: invalid_argument (a flag outside what the model allows), no_memory (cannot fit; states
/// need and supply).
Result<MemoryPlan> plan_memory(const ModelConfig& config, const MemoryRequest& request);

}  // namespace nibble
