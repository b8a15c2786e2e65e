// The arithmetic of the plan, largest claims first: weights, state, workspace, then pages.
#include "plan/memory_plan.h"

#include <algorithm>
#include <cstdio>

namespace nibble {

namespace {

/// Share of the memory left after weights, state and workspace that pages take when nobody says.
constexpr int64_t kKvShareDivisor = 2;
/// Share of it that snapshots may take, and how many each running sequence can use: the end of its
/// system prompt and of its last turn.
constexpr int64_t kSnapshotShareDivisor = 4;
constexpr int32_t kSnapshotsPerSequence = 2;
/// Share of the host tier that states take; pages take the rest.
constexpr int64_t kHostStateDivisor = 3;

std::string megabytes(int64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

/// Rows x the widest intermediate of a block x F32, times the handful a block keeps at once, and
/// the logits of every sequence.
int64_t workspace_bytes(const ModelConfig& config, const PoolSizes& pools, int32_t sequences) {
  const AttentionConfig& a = config.attention;
  int64_t widest = config.hidden;
  widest = std::max<int64_t>(widest, int64_t{a.q_heads} * a.head_dim * 2);
  widest = std::max<int64_t>(widest, config.delta_net.qkv_rows());
  widest = std::max<int64_t>(widest, config.dense_width);
  if (config.moe) {
    const int64_t routed = int64_t{config.moe->top_k} * config.moe->expert_width;
    widest = std::max<int64_t>(widest, routed + config.moe->shared_width);
  }
  constexpr int64_t kLiveIntermediates = 6;
  constexpr int64_t kFloatBytes = 4;
  return kFloatBytes * (pools.rows_max * widest * kLiveIntermediates +
                        int64_t{sequences} * std::max(pools.replay_rows, 1) * config.vocab_rows);
}

Error too_small(std::string_view what, int64_t need, int64_t have, std::string_view advice) {
  return make_error(ErrorCode::no_memory, {.what = what,
                                           .expected = concat("at least ", megabytes(need)),
                                           .found = megabytes(have),
                                           .advice = advice});
}

int64_t pages_of(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

Result<void> check_flags(const ModelConfig& config, const MemoryRequest& request) {
  CHECK(request.page_bytes >= 0 && request.slot_bytes >= 0, "page ", request.page_bytes);
  if (request.sequences_max < 1)
    return make_error(ErrorCode::invalid_argument, {.what = "--max-num-seqs",
                                                    .expected = "at least 1",
                                                    .found = concat(request.sequences_max)});
  if (request.full_length_sequences < 1 || request.full_length_sequences > request.sequences_max)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--max-model-len auto:N",
         .expected = concat("N from 1 to ", request.sequences_max, ", --max-num-seqs"),
         .found = concat(request.full_length_sequences)});
  if (request.rows_max < request.sequences_max + kPageTokens)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--max-num-batched-tokens",
                       .expected = concat("at least ", request.sequences_max + kPageTokens,
                                          " (--max-num-seqs + ", kPageTokens, ")"),
                       .found = concat(request.rows_max)});
  if (!request.model_len) return {};
  if (*request.model_len >= 2 && *request.model_len <= config.max_positions) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--max-model-len",
                     .expected = concat("2 to ", config.max_positions, ", the model's own length"),
                     .found = concat(*request.model_len)});
}

/// State slots beyond those of running sequences.
int32_t choose_snapshots(const MemoryRequest& request, int64_t left) {
  if (request.snapshots) return *request.snapshots;
  const int64_t wanted = int64_t{request.sequences_max} * kSnapshotsPerSequence;
  if (request.slot_bytes == 0) return static_cast<int32_t>(wanted);
  return static_cast<int32_t>(std::min(wanted, left / kSnapshotShareDivisor / request.slot_bytes));
}

/// Host twins within request.host_bytes.
void plan_host(const MemoryRequest& request, MemoryPlan& plan) {
  if (request.host_bytes <= 0) return;
  const auto fit = [](int64_t bytes, int64_t each, int64_t most) {
    return static_cast<int32_t>(std::min(each == 0 ? most : bytes / each, most));
  };
  const int64_t states =
      request.page_bytes == 0 ? request.host_bytes : request.host_bytes / kHostStateDivisor;
  plan.pools.host_slots = fit(states, request.slot_bytes, int64_t{4} * plan.pools.state_slots);
  const int64_t left = request.host_bytes - plan.pools.host_slots * request.slot_bytes;
  plan.pools.host_pages = fit(left, request.page_bytes, int64_t{4} * plan.pools.pages);
  plan.host_bytes =
      plan.pools.host_slots * request.slot_bytes + plan.pools.host_pages * request.page_bytes;
}

/// Pages to reserve: what was asked for, or enough for every sequence within a share of `left`.
Result<int64_t> choose_pages(const ModelConfig& config, const MemoryRequest& request,
                             int64_t left) {
  const int64_t wanted_len = request.model_len.value_or(config.max_positions);
  const int64_t all = pages_of(wanted_len) * request.sequences_max;
  if (request.page_bytes == 0) return all;  // no attention layers: pages cost nothing
  if (!request.kv_cache_bytes) {
    const int64_t affordable = left / kKvShareDivisor / request.page_bytes;
    const int64_t one = pages_of(request.model_len.value_or(2));
    return std::clamp(affordable, std::min(one, left / request.page_bytes), all);
  }
  if (*request.kv_cache_bytes > left)
    return too_small("--kv-cache-memory-bytes", *request.kv_cache_bytes, left,
                     "lower it, or free memory");
  return *request.kv_cache_bytes / request.page_bytes;
}

}  // namespace

