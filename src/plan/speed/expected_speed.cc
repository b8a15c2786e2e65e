// The model of bytes and FLOPs. The shares and the bytes of rows come from one pass of 8,192 tokens
// of the 35B on an H200 (docs/kernels/prefill-reached.md), which the test computes again.
#include "plan/speed/expected_speed.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nibble {
namespace {

// Dense rates with sums in F32, of NVIDIA's architecture papers and data sheets; those printed with
// sparsity are halved. DGX Spark: FP4 as printed, BF16 an assumption (90) between what users
// measured and the nominal 125, FP8 twice that, as on the other cards of compute capability 12.
// Compute capability 10: the weight-only kernels there are made of warp instructions, whose rate is
// nowhere printed: that of the H200 by multiprocessors (790 x 148 / 132), on which the shares of
// such kernels were measured.
constexpr auto kRates = std::to_array<CardRates>({
    {"rtx5090", 209.5e12, 419e12, 1676e12},
    {"rtx-pro-6000", 503.8e12, 1007.6e12, 2015e12},
    {"dgx-spark", 90e12, 180e12, 500e12},
    {"b200", 886e12, 4500e12, 9000e12},
    {"gb300", 886e12, 5000e12, 15000e12},
});

/// Bytes that the steps beside products read and write for each number of the residual stream in
/// each layer: 18.8 of the 135 ms of that pass, at 4.3 TB/s.
constexpr double kRowBytes = 120;

bool is_product(WeightKind kind) {
  return kind != WeightKind::norms && kind != WeightKind::embedding && kind != WeightKind::head &&
         kind != WeightKind::mtp && kind != WeightKind::vision;
}

}  // namespace

std::span<const CardRates> card_rates() { return kRates; }

std::optional<CardRates> rates_of(const PlannedCard& card) {
  const size_t colon = card.name.find(':');
  const std::string_view name = std::string_view(card.name).substr(0, colon);
  for (const CardRates& row : kRates) {
    if (row.card != name) continue;
    const double part = card.bandwidth_bytes / find_card(name).value().bandwidth_bytes;
    return CardRates{
        .card = row.card, .bf16 = row.bf16 * part, .fp8 = row.fp8 * part, .fp4 = row.fp4 * part};
  }
  return {};
}

PromptWork prompt_work(const ModelConfig& config, const std::vector<WeightRow>& rows,
                       int64_t context) {
  PromptWork work;
  for (const WeightRow& row : rows) {
    if (!is_product(row.kind)) continue;
    const bool experts = row.kind == WeightKind::experts && config.moe;
    const double met = experts ? static_cast<double>(config.moe->top_k) / config.moe->experts : 1.0;
    const double flops = 2.0 * met * static_cast<double>(row.parameters);
    ProductWork& part = experts ? work.experts : work.linears;
    (row.format == WeightFormat::nvfp4   ? part.nvfp4
     : row.format == WeightFormat::plain ? part.others
                                         : part.fp8) += flops;
  }
  // A token meets half of the prompt: a product with keys, and one with values.
  const AttentionConfig& heads = config.attention;
  work.attention = 2.0 * static_cast<double>(context) * heads.q_heads * heads.head_dim *
                   config.count(LayerKind::attention);
  // Ten operations for each number of a state.
  const DeltaNetConfig& delta = config.delta_net;
  work.delta_rule =
      10.0 * delta.v_heads * delta.k_dim * delta.v_dim * config.count(LayerKind::delta_net);
  work.row_bytes = kRowBytes * config.hidden * config.layer_count();
  return work;
}

double prompt_seconds(const PromptWork& work, const ProductRates& rates, const KernelShares& shares,
                      double bandwidth_bytes) {
  const auto seconds = [&](const ProductWork& part) {
    return part.nvfp4 / rates.nvfp4 + part.fp8 / rates.fp8 + part.others / rates.bf16;
  };
  return seconds(work.experts) / shares.experts + seconds(work.linears) / shares.linears +
         work.attention / (rates.bf16 * shares.attention) +
         work.delta_rule / (rates.bf16 * shares.delta_rule) + work.row_bytes / bandwidth_bytes;
}

double step_share(int64_t streams) {
  // An H100 at its printed bandwidth, as the bandwidths of the card table are.
  constexpr std::array<double, 4> kShares = {0.47, 0.55, 0.63, 0.65};
  for (size_t i = 1; i < kShares.size(); ++i) {
    const auto low = static_cast<double>(kExpectedStreams[i - 1]);
    const auto high = static_cast<double>(kExpectedStreams[i]);
    const auto at = static_cast<double>(std::max<int64_t>(streams, 1));
    if (at > high) continue;
    const double part = std::log(at / low) / std::log(high / low);
    return kShares[i - 1] + part * (kShares[i] - kShares[i - 1]);
  }
  return kShares.back();
}

std::vector<ExpectedRow> expected_speeds(const ModelConfig& config,
                                         const std::vector<WeightRow>& rows, const StepLoad& load,
                                         const PlannedCard& card) {
  const std::optional<CardRates> rates = rates_of(card);
  if (!rates) return {};
  std::vector<ExpectedRow> found;
  for (const int64_t streams : kExpectedStreams) {
    StepLoad step = load;
    step.streams = streams;
    const double rate = step_share(streams) * tokens_per_second(step_bytes(config, rows, step),
                                                                streams, card.bandwidth_bytes);
    // A step reads the same bytes each way, and they bound it.
    found.push_back({.streams = streams,
                     .tokens = load.context,
                     .weight_only = rate,
                     .fp8 = rate,
                     .native = rate});
  }
  const PromptWork work = prompt_work(config, rows, kExpectedPrompt);
  // On compute capability 10 this program widens FP8 weights.
  const bool widens_fp8 = card.capability / 10 == 10;
  const auto rate_of = [&](double fp8, double nvfp4) {
    return 1.0 / prompt_seconds(work, {.bf16 = rates->bf16, .fp8 = fp8, .nvfp4 = nvfp4},
                                kWarpShares, card.bandwidth_bytes);
  };
  found.push_back({.tokens = kExpectedPrompt,
                   .weight_only = rate_of(rates->bf16, rates->bf16),
                   .fp8 = rate_of(widens_fp8 ? rates->bf16 : rates->fp8, rates->bf16),
                   .native = rate_of(rates->bf16, rates->fp4)});
  return found;
}

}  // namespace nibble
