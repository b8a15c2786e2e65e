// The arithmetic of the plan, in the order of claims that the header states.
#include "plan/memory_plan.h"

#include <algorithm>

#include "plan/plan_text.h"

namespace nibble {

namespace {

/// CacheRule::by_need: the share of the memory left that pages take when nobody says.
constexpr int64_t kKvShareDivisor = 2;
/// The part of the memory of pages and snapshots that snapshots get. A cached prefix of the 35B of
/// 6,400 tokens in FP8 pages weighs as much as one snapshot, and a conversation leaves one to
/// three.
constexpr int64_t kSnapshotShareDivisor = 4;
/// CacheRule::all: so many requests of full length have their pages before snapshots get a share,
constexpr int64_t kLengthsBeforeSnapshots = 4;
/// but for one snapshot for so many sequences. While fewer run, their slots hold snapshots too.
constexpr int32_t kSequencesPerSnapshot = 8;
/// CacheRule::by_need: the end of a sequence's system prompt and of its last turn.
constexpr int32_t kSnapshotsPerSequence = 2;
/// A model without states has one snapshot for so many pages, since its snapshots are ids alone.
constexpr int64_t kPagesPerSnapshot = 16;
/// Pages and snapshots that the rule gives at most. A page of the prefix cache costs 650 bytes of
/// host memory, so a small model on a large card would fill the host instead.
constexpr int64_t kPagesMax = int64_t{1} << 20;
/// Share of the host tier that states take; pages take the rest.
constexpr int64_t kHostStateDivisor = 3;
/// Share of the host tier that rows of encoded images may take first.
constexpr int64_t kHostMediaDivisor = 8;

int64_t pages_of(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
/// A sequence of n tokens caches n - 1: the last one is never fed back.
int64_t pages_to_run(int64_t tokens) { return std::max<int64_t>(pages_of(tokens - 1), 1); }

Error too_small(std::string_view what, int64_t need, int64_t have, std::string_view advice) {
  return make_error(ErrorCode::no_memory, {.what = what,
                                           .expected = concat("at least ", plan_megabytes(need)),
                                           .found = plan_megabytes(have),
                                           .advice = advice});
}

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
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--max-model-len",
       .expected = concat("2 to ", config.max_positions,
                          config.attention.rope.yarn ? ", the length that YaRN gives"
                                                     : ", the model's own length"),
       .found = concat(*request.model_len),
       .advice = config.attention.rope.yarn ? "" : "--rope-scaling with YaRN goes beyond it"});
}

/// Divides what the fixed claims leave. Each step takes from `left` what the next cannot have.
class CacheDivider {
 public:
  CacheDivider(const ModelConfig& config, const MemoryRequest& request, int64_t left)
      : config_(config), request_(request), left_(left) {}

  /// States of running sequences. On a CPU all that are asked for.
  int32_t sequences() const {
    if (request_.rule == CacheRule::by_need || request_.slot_bytes == 0)
      return request_.sequences_max;
    const int64_t promised =
        page_floor() + int64_t{request_.snapshots.value_or(0)} * request_.slot_bytes;
    const int64_t few = kSequencesLeast * request_.slot_bytes;
    const int64_t share =
        request_.kv_cache_bytes ? left_ : std::max(left_ / kSequenceShareDivisor, few);
    const int64_t fit = std::min(share, left_ - promised) / request_.slot_bytes;
    return static_cast<int32_t>(
        std::clamp<int64_t>(fit, request_.full_length_sequences, request_.sequences_max));
  }

  /// State slots beyond those of `sequences`, which are paid for.
  int32_t snapshots(int32_t sequences) const {
    if (request_.snapshots) return *request_.snapshots;
    const int64_t some = int64_t{sequences} * kSnapshotsPerSequence;
    const bool many = request_.rule == CacheRule::all && request_.reuse == PrefixReuse::shared;
    if (request_.slot_bytes == 0) {
      const int64_t pages = request_.page_bytes == 0 ? 0 : left_ / request_.page_bytes;
      const int64_t more = std::min(pages, kPagesMax) / kPagesPerSnapshot;
      return static_cast<int32_t>(many ? std::max(some, more) : some);
    }
    const int64_t bytes =
        request_.rule == CacheRule::all ? snapshot_bytes(sequences) : left_ / kSnapshotShareDivisor;
    const int64_t fit = std::max<int64_t>(bytes, 0) / request_.slot_bytes;
    return static_cast<int32_t>(std::min(many ? kPagesMax : some, fit));
  }

