// The conditions under which each kernel of linear() runs. Constants were measured on an H200
// (docs/kernels/decode.md).
#include "backend/cuda/ops/linear/linear_select.h"

#include <algorithm>

#include "base/check.h"
#include "base/concat.h"

namespace nibble::cuda {
namespace {

/// Tiles of a head that `stream` takes: for a smaller one the shared memory that adjacent kernels
/// lose costs more.
constexpr int kHeadTilesMin = 1024;
constexpr int kLongTilesMin = 48;  // tiles of `stream` with longer rows, or of gate and up
constexpr int kSmallBlockBytes = 112 * 1024;  // a block of another kernel fits beside one of these
constexpr int kSecondTiles = 4;               // tiles of a block of `tiles` that has BF16 matrices
/// The least tiles for each block of `tiles`; fewer are better made by all its warps together.
constexpr int kTilesMin = 3;
/// Enough tiles for `chain` to keep every SM busy with one warp each.
constexpr int kChainTiles = 512;
constexpr int kChainTilesOfFewRows = 2048;

/// Stages of columns in one block of a cluster: 64 tokens of a head fit, or 32 of long rows.
constexpr int stages_max(StreamKind kind) { return kind == StreamKind::head ? 5 : 9; }

/// A Group has the outputs of one launch.
struct Group {
  const LinearArgs& args;
  uint8_t outputs = 0;

