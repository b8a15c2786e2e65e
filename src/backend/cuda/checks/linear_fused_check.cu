// The norms and the convolution that products of generation arithmetic make themselves, against the
// kernels that do the same apart.
#include <algorithm>
#include <string>

#include "backend/cuda/checks/linear_outputs.h"
#include "backend/cuda/checks/linear_weights.h"
#include "backend/cuda/ops/norm/norm.h"

namespace nibble::checks {

using namespace nibble::cuda;

void check_fused_norms(Tally& tally, int columns, uint32_t seed) {
  const Launcher launcher = launcher_of(Kernels::native);
  const auto cols = static_cast<int>(padded_columns(columns));
  const int64_t x_stride = cols + 64;
  const DeviceLinear router = make_weight(Format::bf16, FactorLayout::none, 250, cols, seed);
  const DeviceLinear gate = make_weight(Format::bf16, FactorLayout::none, 1, cols, seed + 1);
  auto* h = device_array<float>(int64_t{kRowsMax} * columns);
  auto* norm = device_array<float>(columns);
  fill_normal(h, int64_t{kRowsMax} * columns, seed + 2, 3.0F);
  fill_normal(norm, columns, seed + 3, 0.1F, 1.0F);
  uint16_t* x[2];
  for (uint16_t*& rows : x) {
    rows = device_array<uint16_t>(x_stride * kRowsMax);
    must(cudaMemset(rows, 0, static_cast<size_t>(2 * x_stride * kRowsMax)), "padding");
  }
  add_norm({.rows = kRowsMax - 1,
            .hidden = columns,
            .h = h,
            .norm = norm,
            .x = x[0],
            .x_stride = x_stride,
            .eps = 1e-6F},
           launcher);
  LinearArgs plain{.count = 2, .x = x[0], .x_stride = x_stride};
  plain.outputs[0].weight = router;
  plain.outputs[1].weight = gate;
  LinearArgs normed = plain;
  normed.norm = {
      .h = h, .weight = norm, .columns = columns, .eps = 1e-6F, .x = x[1], .x_stride = x_stride};
  int differing = 0;
  for (const int rows : {2, 3, 8, 9, 16, 31, 33, 56, 57, 64}) {
    plain.rows = normed.rows = rows;
    normed.outputs[1].finish = plain.outputs[1].finish = rows == 9 ? Finish::add : Finish::store;
    must(cudaMemset(x[1], 0, static_cast<size_t>(2 * x_stride * kRowsMax)), "x");
    const LinearOutputs want = product(linear, plain, launcher, 1.0F);
    const LinearOutputs found = product(linear, normed, launcher, 1.0F);
    const auto left = to_host(x[1], x_stride * kRowsMax);
    const auto wanted = to_host(x[0], x_stride * rows);
    const bool same = same_head(found.main, want.main) && same_head(found.beside, want.beside) &&
                      std::equal(wanted.begin(), wanted.end(), left.begin()) &&
                      std::all_of(left.begin() + rows * x_stride, left.end(),
                                  [](uint16_t bits) { return bits == 0; });
    if (same) continue;
    ++differing;
    tally.print("  %d rows differ", rows);
  }
  tally.check(differing == 0,
              ("norms of " + std::to_string(columns) + " columns, to the bit").c_str(), differing);
  free_weight(router);
  free_weight(gate);
  for (uint16_t* rows : x) cudaFree(rows);
  cudaFree(h);
  cudaFree(norm);
}

void check_fused_convolution(Tally& tally, uint32_t seed) {
  const Launcher launcher = launcher_of(Kernels::native);
  constexpr int kHidden = 2048;
  constexpr int kChannels = 8192;
  constexpr int kTaps = 4;
  constexpr int kRows = 7;
  const DeviceLinear w = make_weight(Format::fp8, FactorLayout::scalar, kChannels, kHidden, seed);
  auto* h = device_array<float>(kRows * kHidden);
  auto* norm = device_array<float>(kHidden);
  fill_normal(h, kRows * kHidden, seed + 1, 1.0F);
  fill_normal(norm, kHidden, seed + 2, 0.1F, 1.0F);
  auto* x = device_array<uint16_t>(kRows * kHidden);
  add_norm({.rows = kRows,
            .hidden = kHidden,
            .h = h,
            .norm = norm,
            .x = x,
            .x_stride = kHidden,
            .eps = 1e-6F},
           launcher);
  auto* taps = device_array<float>(kChannels * kTaps);
  fill_normal(taps, kChannels * kTaps, seed + 3, 0.5F);
  auto* state = device_array<float>(kRows * 3 * kChannels);
  fill_normal(state, kRows * 3 * kChannels, seed + 4, 1.0F);
  const auto past = to_host(state, kRows * 3 * kChannels);
  const auto weights = to_host(taps, kChannels * kTaps);
  std::vector<int32_t> ones(kRows, 1), none(kRows, -1), slots(kRows);
  for (int i = 0; i < kRows; ++i) slots[static_cast<size_t>(i)] = kRows - 1 - i;
  LinearArgs args{.count = 1, .rows = kRows, .x = x, .x_stride = kHidden};
  args.outputs[0].weight = w;
  const std::vector<float> raw = product(linear, args, launcher, 0.0F).main;
  args.rows = 1;
  args.norm = {.h = h, .weight = norm, .columns = kHidden, .eps = 1e-6F};
  const bool same = same_head(product(linear, args, launcher, 0.0F).main, raw);
  tally.check(same, "a row that is normed by its readers, to the bit", same ? 0.0 : 1.0);
  args.rows = kRows;
  args.norm = {};
  args.outputs[0].finish = Finish::convolve;
  args.convolve = {.batch = {.rows = kRows,
                             .sequences = kRows,
                             .snapshot_slot = to_device(none),
                             .row_count = to_device(ones),
                             .state_in = to_device(slots),
                             .state_out = to_device(slots)},
                   .state = {.conv = state, .slot_stride = 3 * kChannels},
                   .weights = taps,
                   .taps = kTaps,
                   .channels = kChannels};
  const std::vector<float> found = product(linear, args, launcher, 0.0F).main;
  const auto left = to_host(state, kRows * 3 * kChannels);
  Error error;
  int wrong = 0;
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kChannels; ++c) {
      const int64_t slot = (kRows - 1 - r) * 3 * kChannels;
      const auto input = [&](int j) {
        return j < 3 ? past[static_cast<size_t>(slot + j * kChannels + c)]
                     : raw[static_cast<size_t>(r * kChannels + c)];
      };
      double sum = 0.0;
      for (int j = 0; j < kTaps; ++j)
        sum += double{weights[static_cast<size_t>(c * kTaps + j)]} * input(j);
      error.add(found[static_cast<size_t>(r * kChannels + c)], silu_of(sum));
      for (int j = 0; j < 3; ++j)
        wrong += left[static_cast<size_t>(slot + j * kChannels + c)] != input(j + 1);
    }
  tally.check(error.value() < 1e-5, "convolved", error.value());
  tally.check(wrong == 0, "what the convolution leaves", wrong);
}

}  // namespace nibble::checks
