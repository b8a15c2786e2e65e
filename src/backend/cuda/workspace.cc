// Sizes. Each function cuts the slices of one part of the program, in the order in which a pass
// uses them.
#include "backend/cuda/workspace.h"

#include <algorithm>

#include "backend/cuda/batch_view.h"
#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/attention/flash_prefill.h"
#include "backend/cuda/ops/draft/draft.h"
#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/quantized/expert_groups.h"
#include "backend/cuda/ops/quantized/quantized_rows.h"
#include "backend/cuda/ops/route/prompt_route.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kF32 = sizeof(float);
constexpr int64_t kBf16 = sizeof(uint16_t);
constexpr int64_t kInt = sizeof(int32_t);

/// MixerWidths has the widths of rows between the products of mixers, in numbers.
struct MixerWidths {
  int64_t first = 0;
  int64_t third = 0;
  int64_t mixed = 0;
  int64_t convolved = 0;
};

MixerWidths mixer_widths(const ModelConfig& config) {
  MixerWidths widths{.first = config.hidden, .third = config.hidden};
  if (config.count(LayerKind::attention) > 0) {
    const AttentionConfig& a = config.attention;
    const int64_t q = int64_t{a.q_heads} * a.head_dim;
    widths.first = std::max(widths.first, a.output_gate ? 2 * q : q);
    widths.third = std::max(widths.third, int64_t{2} * a.kv_heads * a.head_dim);
    widths.mixed = q;
  }
  if (config.count(LayerKind::delta_net) > 0) {
    const DeltaNetConfig& d = config.delta_net;
    widths.first = std::max(widths.first, int64_t{d.qkv_rows()});
    widths.third = std::max(widths.third, int64_t{d.z_rows()});
    widths.mixed = std::max(widths.mixed, int64_t{d.z_rows()});
    widths.convolved = d.qkv_rows();
  }
  return widths;
}

/// Returns the columns of a row of Workspace::act.
int64_t act_columns(const ModelConfig& config) {
  if (!config.moe) return padded_columns(config.dense_width);
  return padded_columns(std::max(config.moe->expert_width, config.moe->shared_width));
}

/// Returns the entries of the page tables of a batch: at most the model's length of pages for each
/// sequence.
int64_t page_entries_most(const ModelConfig& config, const PoolSizes& sizes) {
  constexpr int64_t kMost = int64_t{1} << 22;
  const int64_t longest = (int64_t{config.max_positions} + kPageTokens - 1) / kPageTokens;
  const int64_t each = std::clamp(longest, int64_t{1}, std::max(int64_t{sizes.pages}, int64_t{1}));
  return std::min(sequences_most(config, sizes) * each, kMost);
}

class Cutter {
 public:
  Cutter(const ModelConfig& config, const WorkspaceNeeds& needs, std::byte* base)
      : config_(config), needs_(needs), rows_(needs.sizes.rows_max), carver_(base) {}

  Workspace cut() {
    work_.parts = needs_.activations == Activations::f32 ? kF32Parts : 1;
    work_.x_stride = work_.parts * padded_columns(config_.hidden);
    work_.h = carver_.take(rows_ * config_.hidden * kF32);
    work_.x = carver_.take(rows_ * work_.x_stride * kBf16);
    cut_mixers();
    cut_mlp();
    if (needs_.activations == Activations::f32) cut_f32();
    if (needs_.activations == Activations::declared) cut_rounded();
    cut_batch();
    cut_choice();
    if (config_.draft_layers > 0) cut_draft();
    if (needs_.prompts) cut_prompt_lists();
    cut_shared();
    work_.flag = carver_.take(kInt);
    work_.bytes = carver_.used();
    return work_;
  }

 private:
  int64_t row_block() const { return std::min<int64_t>(rows_, kRowBlock); }
  int64_t moe_rows() const { return std::min<int64_t>(rows_, kMoeRowBlock); }