  template <typename Act>
  void each(const Act& act) const {
    for (int i = 0; i < args.count; ++i)
      if ((outputs >> i & 1) != 0) act(args.outputs[i]);
  }
  template <typename Test>
  bool all(const Test& test) const {
    bool holds = true;
    each([&](const LinearOutput& out) { holds = holds && test(out); });
    return holds;
  }
  const LinearOutput& first() const {
    int i = 0;
    while ((outputs >> i & 1) == 0) ++i;
    return args.outputs[i];
  }
  Format format() const { return first().weight.format; }
  /// Returns the tiles of `rows` rows, of the matrices of the first one's format or of the others.
  int tiles(int rows, Mix which = Mix::one_format) const {
    int count = 0;
    each([&](const LinearOutput& out) {
      if ((out.weight.format == format()) == (which == Mix::one_format))
        count += ceil_div(out.weight.rows, rows);
    });
    return count;
  }
  Mix mix() const { return tiles(1, Mix::mixed) > 0 ? Mix::mixed : Mix::one_format; }
  bool has_block_factors() const {
    return !all(
        [](const LinearOutput& out) { return out.weight.layout != FactorLayout::block128; });
  }
};

LinearPlan plan_of(const Group& group) {
  LinearPlan plan{.format = group.format(), .mix = group.mix(), .outputs = group.outputs};
  group.each([&](const LinearOutput& out) { plan.weight_bytes += weight_bytes(out.weight); });
  return plan;
}

// ---- stream ----

/// Returns the clusters over which the busiest block has the fewest bytes; clusters 0: there are
/// none.
LinearPlan spread(StreamKind kind, int stages, int tiles, const Architecture& card) {
  LinearPlan best{.kernel = LinearKernel::stream, .kind = kind};
  int64_t least = INT64_MAX;
  for (const int ranks : kClusterSizes) {
    if (ranks > stream_ranks_max(kind) || (kind != StreamKind::head && ranks == 2)) continue;
    const int most = std::min(card.clusters_of(ranks), card.multiprocessors / ranks);
    if (most < 2 || ceil_div(stages, ranks) > stages_max(kind)) continue;
    const int clusters = std::min(tiles, most);
    const int64_t cost = int64_t{ceil_div(tiles, clusters)} * ceil_div(stages, ranks);
    if (cost >= least) continue;
    least = cost;
    best.cluster = ranks;
    best.clusters = clusters;
  }
  return best;
}

struct StreamShape {
  StreamKind kind = StreamKind::head;
  Format format = Format::fp8;
  int rows = 0;  // tokens
  int cols = 0;
  int tiles = 0;
};
LinearPlans stream_plan(const StreamShape& shape, const Architecture& card) {
  const int stages = shape.cols / kStageColumns;
  LinearPlan plan = spread(shape.kind, stages, shape.tiles, card);
  if (plan.clusters == 0) return {};
  plan.format = shape.format;
  plan.warps = 4 * kStreamGroups + 4;  // multiply; the other four load and finish
  const int rank_bits = plan.cluster == 8 ? 3 : plan.cluster == 4 ? 2 : 1;
  const auto fixed = [&](int n8) {
    return stream_input_bytes(stages, rank_bits, n8) + stream_sum_bytes(n8, rank_bits) +
           kStreamAlignment;
  };
  const int stage = stage_bytes(shape.format);
  int n8 = 8;
  while (n8 > 1 &&
         (shape.rows <= 4 * n8 || fixed(n8) + 3 * stage + kStreamBarrierBytes > card.shared_bytes))
    n8 /= 2;
  const int room = std::min(n8 == 1 ? kSmallBlockBytes : card.shared_bytes,
                            card.shared_bytes - kStreamBarrierBytes);
  plan.tokens = 8 * n8;
  plan.stages = std::min((room - fixed(n8)) / stage, kStreamStagesMax);
  plan.shared_bytes = fixed(n8) + plan.stages * stage;
  if (plan.stages < 2) return {};
  return {.plans = {plan}, .count = 1};
}

bool alike(const DeviceLinear& a, const DeviceLinear& b) {
  return a.format == b.format && a.cols == b.cols &&
         (a.layout == FactorLayout::block128) == (b.layout == FactorLayout::block128);
}
/// Plans matrices of codes: a head, whose products are stored as they are, or those of long rows.
LinearPlans stream_plan(const Group& group, const Architecture& card) {
  const LinearOutput& first = group.first();
  const DeviceLinear& w = first.weight;
  if (w.format == Format::bf16 || group.args.norm.h != nullptr || !card.has_wgmma()) return {};
  const StreamKind kind = inputs_fit(w) ? StreamKind::head : StreamKind::longs;
  const bool one = (group.outputs & (group.outputs - 1)) == 0;
  if (kind == StreamKind::head && !(one && first.finish == Finish::store)) return {};
  if (!group.all([&](const LinearOutput& out) {
        return alike(w, out.weight) && out.finish != Finish::convolve;
      }))
    return {};
  LinearPlans plans = stream_plan({.kind = kind,
                                   .format = w.format,
                                   .rows = group.args.rows,
                                   .cols = w.cols,
                                   .tiles = group.tiles(kStreamRowTile)},
                                  card);
  if (plans.count == 0) return plans;
  plans.plans[0].outputs = group.outputs;
  plans.plans[0].weight_bytes = plan_of(group).weight_bytes;
  return plans;
}

// ---- inputs on chip ----

/// Spreads tiles over at most `blocks_max` blocks.
int spread_over(int tiles, int blocks_max) { return std::clamp(tiles, 1, std::max(blocks_max, 1)); }

/// True if `tiles` suits, with `split` warps a tile: `plan` is completed.
bool tiles_suit(const Group& group, int split, const Architecture& card, LinearPlan& plan) {
  const int row_groups = ceil_div(group.args.rows, kTilesTokens);
  const int first = group.tiles(kRowTile);
  const int second = group.tiles(kRowTile, Mix::mixed);
  plan.second_blocks = second == 0 ? 0 : spread_over(second, ceil_div(second, kSecondTiles));
  plan.blocks = spread_over(first, card.multiprocessors / row_groups - plan.second_blocks);
  const auto bytes = [&](Format format, int tiles, int blocks) {
    const int slices = group.first().weight.cols / slice_columns(format);
    const int left = split == 1 ? 0 : ceil_div(tiles, blocks) * (slices / 2);
    return resident_words(format, slices, kTilesTokens / kTokenTile) * kWordBytes +
           left * (kTilesTokens / kTokenTile) * kTileSumBytes;
  };
  plan.shared_bytes = bytes(plan.format, first, plan.blocks);
  if (second > 0)
    plan.shared_bytes =
        std::max(plan.shared_bytes, bytes(Format::bf16, second, plan.second_blocks));
  plan.kernel = LinearKernel::tiles;
  plan.tokens = kTilesTokens;
  plan.warps = kTilesWarps;
  plan.warps_per_tile = split;
  return plan.shared_bytes <= card.shared_bytes && first >= kTilesMin * plan.blocks &&
         (split == 1 || first <= tiles_teams(split) * plan.blocks);
}

LinearPlan resident_plan(const Group& group, const Architecture& card) {
  LinearPlan plan = plan_of(group);
  const int rows = group.args.rows;
  const auto use = [&](int tiles, int warps) {
    const int bytes =
        resident_bytes({.format = plan.format, .tiles = tiles, .warps = warps}, plan.mix);
    if (tiles > 1 && bytes > card.shared_bytes) return false;
    plan.tokens = tiles * kTokenTile;
    plan.warps = warps;
    plan.shared_bytes = bytes;
    return true;
  };
  const int slices = slice_count(group.first().weight);
  CHECK(slices <= kResidentWarps || plan.mix == Mix::one_format, "two formats with ", slices,
        " slices");
  const int warps = slices > kResidentWarps ? 16 : 8;
  if (warps == 8 && rows > 16 && plan.format != Format::bf16 && !group.has_block_factors() &&
      resident_bytes({.format = plan.format, .tiles = 2, .warps = 8}, plan.mix) <=
          card.shared_bytes &&
      use(4, 16))
    return plan;
  if (rows <= kTokenTile || !use(2, warps)) use(1, warps);
  return plan;
}

LinearPlan on_chip_plan(const Group& group, const Architecture& card) {
  const int rows = group.args.rows;
  if (rows == 1) {
    LinearPlan plan = plan_of(group);
    plan.kernel = LinearKernel::row;
    plan.tokens = 1;
    plan.warps =
        plan.mix == Mix::mixed || slice_count(group.first().weight) <= kResidentWarps ? 8 : 16;
    return plan;
  }
  LinearPlan plan = plan_of(group);
  const bool bf16 = plan.format == Format::bf16;
  if (bf16 && rows > kTilesTokens / 2 && rows <= kTilesTokens && tiles_suit(group, 2, card, plan))
    return plan;
  if (rows > (bf16 ? kTilesTokens / 2 : kTilesTokens) && tiles_suit(group, 1, card, plan))
    return plan;
  return resident_plan(group, card);
}

/// Plans a product whose rows are too long for shared memory.
LinearPlan long_plan(const Group& group) {
  LinearPlan plan = plan_of(group);
  const int rows = group.args.rows;
  plan.tokens = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  plan.warps_per_tile = parts_of(plan.format, group.first().weight.cols, kSplitWarpsMax);
  plan.kernel = group.tiles(kRowTile) >= (plan.tokens > 8 ? kChainTiles : kChainTilesOfFewRows)
                    ? LinearKernel::chain
                    : LinearKernel::split;
  plan.warps = kChainWarps;
  if (plan.kernel == LinearKernel::split && plan.warps_per_tile > kChainWarps) {
    plan.warps = kSplitWarpsMax;
    plan.tokens = std::min(plan.tokens, 32);  // their sums fit 48 KB of shared memory
  }
  return plan;
}

/// Returns the outputs of a launch with output `first`: those of its format, and BF16 ones whose
/// inputs fit if those of that matrix do.
uint8_t together_with(const LinearArgs& args, int first, uint8_t left) {
  const DeviceLinear& w = args.outputs[first].weight;
  const bool pairs = inputs_fit(w) && w.format != Format::bf16 && slice_count(w) <= kResidentWarps;
  uint8_t outputs = 0;
  for (int i = first; i < args.count; ++i) {
    const DeviceLinear& other = args.outputs[i].weight;
    const bool joins =
        other.format == w.format || (pairs && other.format == Format::bf16 && inputs_fit(other));
    if (joins) outputs |= static_cast<uint8_t>(1U << i);
  }
  return outputs & left;
}

StreamShape gate_up_shape(const ExpertArgs& args) {
  return {.kind = StreamKind::gate_up,
          .format = args.shared_low.format,
          .rows = args.rows,
          .cols = args.shared_low.cols,
          .tiles = ceil_div(args.shared_low.rows, kStreamRowTile / 2)};
}

constexpr std::string_view kKernelNames[] = {"row",   "resident", "tiles", "norm",
                                             "split", "chain",    "stream"};

}  // namespace

bool inputs_fit(const DeviceLinear& weight) { return slice_count(weight) <= kResidentSlicesMax; }

std::string_view format_name(Format format) {
  return format == Format::bf16 ? "bf16" : format == Format::fp8 ? "fp8" : "nvfp4";
}

int64_t weight_bytes(const DeviceLinear& w, int64_t matrices) {
  int64_t bytes = w.rows * value_bytes(w.format, w.cols);
  if (w.format == Format::nvfp4) bytes += int64_t{w.rows} * (w.cols / 16);
  if (w.layout == FactorLayout::scalar) bytes += 4;
  if (w.layout == FactorLayout::row) bytes += int64_t{w.rows} * 4;
  if (w.layout == FactorLayout::block128)
    bytes += int64_t{ceil_div(w.rows, 128)} * ceil_div(w.cols, 128) * 4;
  return matrices * bytes;
}

bool norms_rows(const LinearArgs& args, const Architecture& card) {
  const Group group{args, static_cast<uint8_t>((1U << args.count) - 1)};
  return args.gather == nullptr && group.all([](const LinearOutput& out) {
    return out.weight.format == Format::bf16 && inputs_fit(out.weight);
  }) && group.tiles(kRowTile) * ceil_div(args.rows, 2 * kTokenTile) <= card.multiprocessors;
}

LinearPlans select_linear(const LinearArgs& args, const Architecture& card) {
  LinearPlans plans;
  auto left = static_cast<uint8_t>((1U << args.count) - 1);
  for (int i = 0; i < args.count; ++i)
    CHECK(args.outputs[i].weight.cols == args.outputs[0].weight.cols, "columns ",
          args.outputs[i].weight.cols);
  if (args.norm.h != nullptr && args.rows > 1) {
    CHECK(norms_rows(args, card), "the norm of ", args.rows, " rows");
    const Group group{args, left};
    LinearPlan& plan = plans.plans[plans.count++] = plan_of(group);
    plan.kernel = LinearKernel::norm;
    const int tiles = group.tiles(kRowTile) * ceil_div(args.rows, kTokenTile);
    plan.tokens = tiles <= card.multiprocessors ? kTokenTile : 2 * kTokenTile;
    plan.warps = kNormWarps;
    plan.shared_bytes = norm_bytes(plan.tokens / kTokenTile);
    return plans;
  }
  for (int first = 0; first < args.count; ++first) {
    if ((left >> first & 1) == 0) continue;
    const Group group{args, together_with(args, first, left)};
    left &= static_cast<uint8_t>(~group.outputs);
    const LinearPlans streamed = stream_plan(group, card);
    const LinearPlan& stream = streamed.plans[0];
    const int least = stream.kind == StreamKind::head ? kHeadTilesMin : kLongTilesMin;
    const bool fit = inputs_fit(group.first().weight);
    CHECK(fit || args.norm.h == nullptr, "the norm of ", group.first().weight.cols, " columns");
    plans.plans[plans.count++] = streamed.count > 0 && group.tiles(kStreamRowTile) >= least ? stream
                                 : fit ? on_chip_plan(group, card)
                                       : long_plan(group);
  }
  return plans;
}

LinearPlans select_stream(const LinearArgs& args, const Architecture& card) {
  return stream_plan(Group{args, static_cast<uint8_t>((1U << args.count) - 1)}, card);
}

LinearPlans select_stream(const ExpertArgs& args, const Architecture& card) {
  const DeviceLinear& gate = args.shared_low;
  if (!card.has_wgmma() || !gate.present() || args.routed_low.present() || args.norm.h != nullptr ||
      gate.format == Format::bf16 || !alike(gate, args.shared_high))
    return {};
  LinearPlans plans = stream_plan(gate_up_shape(args), card);
  if (plans.count > 0)
    plans.plans[0].weight_bytes = weight_bytes(gate) + weight_bytes(args.shared_high);
  return plans;
}

LinearPlans select_gate_up(const ExpertArgs& args, const Architecture& card) {
  if (gate_up_shape(args).tiles < kLongTilesMin) return {};
  return select_stream(args, card);
}

std::string LinearPlan::text() const {
  std::string out = concat(kKernelNames[static_cast<int>(kernel)], " ", format_name(format),
                           mix == Mix::mixed ? " + bf16" : "", ", ", tokens,
                           tokens == 1 ? " token, " : " tokens, ", warps, " warps");
  if (warps_per_tile > 1) out += concat(", ", warps_per_tile, " a tile");
  if (blocks > 0) out += concat(", ", blocks, second_blocks > 0 ? " + " : "");
  if (second_blocks > 0) out += concat(second_blocks);
  if (blocks > 0) out += " blocks";
  if (clusters > 0)
    out += concat(", ", clusters, " clusters of ", cluster, ", ", stages, " stages");
  if (shared_bytes > 0) out += concat(", ", shared_bytes, " bytes shared");
  return out;
}

}  // namespace nibble::cuda
