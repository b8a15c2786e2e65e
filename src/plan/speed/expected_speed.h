// The speed to expect of a card that this program was never timed on: its bandwidth and its rates
// of products, times the shares of such bounds that kernels of the same structure reached on an
// H100 and an H200 (docs/kernels/decode-reached.md, prefill-reached.md). Computed, not measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/card_table.h"
#include "plan/speed/speed_bound.h"

namespace nibble {

/// The rates of a card's tensor cores, dense, with sums in F32.
struct CardRates {
  std::string_view card;  // its name in the card table
  double bf16 = 0;        // FLOP a second
  double fp8 = 0;         // FP8 with FP8, by a data sheet
  double fp4 = 0;         // NVFP4 with NVFP4
};
/// The cards that have a rate for 4-bit codes.
std::span<const CardRates> card_rates();
/// A part of a card has its part of the rates. Nothing for a card that has no row.
std::optional<CardRates> rates_of(const PlannedCard& card);

/// The shares of the rate of products that the steps of a prompt reach.
struct KernelShares {
  double linears = 0;
  double experts = 0;
  double attention = 0;
  double delta_rule = 0;
};
inline constexpr KernelShares kWarpgroupShares = {0.70, 0.53, 0.52, 0.074};
inline constexpr KernelShares kWarpShares = {0.32, 0.24, 0.28, 0.074};

/// FLOPs of a prompt token in a prompt of `context` tokens, on average.
struct ProductWork {
  double nvfp4 = 0;  // products with matrices in NVFP4
  double fp8 = 0;
  double others = 0;
};
struct PromptWork {
  ProductWork experts;
  ProductWork linears;
  double attention = 0;
  double delta_rule = 0;
  double row_bytes = 0;  // norms, routing, convolutions: what reads and writes rows
};
PromptWork prompt_work(const ModelConfig& config, const std::vector<WeightRow>& rows,
                       int64_t context);

/// FLOP a second of products with matrices in each format, and of all else in BF16.
struct ProductRates {
  double bf16 = 0;
  double fp8 = 0;
  double nvfp4 = 0;
};
/// Seconds for a prompt token.
double prompt_seconds(const PromptWork& work, const ProductRates& rates, const KernelShares& shares,
                      double bandwidth_bytes);

/// The share of its bandwidth that a step of so many streams reached on an H100.
double step_share(int64_t streams);

struct ExpectedRow {
  int64_t streams = 0;     // that generate; 0: a prompt of `tokens`
  int64_t tokens = 0;      // of context, or of the prompt
  double weight_only = 0;  // tokens a second with weights widened to BF16
  double fp8 = 0;     // the same with products of FP8 codes, where the card's kernels make them
  double native = 0;  // the same with products of 4-bit codes, and weights in FP8 widened
};
inline constexpr int64_t kExpectedPrompt = 8192;
inline constexpr int64_t kExpectedStreams[] = {1, 8, 32, 64};

/// Generation of kExpectedStreams at `load.context`, then a prompt of kExpectedPrompt tokens; empty
/// for a card without a row of rates. `load.streams` is not read.
std::vector<ExpectedRow> expected_speeds(const ModelConfig& config,
                                         const std::vector<WeightRow>& rows, const StepLoad& load,
                                         const PlannedCard& card);

}  // namespace nibble