  void cut_mixers() {
    const MixerWidths widths = mixer_widths(config_);
    work_.mixed_stride = work_.parts * padded_columns(widths.mixed);
    work_.gate_stride = int64_t{2} * config_.delta_net.v_heads;
    work_.first = carver_.take(rows_ * widths.first * kF32);
    work_.third = carver_.take(rows_ * widths.third * kF32);
    work_.gates = carver_.take(rows_ * work_.gate_stride * kF32);
    cut_mixed();
    work_.y = work_.first;
    work_.hidden = work_.third;
  }

  /// The inputs of entries lie where those of output projections do, unless padding, which stays
  /// zero, is elsewhere in one of them.
  void cut_mixed() {
    const int64_t mixed = mixer_widths(config_).mixed;
    if (config_.draft_layers == 0) {
      work_.mixed = carver_.take(rows_ * work_.mixed_stride * kBf16);
      return;
    }
    EntryMemory& entry = work_.entry;
    entry.joined_stride = padded_columns(int64_t{2} * config_.hidden);
    if (config_.hidden % kColumnPad == 0 && mixed % kColumnPad == 0) {
      const int64_t widest = std::max(work_.mixed_stride, entry.joined_stride);
      work_.mixed = entry.joined = entry.x = carver_.take(rows_ * widest * kBf16);
      return;
    }
    work_.mixed = carver_.take(rows_ * work_.mixed_stride * kBf16);
    entry.joined = carver_.take(rows_ * entry.joined_stride * kBf16);
    entry.x = carver_.take(rows_ * work_.x_stride * kBf16);
  }

  void cut_draft() {
    DraftMemory& draft = work_.draft;
    draft.asked = carver_.take(2 * row_block() * kInt);
    draft.done = carver_.take(row_block() * kInt);
    draft.out = carver_.take(row_block() * kDraftsMost * kInt);
    draft.best = carver_.take(row_block() * int64_t{sizeof(uint64_t)});
    draft.before = carver_.take(row_block() * config_.hidden * kF32);
  }

  void cut_mlp() {
    work_.act_stride = work_.parts * act_columns(config_);
    if (!config_.moe) {
      work_.act = carver_.take(rows_ * work_.act_stride * kBf16);
      return;
    }
    const MoeConfig& m = *config_.moe;
    const int64_t places = moe_rows() * (m.top_k + 1);
    work_.act = carver_.take(places * work_.act_stride * kBf16);
    work_.expert_y = carver_.take(places * config_.hidden * kF32);
    work_.router = carver_.take(moe_rows() * (m.experts + 1) * kF32);
    work_.choices = carver_.take(choice_ints(moe_rows(), m.top_k, m.experts) * kInt);
  }

  void cut_f32() {
    const int64_t places = config_.moe ? moe_rows() * (config_.moe->top_k + 1) : moe_rows();
    const int64_t columns = work_.act_stride / work_.parts;
    if (config_.moe) work_.spread = carver_.take(places * work_.x_stride * kBf16);
    work_.gate_up = carver_.take(2 * places * columns * kF32);
    work_.rest = carver_.take(places * std::max(columns, int64_t{config_.hidden}) * kF32);
  }

  void cut_rounded() {
    const int64_t share = config_.moe ? config_.moe->top_k : 1;
    const int64_t widest = std::max({share * work_.x_stride, work_.mixed_stride, work_.act_stride});
    const int64_t codes = share * fp8_row_bytes(work_.act_stride);  // of the inputs of down
    const int64_t filled = std::max({work_.x_stride, work_.mixed_stride, work_.act_stride});
    const int64_t parts = config_.moe ? std::min<int64_t>(config_.moe->experts, rows_ * share) : 1;
    work_.rounded =
        carver_.take(rows_ * std::max(widest * kBf16, codes) + fp4_filling_bytes(parts, filled));
    work_.ahead =
        carver_.take(rows_ * fp8_row_bytes(work_.x_stride) + fp4_filling_bytes(1, work_.x_stride));
    if (!config_.moe) return;
    const int64_t places = moe_rows() * share;
    work_.groups = carver_.take(group_bytes(config_.moe->experts, places));
    work_.ordered = carver_.take(places * config_.hidden * kF32);
  }