  /// With states and snapshots paid for.
  Result<int64_t> pages(int32_t sequences) const {
    const int64_t wanted_len = request_.model_len.value_or(config_.max_positions);
    const int64_t all = pages_of(wanted_len) * sequences;
    if (request_.page_bytes == 0) return all;  // no attention layers: pages cost nothing
    if (request_.kv_cache_bytes) {
      if (*request_.kv_cache_bytes <= left_) return *request_.kv_cache_bytes / request_.page_bytes;
      return too_small("--kv-cache-memory-bytes", *request_.kv_cache_bytes, left_,
                       "lower it, or free memory");
    }
    const int64_t fit = left_ / request_.page_bytes;
    if (request_.rule == CacheRule::all)
      return std::min(fit, request_.reuse == PrefixReuse::shared ? kPagesMax : all);
    const int64_t one = pages_of(request_.model_len.value_or(2));
    return std::clamp(fit / kKvShareDivisor, std::min(one, fit), all);
  }

  void take(int64_t bytes) { left_ -= bytes; }
  int64_t left() const { return left_; }

 private:
  int64_t full_pages() const {
    return pages_to_run(request_.model_len.value_or(config_.max_positions));
  }

  int64_t snapshot_bytes(int32_t sequences) const {
    const int64_t beyond = left_ - page_floor();
    if (request_.kv_cache_bytes)
      return std::min(beyond, *request_.kv_cache_bytes / (kSnapshotShareDivisor - 1));
    const int64_t surplus = left_ - kLengthsBeforeSnapshots * full_pages() * request_.page_bytes;
    const int64_t least = sequences / kSequencesPerSnapshot * request_.slot_bytes;
    return std::min(beyond, std::max(surplus / kSnapshotShareDivisor, least));
  }

  /// Bytes of pages that nothing else may have: those asked for, or of the least that must run.
  int64_t page_floor() const {
    if (request_.kv_cache_bytes) return *request_.kv_cache_bytes;
    const int64_t each = pages_to_run(request_.model_len.value_or(2)) * request_.page_bytes;
    return request_.model_len ? each : each * request_.full_length_sequences;
  }

  const ModelConfig& config_;
  const MemoryRequest& request_;
  int64_t left_;
};

/// Host twins within request.host_bytes.
void plan_host(const MemoryRequest& request, MemoryPlan& plan) {
  if (request.host_bytes <= 0) return;
  const auto fit = [](int64_t bytes, int64_t each, int64_t most) {
    return static_cast<int32_t>(
        std::min({each == 0 ? most : bytes / each, most, int64_t{INT32_MAX}}));
  };
  int64_t left = request.host_bytes;
  if (request.media_rows > 0) {
    const int64_t row_bytes = request.media_cache_bytes / request.media_rows;
    plan.pools.host_media_rows =
        fit(left / kHostMediaDivisor, row_bytes, int64_t{4} * request.media_rows);
    left -= plan.pools.host_media_rows * row_bytes;
  }
  const int64_t states = request.page_bytes == 0 ? left : left / kHostStateDivisor;
  plan.pools.host_slots = fit(states, request.slot_bytes, int64_t{4} * plan.pools.state_slots);
  left -= plan.pools.host_slots * request.slot_bytes;
  plan.pools.host_pages = fit(left, request.page_bytes, int64_t{4} * plan.pools.pages);
  plan.host_bytes = request.host_bytes - left + plan.pools.host_pages * request.page_bytes;
}

/// Rows of a pass that sample: each sequence's last, and those that it drafted.
int32_t logit_rows_of(const MemoryRequest& request, int32_t sequences) {
  const int64_t rows = int64_t{sequences} * std::max(request.replay_rows, 1);
  return static_cast<int32_t>(std::min<int64_t>(rows, request.rows_max));
}

/// Claims that no flag of the caches changes.
MemoryPlan fixed_claims(const ModelConfig& config, const MemoryRequest& request) {
  MemoryPlan plan;
  plan.memory_bytes = request.memory_bytes;
  plan.asked_bytes = std::max(request.asked_bytes, request.memory_bytes);
  plan.others_bytes = request.others_bytes;
  plan.sequences_asked = request.sequences_max;
  plan.weight_bytes = request.weight_bytes;
  plan.mapped_bytes = request.mapped_bytes;
  plan.table_bytes = request.table_bytes;
  plan.pools.rows_max = request.rows_max;
  plan.pools.replay_rows = request.replay_rows;
  plan.workspace_bytes = request.workspace_bytes.value_or(
      pass_bytes(config, request.rows_max, logit_rows_of(request, request.sequences_max)));
  plan.image_tokens_max = request.image_tokens_max;
  plan.pools.media_rows = request.media_rows;
  plan.pools.vision_rows = request.vision_rows;
  plan.media_bytes = request.media_bytes;
  plan.driver_bytes = request.driver_bytes;
  return plan;
}

