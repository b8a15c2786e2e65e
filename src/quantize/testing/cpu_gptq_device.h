// For tests: a GptqDevice that computes on the CPU, and a layer runner that has one and keeps sums
// for it, as a card does.
#pragma once

#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "model/layer_runner.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble::test {

/// Rows of FP8 have one scale each here.
class CpuGptqDevice final : public GptqDevice {
 public:
  explicit CpuGptqDevice(int64_t cols_max = int64_t{1} << 20) : cols_max_(cols_max) {}
  std::string description() const override { return "the CPU as a device"; }
  bool takes(int64_t cols) const override { return cols <= cols_max_; }

  std::unique_ptr<FactorisedInput> factorise(const GptqMoment& moment) override {
    ++factorised;
    if (moment.place == MomentPlace::device) ++kept;
    InputStatistics statistics(moment.cols, SecondMoment::full);
    statistics.moment.assign(moment.products, moment.products + moment.cols * moment.cols);
    statistics.tokens = 1;
    auto factor = make_gptq_factor(statistics);
    if (!factor) return nullptr;
    CHECK(std::ranges::equal(factor->order, moment.order), "another order");
    return std::make_unique<Input>(std::move(statistics), std::move(*factor));
  }

  std::atomic<int> factorised = 0;
  std::atomic<int> kept = 0;  // with sums that a runner kept

 private:
  class Input final : public FactorisedInput {
   public:
    Input(InputStatistics statistics, GptqFactor factor)
        : statistics_(std::move(statistics)), factor_(std::move(factor)) {}
    void round_nvfp4(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                     std::span<uint8_t> scales) override {
      make_gptq_rounder(statistics_, best_round_path())->round(weights, exponent, codes, scales);
    }
    void round_fp8(const Fp8GptqRows& rows, std::span<uint8_t> codes) override {
      std::vector<float> scales;
      const int64_t blocks = statistics_.cols / 16;
      for (int64_t row = 0; row < rows.weights.shape[0]; ++row) {
        const std::span<const float> own =
            rows.scales.subspan(static_cast<size_t>(row * blocks), static_cast<size_t>(blocks));
        for (const float scale : own) CHECK(scale == own[0], "two scales in row ", row);
        scales.push_back(std::ldexp(own[0], rows.exponents[static_cast<size_t>(row)]));
      }
      Fp8GptqRounder(factor_, best_round_path())
          .round(rows.weights, {.values = scales, .per_row = 1}, codes);
    }

   private:
    InputStatistics statistics_;
    GptqFactor factor_;
  };

  int64_t cols_max_;
};

/// Another runner's layers, whose full sums stay here.
class KeepingRunner final : public LayerRunner {
 public:
  explicit KeepingRunner(std::unique_ptr<LayerRunner> runner) : runner_(std::move(runner)) {}
  std::string_view name() const override { return runner_->name(); }
  std::string description() const override { return "keeps sums"; }
  Result<void> start(LayerSamples samples) override {
    gptq_cols = samples.gptq_cols;
    return runner_->start(std::move(samples));
  }
  Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                         const LayerWatch& watch) override {
    Taps own;
    for (const auto& [module, wanted] : taps.all()) own.want(module, wanted.cols, wanted.kind);
    TRY(runner_->run_layer(layer, hidden, own, watch));
    for (const auto& [module, sums] : own.all()) keep(sums, *taps.find(module));
    return {};
  }
  Result<void> run_head(InputStatistics& head, const LayerWatch& watch) override {
    InputStatistics own(head.cols, head.kind);
    TRY(runner_->run_head(own, watch));
    keep(own, head);
    return {};
  }
  GptqDevice* gptq_device() override { return &device; }
  bool leaves_cores_free() const override { return true; }

  CpuGptqDevice device;
  int64_t gptq_cols = 0;

 private:
  static void keep(const InputStatistics& sums, InputStatistics& to) {
    to.amax = sums.amax;
    to.tokens = sums.tokens;
    to.bad_tokens = sums.bad_tokens;
    if (to.place == MomentPlace::host) {
      to.moment = sums.moment;
      return;
    }
    for (int64_t i = 0; i < sums.cols; ++i) to.moment[static_cast<size_t>(i)] = sums.square(i);
    const auto held = std::make_shared<std::vector<double>>(sums.moment);
    to.kept = std::shared_ptr<const double>(held, held->data());
  }

  std::unique_ptr<LayerRunner> runner_;
};

}  // namespace nibble::test