  void cut_batch() {
    const int64_t entries = config_.draft_layers > 0 ? kBatchEntryInts : 0;
    const int64_t ints = (kBatchRowInts + entries + kBatchSequenceInts) * rows_ +
                         page_entries_most(config_, needs_.sizes);
    work_.batch = carver_.take(ints * kInt);
  }

  void cut_choice() {
    constexpr int64_t kBiasesEach = 64;  // of a row, on average
    constexpr int64_t kBiasesMin = 4096;
    constexpr int64_t kCountedMin = 16384;
    const ChoiceSizes sizes = choice_sizes(config_, needs_.sizes);
    if (sizes.rows == 0) return;
    const int64_t mask_bytes = choice_mask_words(config_.vocab_rows) * kInt;
    ChoiceMemory& choice = work_.choice;
    choice.state = carver_.take(choice_state_bytes(row_block()));
    choice.rows = carver_.take(sizes.rows * int64_t{sizeof(ChoiceRow)});
    choice.biases =
        carver_.take(std::max(kBiasesMin, kBiasesEach * sizes.rows) * int64_t{sizeof(LogitBias)});
    choice.masks = carver_.take(sizes.rows * mask_bytes);
    choice.sampleable = carver_.take(mask_bytes);
    choice.counts = carver_.take(sizes.tables * sizes.counts_stride * int64_t{sizeof(uint16_t)});
    choice.counted = carver_.take(kCountedMin * int64_t{sizeof(CountedToken)});
  }

  void cut_prompt_lists() {
    const int64_t sequences = sequences_most(config_, needs_.sizes);
    const int64_t chunks = delta_chunks_max(rows_, sequences);
    PromptMemory& prompt = work_.prompt;
    if (config_.count(LayerKind::delta_net) > 0) {
      prompt.chunks = carver_.take(chunks * int64_t{sizeof(DeltaChunk)});
      prompt.sequences = carver_.take(sequences * int64_t{sizeof(DeltaSequence)});
      prompt.runs = carver_.take(delta_runs_max(chunks, sequences) * int64_t{sizeof(DeltaRun)});
    }
    if (config_.count(LayerKind::attention) > 0)
      prompt.tiles = carver_.take((chunks + sequences) * int64_t{sizeof(FlashTile)});
    const int64_t places = rows_ * (int64_t{1} + (config_.moe ? config_.moe->top_k : 0));
    prompt.mlp.act = carver_.take(places * work_.act_stride * kBf16);
  }

  /// Blocks of the model run one after the other, so each cuts its own from the same begin.
  void cut_shared() {
    const AttentionConfig& a = config_.attention;
    std::byte* const begin = carver_.end();
    DeviceCarver attention(begin);
    if (config_.count(LayerKind::attention) > 0)
      work_.partial = attention.take(kAttendRowsMax * a.q_heads * needs_.splits_max *
                                     attend_partial_bytes(a.head_dim));
    DeviceCarver delta_net(begin);
    work_.convolved = delta_net.take(rows_ * mixer_widths(config_).convolved * kF32);
    work_.replayed =
        delta_net.take(sequences_most(config_, needs_.sizes) * needs_.sizes.replay_rows *
                       config_.delta_net.saved_numbers() * kF32);
    DeviceCarver head(begin);
    work_.logits = head.take(row_block() * config_.vocab_rows * kF32);
    work_.hidden_rows = head.take(row_block() * config_.hidden * kF32);
    const int64_t most =
        std::max({attention.used(), delta_net.used(), head.used(),
                  needs_.prompts ? delta_bytes() : 0, needs_.prompts ? cut_prompt_mlp(begin) : 0});
    work_.shared = carver_.take(most);
  }

  int64_t delta_bytes() const {
    if (config_.count(LayerKind::delta_net) == 0) return 0;
    const int64_t chunks = delta_chunks_max(rows_, sequences_most(config_, needs_.sizes));
    return delta_workspace_bytes(delta_shape(config_),
                                 std::min(chunks, int64_t{kDeltaGroupChunks}));
  }

