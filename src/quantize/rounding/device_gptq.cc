// The device chooses codes and scales; the sums of errors for the report are taken here, of the
// weights and of what the codes stand for, in the order of round_gptq.cc.
#include "quantize/rounding/device_gptq.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quantize/rounding/gptq_factor.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/weighted_block.inl.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

/// An input that a device has factorised, and the order of its blocks.
struct DeviceInput {
  std::vector<int64_t> order;
  std::unique_ptr<FactorisedInput> factorised;  // nullptr: it cannot be
};

DeviceInput factorise(const InputStatistics& statistics, GptqDevice& device) {
  DeviceInput out{.order = block_order(statistics), .factorised = {}};
  out.factorised = device.factorise(
      {.cols = statistics.cols,
       .place = statistics.place,
       .products = statistics.place == MomentPlace::device ? statistics.kept.get()
                                                           : statistics.moment.data(),
       .unit = mean_square(statistics) * static_cast<double>(statistics.tokens),
       .order = out.order,
       .dampings = kDampings});
  return out;
}

/// Rows of one tile, rounded.
struct RoundedTile {
  TensorView weights;  // [N, K]
  int exponent;
  const uint8_t* codes;   // [N, K/2]
  const uint8_t* scales;  // [N, K/16]
  const std::vector<int64_t>& order;
};

struct StatisticsJob {
  const RoundedTile& tile;
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    const int64_t rows = tile.weights.shape[0], cols = tile.weights.shape[1];
    std::vector<float> original(static_cast<size_t>(rows * cols));
    const float unit = std::ldexp(1.0F, -tile.exponent);
    for (int64_t row = 0; row < rows; ++row)
      detail::load_row(
          tile.weights, row, unit,
          std::span(original).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
    for (const int64_t block : tile.order)
      for (int64_t row = 0; row < rows; ++row)
        add_block<W>(original.data() + row * cols + block * 16, row * (cols / 16) + block);
  }

  template <int W>
  NIBBLE_INLINE void add_block(const float* original, int64_t block) const {
    alignas(64) float rounded[16];
    const uint8_t* codes = tile.codes + block * 8;
    const float scale = detail::kBlockTables.scale[tile.scales[block]];
    uint64_t packed;
    std::memcpy(&packed, codes, sizeof packed);
    for (int i = 0; i < 16; ++i)
      rounded[i] = e2m1_to_float(static_cast<uint8_t>(packed >> (4 * i) & 15U)) * scale;
    const bool zero = detail::block_amax<W>(original) == 0.0F;
    statistics.zero_blocks += zero;
    statistics.flushed_blocks += packed == 0 && !zero;
    detail::add_true_errors<W>(original, rounded, statistics);
  }
};

class DeviceGptqRounder final : public RowRounder {
 public:
  DeviceGptqRounder(DeviceInput input, RoundPath path) : input_(std::move(input)), path_(path) {}

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override {
    ThreadPool alone(1);
    return round_block(weights, exponent, {codes, scales}, alone);
  }

  RoundStatistics round_block(const TensorView& weights, int exponent, const RoundedBytes& out,
                              ThreadPool& threads) const override {
    input_.factorised->round_nvfp4(weights, exponent, out.codes, out.scales);
    return sum_by_tiles(weights, out, threads,
                        [&](const TensorView& rows, const RoundedBytes& part) {
                          const RoundedTile tile = {.weights = rows,
                                                    .exponent = exponent,
                                                    .codes = part.codes.data(),
                                                    .scales = part.scales.data(),
                                                    .order = input_.order};
                          RoundStatistics sums;
                          detail::run_on(path_, StatisticsJob{tile, sums});
                          sums.scale_by(std::ldexp(1.0, 2 * exponent));
                          return sums;
                        });
  }

 private:
  DeviceInput input_;
  RoundPath path_;
};

class DeviceFp8Rounder final : public Fp8Rounder {
 public:
  explicit DeviceFp8Rounder(DeviceInput input) : input_(std::move(input)) {}

  double round(const TensorView& weights, const Fp8Scales& scales,
               std::span<uint8_t> codes) const override {
    round_codes(weights, scales, codes);
    double error = 0;
    for (int64_t row = 0; row < weights.shape[0]; ++row)
      error += fp8_squared_error(weights, row, scales, codes.data() + row * weights.shape[1]);
    return error;
  }

  /// The device rounds all bands in one piece.
  std::vector<double> round_bands(const TensorView& weights, const Fp8Scales& scales,
                                  std::span<uint8_t> codes, ThreadPool& threads) const override {
    round_codes(weights, scales, codes);
    return sum_by_bands(weights, codes, threads,
                        [&](const TensorView& band, int64_t first, std::span<uint8_t> part) {
                          double error = 0;
                          for (int64_t row = 0; row < band.shape[0]; ++row)
                            error += fp8_squared_error(band, row, scales.from_row(first),
                                                       part.data() + row * band.shape[1]);
                          return error;
                        });
  }

 private:
  void round_codes(const TensorView& weights, const Fp8Scales& scales,
                   std::span<uint8_t> codes) const {
    const int64_t rows = weights.shape[0], blocks = weights.shape[1] / 16;
    std::vector<int32_t> exponents;
    std::vector<float> over(static_cast<size_t>(rows * blocks));
    for (int64_t row = 0; row < rows; ++row) {
      exponents.push_back(fp8_row_exponent(scales, row, weights.shape[1]));
      fp8_block_scales(scales, row, exponents.back(), input_.order, over.data() + row * blocks);
    }
    input_.factorised->round_fp8({.weights = weights, .exponents = exponents, .scales = over},
                                 codes);
  }

  DeviceInput input_;
};

}  // namespace

std::unique_ptr<RowRounder> make_device_gptq_rounder(const InputStatistics& statistics,
                                                     GptqDevice& device, RoundPath path) {
  DeviceInput input = factorise(statistics, device);
  if (input.factorised == nullptr) return nullptr;
  return std::make_unique<DeviceGptqRounder>(std::move(input), path);
}

std::unique_ptr<Fp8Rounder> make_device_fp8_rounder(const InputStatistics& statistics,
                                                    GptqDevice& device) {
  DeviceInput input = factorise(statistics, device);
  if (input.factorised == nullptr) return nullptr;
  return std::make_unique<DeviceFp8Rounder>(std::move(input));
}

}  // namespace nibble