int64_t kv_page_bytes(const ModelConfig& config, int64_t element_bytes) {
  return int64_t{config.count(LayerKind::attention)} * kPageTokens * 2 * config.attention.kv_heads *
         config.attention.head_dim * element_bytes;
}

int64_t state_slot_bytes(const ModelConfig& config, int64_t element_bytes) {
  const DeltaNetConfig& d = config.delta_net;
  const int64_t recurrent = int64_t{d.v_heads} * d.k_dim * d.v_dim * element_bytes;
  const int64_t convolution = int64_t{d.conv_kernel - 1} * d.qkv_rows() * int64_t{sizeof(float)};
  return config.count(LayerKind::delta_net) * (recurrent + convolution);
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, const MemoryRequest& request) {
  TRY(check_flags(config, request));
  MemoryPlan plan;
  plan.memory_bytes = request.memory_bytes;
  plan.sequences_max = request.sequences_max;
  plan.weight_bytes = request.weight_bytes;
  plan.pools.state_slots = request.sequences_max;
  plan.pools.rows_max = request.rows_max;
  plan.pools.replay_rows = request.replay_rows;
  plan.state_bytes = request.slot_bytes * request.sequences_max;
  plan.workspace_bytes =
      request.workspace_bytes.value_or(workspace_bytes(config, plan.pools, request.sequences_max));
  plan.driver_bytes = request.driver_bytes;
  int64_t left = request.memory_bytes - plan.total_bytes();
  if (left < request.page_bytes)
    return too_small("the model does not fit in memory", plan.total_bytes() + request.page_bytes,
                     request.memory_bytes, "lower --max-num-seqs or use a smaller model");
  plan.snapshots = choose_snapshots(request, left);
  plan.pools.state_slots += plan.snapshots;
  plan.state_bytes += plan.snapshots * request.slot_bytes;
  left -= plan.snapshots * request.slot_bytes;
  if (left < request.page_bytes)
    return too_small(concat(plan.snapshots, " snapshots"), plan.total_bytes() + request.page_bytes,
                     request.memory_bytes, "lower --prefix-snapshots");
  const int64_t pages = TRY(choose_pages(config, request, left));
  plan.pools.pages = static_cast<int32_t>(std::min<int64_t>(pages, INT32_MAX / kPageTokens));
  plan.kv_bytes = plan.pools.pages * request.page_bytes;

  // A sequence of n tokens caches n - 1: the last one is never fed back.
  const int64_t longest = int64_t{plan.pools.pages} * kPageTokens + 1;
  if (request.model_len && *request.model_len > longest)
    return too_small(concat("the cache for --max-model-len ", *request.model_len),
                     pages_of(*request.model_len - 1) * request.page_bytes, plan.kv_bytes,
                     "lower --max-model-len or raise --kv-cache-memory-bytes");
  if (longest < 2)
    return too_small("the KV cache", request.page_bytes, request.kv_cache_bytes.value_or(left),
                     "raise --kv-cache-memory-bytes");
  const int64_t each = int64_t{plan.pools.pages / request.full_length_sequences} * kPageTokens + 1;
  if (each < 2)
    return too_small(concat("the KV cache for ", request.full_length_sequences, " sequences"),
                     request.full_length_sequences * request.page_bytes, plan.kv_bytes,
                     "lower N of --max-model-len auto:N");
  plan.context_max =
      static_cast<int32_t>(std::min(request.model_len.value_or(each), config.max_positions));
  plan_host(request, plan);
  return plan;
}

double MemoryPlan::concurrency(int64_t tokens) const {
  const auto pages = static_cast<double>(std::max<int64_t>(pages_of(tokens - 1), 1));
  return std::min<double>(static_cast<double>(pools.pages) / pages, sequences_max);
}

double MemoryPlan::concurrency() const { return concurrency(context_max); }

std::string MemoryPlan::table() const {
  std::string text = concat(
      "memory: weights ", megabytes(weight_bytes), ", KV cache ", megabytes(kv_bytes), " (",
      pools.pages, " pages of ", kPageTokens, " tokens), state ", megabytes(state_bytes), " (",
      sequences_max, " slots + ", snapshots, " snapshots), workspace ", megabytes(workspace_bytes),
      driver_bytes > 0 ? concat(", driver ", megabytes(driver_bytes)) : "", "; total ",
      megabytes(total_bytes()), " of ", megabytes(memory_bytes), "\n");
  if (host_bytes > 0)
    text += concat("host tier: ", megabytes(host_bytes), " (", pools.host_pages, " pages, ",
                   pools.host_slots, " states)\n");
  text += concat("context: ", context_max, " tokens; sequences at once by length:");
  int64_t tokens = context_max;
  for (int row = 0; row < 4 && tokens >= 2; ++row, tokens /= 4) {
    char cell[48];
    std::snprintf(cell, sizeof cell, " %lld: %.1f", static_cast<long long>(tokens),
                  concurrency(tokens));
    text += concat(row == 0 ? "" : ",", cell);
    if (concurrency(tokens) >= sequences_max) break;
  }
  return text + "\n";
}

}  // namespace nibble