  int64_t cut_prompt_mlp(std::byte* begin) {
    if (!config_.moe) return 0;
    PromptMlpMemory& memory = work_.prompt.mlp;
    const int64_t experts = config_.moe->experts;
    const int64_t assignments = rows_ * config_.moe->top_k;
    const int64_t tiles = route_tiles_max(assignments, experts);
    DeviceCarver carver(begin);
    memory.y = carver.take((assignments + rows_) * config_.hidden * kBf16);
    memory.router = carver.take(rows_ * (experts + 1) * kF32);
    memory.chosen = carver.take(assignments * kInt);
    memory.chosen_weight = carver.take(assignments * kF32);
    memory.token = carver.take(assignments * kInt);
    memory.position = carver.take(assignments * kInt);
    memory.scratch = carver.take(route_scratch_ints(assignments, experts) * kInt);
    memory.tiles = carver.take(tiles * int64_t{sizeof(ExpertTile)});
    memory.tile_count = carver.take(kInt);
    return carver.used();
  }

  const ModelConfig& config_;
  const WorkspaceNeeds& needs_;
  const int64_t rows_;
  DeviceCarver carver_;
  Workspace work_;
};

}  // namespace

DeltaShape delta_shape(const ModelConfig& config) {
  const DeltaNetConfig& d = config.delta_net;
  return {.k_heads = d.k_heads,
          .v_heads = d.v_heads,
          .k_dim = d.k_dim,
          .v_dim = d.v_dim,
          .taps = d.conv_kernel};
}

int64_t table_bytes(const ModelConfig& config) {
  constexpr int64_t kPair = sizeof(double) + sizeof(int32_t);  // a frequency and its axis
  return config.count(LayerKind::attention) > 0 ? config.attention.rope.rotary_dims / 2 * kPair : 0;
}

bool prompts_supported(const ModelConfig& config) {
  if (config.hidden % 8 != 0) return false;
  const AttentionConfig& a = config.attention;
  if (config.count(LayerKind::attention) > 0 &&
      !flash_prefill_supports(
          {.q_heads = a.q_heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim}))
    return false;
  if (config.count(LayerKind::delta_net) > 0 && !delta_chunk_supports(delta_shape(config)))
    return false;
  if (!config.moe) return config.dense_width % 64 == 0;
  return config.moe->expert_width % 64 == 0 && config.moe->shared_width % 64 == 0 &&
         config.moe->experts <= kRouteExpertsMax && config.moe->top_k <= kRouteTopKMax;
}

int64_t sequences_most(const ModelConfig& config, const PoolSizes& sizes) {
  if (sizes.sequences_max > 0) return std::min(sizes.rows_max, sizes.sequences_max);
  const bool recurs = config.count(LayerKind::delta_net) > 0;
  return recurs ? std::min(sizes.rows_max, sizes.state_slots) : sizes.rows_max;
}

ChoiceSizes choice_sizes(const ModelConfig& config, const PoolSizes& sizes) {
  constexpr int64_t kRowsMost = 1024;
  constexpr int64_t kStep = 8;  // entries of 16 bytes
  if (config.vocab_rows > kChoiceVocabMax) return {};
  const int64_t sequences = sequences_most(config, sizes);
  return {.rows = std::min(sequences * std::max(sizes.replay_rows, 1), kRowsMost),
          .tables = std::min(sequences, kRowsMost),
          .counts_stride = (config.vocab_rows + kStep - 1) / kStep * kStep};
}

WorkspaceNeeds workspace_needs(const ModelConfig& config, const PoolSizes& sizes,
                               Activations activations) {
  const int64_t tokens_max = int64_t{std::max(sizes.pages, 1)} * kPageTokens;
  const int64_t splits = (tokens_max + kAttendTokensMin - 1) / kAttendTokensMin;
  return {.sizes = sizes,
          .activations = activations,
          .prompts = prompts_supported(config) && activations != Activations::f32,
          .splits_max = static_cast<int32_t>(std::min(int64_t{kAttendSplitsMax}, splits))};
}

Workspace Workspace::cut(const ModelConfig& config, const WorkspaceNeeds& needs, std::byte* base) {
  return Cutter(config, needs, base).cut();
}

}  // namespace nibble::cuda
