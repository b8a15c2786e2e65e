// For tests: a GradientDevice that computes on the CPU, with passes and groups of its own.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "model/devices/gradient_device.h"
#include "quantize/gradient/gradient_squares.h"
#include "quantize/gradient/head_gradient.h"
#include "quantize/gradient/layer_gradient.h"
#include "tensor/float_formats.h"

namespace nibble::test {

class CpuGradientDevice final : public GradientDevice {
 public:
  /// `hidden`: the embeddings of all samples.
  CpuGradientDevice(const Weights& weights, const ModelConfig& config, std::vector<uint16_t> hidden,
                    int64_t group_rows, PassLimits limits)
      : weights_(weights),
        config_(config),
        hidden_(std::move(hidden)),
        group_rows_(group_rows),
        limits_(limits) {}

  std::string description() const override { return "the CPU as a device"; }
  int64_t group_rows() const override { return group_rows_; }
  PassLimits pass_limits() const override { return limits_; }

  Result<void> begin(int64_t first_row, int64_t rows) override {
    ++groups;
    const auto hidden = std::span(hidden_).subspan(static_cast<size_t>(first_row * config_.hidden),
                                                   static_cast<size_t>(rows * config_.hidden));
    states_.assign(static_cast<size_t>(config_.layer_count()) + 1,
                   gradient::Rows(rows, config_.hidden));
    gradients_.assign(2, gradient::Rows(rows, config_.hidden));
    std::ranges::transform(hidden, states_[0].values.begin(), bf16_to_float);
    return {};
  }
  Result<void> open(int layer, int) override {
    open_ = static_cast<size_t>(layer);
    if (layer == config_.layer_count()) {
      head_ = TRY(gradient::HeadGradient::load(weights_, config_));
    } else {
      layer_ = TRY(gradient::LayerGradient::load(weights_, config_, layer));
    }
    return {};
  }
  void forward(const GradientPass& pass) override {
    ++*passes;
    gradient::LayerGradient::Trace trace;
    put(layer_.run(rows_of(states_[open_], pass), work(pass, {}), trace), pass, states_[open_ + 1]);
  }
  void head(const GradientPass& pass, int draw, std::span<const double> random,
            const SquaresSeen& seen) override {
    const auto choose = [&](int64_t row, std::span<const float> probabilities) {
      double sum = 0;
      size_t y = 0;
      for (; y + 1 < probabilities.size(); ++y)
        if (random[static_cast<size_t>(row)] < (sum += static_cast<double>(probabilities[y])))
          break;
      return static_cast<int32_t>(y);
    };
    put(head_.back(rows_of(states_[open_], pass), choose, work(pass, seen)), pass,
        gradients_[static_cast<size_t>(draw)]);
  }
  void backward(const GradientPass& pass, int draw, const SquaresSeen& seen) override {
    gradient::Rows& dh = gradients_[static_cast<size_t>(draw)];
    gradient::LayerGradient::Trace trace;
    layer_.run(rows_of(states_[open_], pass), work(pass, {}), trace);
    put(layer_.back(trace, rows_of(dh, pass), work(pass, seen)), pass, dh);
  }

  int groups = 0;
  std::shared_ptr<int> passes = std::make_shared<int>();  // forward

 private:
  gradient::Pass work(const GradientPass& pass, const SquaresSeen& seen) {
    gradient::Pass out{.samples = {pass.samples.begin(), pass.samples.end()}, .threads = threads_};
    if (seen)
      out.seen = [seen](const gradient::DenseLinear& linear, const gradient::Rows& input,
                        const gradient::Rows& dy, std::span<const int32_t> rows) {
        const auto lengths = [](const gradient::Rows& x) {
          std::vector<double> out;
          for (int64_t r = 0; r < x.count; ++r) {
            double sum = 0;
            for (int64_t i = 0; i < x.width; ++i)
              sum += static_cast<double>(x.row(r)[i]) * static_cast<double>(x.row(r)[i]);
            out.push_back(sum);
          }
          return out;
        };
        seen({.linear = linear.source(),
              .rows = rows,
              .inputs = lengths(input),
              .gradients = lengths(dy)});
      };
    return out;
  }
  static gradient::Rows rows_of(const gradient::Rows& all, const GradientPass& pass) {
    gradient::Rows rows(pass.rows(), all.width);
    std::copy_n(all.row(pass.first_row), rows.values.size(), rows.values.begin());
    return rows;
  }
  static void put(const gradient::Rows& rows, const GradientPass& pass, gradient::Rows& all) {
    std::ranges::copy(rows.values, all.row(pass.first_row));
  }

  const Weights& weights_;
  const ModelConfig& config_;
  std::vector<uint16_t> hidden_;
  int64_t group_rows_;
  PassLimits limits_;
  ThreadPool threads_{1};
  size_t open_ = 0;
  gradient::LayerGradient layer_;
  gradient::HeadGradient head_;
  std::vector<gradient::Rows> states_, gradients_;
};

}  // namespace nibble::test