/// The longest request, of pages that are decided.
Result<int32_t> choose_context(const ModelConfig& config, const MemoryRequest& request,
                               const MemoryPlan& plan, int64_t left) {
  const int64_t longest = int64_t{plan.pools.pages} * kPageTokens + 1;
  if (request.model_len && *request.model_len > longest)
    return too_small(concat("the cache for --max-model-len ", *request.model_len),
                     pages_to_run(*request.model_len) * request.page_bytes, plan.kv_bytes,
                     "lower --max-model-len or raise --kv-cache-memory-bytes");
  if (longest < 2)
    return too_small("the KV cache", request.page_bytes, request.kv_cache_bytes.value_or(left),
                     "raise --kv-cache-memory-bytes");
  const int64_t each = int64_t{plan.pools.pages / request.full_length_sequences} * kPageTokens + 1;
  if (each < 2)
    return too_small(concat("the KV cache for ", request.full_length_sequences, " sequences"),
                     request.full_length_sequences * request.page_bytes, plan.kv_bytes,
                     "lower N of --max-model-len auto:N");
  return static_cast<int32_t>(
      std::min<int64_t>(request.model_len.value_or(each), config.max_positions));
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

PoolSizes largest_pass(const MemoryRequest& request) {
  return {.pages = static_cast<int32_t>(kPagesMax),
          .state_slots = request.sequences_max,
          .rows_max = request.rows_max,
          .replay_rows = request.replay_rows,
          .sequences_max = request.sequences_max,
          .logit_rows = logit_rows_of(request, request.sequences_max)};
}

/// Rows x the widest intermediate of a block x F32, times the handful a block keeps at once, and
/// the logits.
int64_t pass_bytes(const ModelConfig& config, int64_t rows, int64_t logit_rows) {
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
  return kFloatBytes * (rows * widest * kLiveIntermediates + logit_rows * config.vocab_rows);
}

double requests_held(int64_t cache_bytes, int64_t tokens, int64_t page_bytes, int64_t slot_bytes) {
  const int64_t each = slot_bytes + pages_to_run(tokens) * page_bytes;
  return static_cast<double>(cache_bytes) / static_cast<double>(each);
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, const MemoryRequest& request) {
  TRY(check_flags(config, request));
  MemoryPlan plan = fixed_claims(config, request);
  CacheDivider cache(config, request, request.memory_bytes - plan.total_bytes());
  const auto add_slots = [&](int32_t slots) {
    plan.pools.state_slots += slots;
    plan.state_bytes += slots * request.slot_bytes;
    cache.take(slots * request.slot_bytes);
  };
  plan.sequences_max = cache.sequences();
  add_slots(plan.sequences_max);
  const std::string beside =
      plan.memory_bytes < plan.asked_bytes
          ? concat("; other processes hold ", plan_megabytes(plan.others_bytes), " of the card")
          : "";
  if (cache.left() < request.page_bytes)
    return too_small("the model does not fit in memory", plan.total_bytes() + request.page_bytes,
                     request.memory_bytes,
                     concat("lower --max-num-seqs or use a smaller model", beside));
  plan.snapshots = cache.snapshots(plan.sequences_max);
  add_slots(plan.snapshots);
  if (cache.left() < request.page_bytes)
    return too_small(concat(plan.snapshots, " snapshots"), plan.total_bytes() + request.page_bytes,
                     request.memory_bytes, concat("lower --prefix-snapshots", beside));
  const int64_t pages = TRY(cache.pages(plan.sequences_max));
  plan.pools.pages = static_cast<int32_t>(std::min<int64_t>(pages, INT32_MAX / kPageTokens));
  plan.pools.sequences_max = plan.sequences_max;
  plan.pools.logit_rows = logit_rows_of(request, plan.sequences_max);
  plan.kv_bytes = plan.pools.pages * request.page_bytes;
  plan.context_max = TRY(choose_context(config, request, plan, cache.left()));
  plan_host(request, plan);
  return plan;
}

ReservedBytes MemoryPlan::reserved() const {
  return {.weights = weight_bytes,
          .tables = table_bytes,
          .pages = kv_bytes,
          .states = state_bytes,
          .workspace = workspace_bytes,
          .media = media_bytes};
}

double MemoryPlan::full_length_requests() const {
  return static_cast<double>(pools.pages) / static_cast<double>(pages_to_run(context_max));
}

double MemoryPlan::concurrency(int64_t tokens) const {
  return std::min<double>(
      static_cast<double>(pools.pages) / static_cast<double>(pages_to_run(tokens)), sequences_max);
}

double MemoryPlan::concurrency() const { return concurrency(context_max); }

}  // namespace nibble
