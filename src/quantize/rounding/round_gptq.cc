// GPTQ (arXiv 2210.17323): the columns of a row are rounded in turn, and the error of each is
// spread over the columns still to come, in the way that changes the output least on the inputs
// seen. Blocks of 16 come in descending order of their inputs' squares; a block's scale is searched
// when its turn comes, on the weights as corrected so far (errors weighted by 1/U_jj^2, what each
// costs), and then stands. The stock format is all that is written.
//
// With H the damped second moment in the order of the columns, U is upper triangular and
// U^T U = H^-1: the error e_j = (w_j - q_j) / U_jj is taken off w_k as e_j U_jk for all k > j.
// F32, each weight corrected in the order of the columns; no step depends on the threads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/weighted_block.inl.h"

namespace nibble {
namespace {

/// Square of doubles, row by row.
struct Square {
  size_t n;
  std::vector<double> values;
  double* row(size_t i) { return values.data() + i * n; }
  const double* row(size_t i) const { return values.data() + i * n; }
};

/// H = M M^T with M upper triangular, in place of the upper triangle of H; from the last column to
/// the first. False if H is not positive definite.
bool factorise(Square& h) {
  const size_t n = h.n;
  for (size_t k = n; k-- > 0;) {
    const double pivot = h.row(k)[k];
    if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
    const double root = std::sqrt(pivot);
    std::vector<double> column(k + 1);  // of M, above the diagonal and on it
    for (size_t i = 0; i < k; ++i) column[i] = h.row(i)[k] / root;
    column[k] = root;
    for (size_t i = 0; i <= k; ++i) h.row(i)[k] = column[i];
    for (size_t i = 0; i < k; ++i) {
      double* row = h.row(i);
      for (size_t j = i; j < k; ++j) row[j] -= column[i] * column[j];
    }
  }
  return true;
}

/// The inverse of an upper triangular matrix, in place: from the last row to the first, row i is
/// (e_i - sum over k > i of M_ik row_k) / M_ii.
void invert(Square& m) {
  const size_t n = m.n;
  std::vector<double> sum(n);
  for (size_t i = n; i-- > 0;) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t k = i + 1; k < n; ++k) {
      const double factor = m.row(i)[k];
      const double* row = m.row(k);
      for (size_t j = k; j < n; ++j) sum[j] -= factor * row[j];
    }
    const double pivot = 1.0 / m.row(i)[i];
    sum[i] = 1.0;
    for (size_t j = i; j < n; ++j) m.row(i)[j] = sum[j] * pivot;
  }
}

/// Blocks of 16 columns, those with the largest inputs first; equal ones as they are.
std::vector<int64_t> block_order(const InputStatistics& statistics) {
  const auto blocks = static_cast<size_t>(statistics.cols / 16);
  std::vector<double> squares(blocks);
  for (int64_t i = 0; i < statistics.cols; ++i)
    squares[static_cast<size_t>(i / 16)] += statistics.square(i);
  std::vector<int64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return squares[static_cast<size_t>(a)] > squares[static_cast<size_t>(b)];
  });
  return order;
}

constexpr int kTile = 8;  // rows worked on together: the factor is read once for all of them

/// Up to kTile rows in the order of the blocks, and the factor they are corrected with.
struct Tile {
  int rows;
  const float* original;  // [rows, K]
  float* u;               // [rows, K]: the same, corrected during the work
  const float* factor;    // U [K, K]
  const float* weights;   // 1 / U_jj^2 over its mean
  const int64_t* order;   // [K/16]
  int64_t cols;
  uint8_t* codes;   // [rows, K/2]
  uint8_t* scales;  // [rows, K/16]
};

/// Rounds a block weight by weight, correcting those after it; errors over U_jj go to `errors`.
NIBBLE_INLINE void feed_back(float* u, const float* factor, int64_t stride, float scale,
                             float* errors, float* rounded) {
  for (int j = 0; j < 16; ++j) {
    float x = std::fabs(u[j]) / scale;
    x = x < 6.0F ? x : 6.0F;
    const float offset = x < 2.0F ? 0x1p22F : (x < 4.0F ? 0x1p23F : 0x1p24F);
    const float q = (x + offset) - offset;
    rounded[j] = std::copysign(q * scale, u[j]);
    errors[j] = (u[j] - rounded[j]) / factor[j * stride + j];
    for (int k = j + 1; k < 16; ++k) u[k] -= errors[j] * factor[j * stride + k];
  }
}

/// Adds the errors of a rounded block against the weights themselves.
template <int W>
NIBBLE_INLINE void add_true_errors(const float* original, const float* rounded,
                                   RoundStatistics& statistics) {
  const detail::SearchBlock block = detail::search_block<W>(original);
  RoundStatistics plain;
  detail::add_errors<W>(block, detail::code_nearest(block.amax / 6.0F), plain);
  statistics.weight_squares += plain.weight_squares;
  statistics.amax_error_squares += plain.amax_error_squares;
  float error = 0;
  for (int i = 0; i < 16; ++i) error += (original[i] - rounded[i]) * (original[i] - rounded[i]);
  statistics.error_squares += static_cast<double>(error);
}

/// The columns after the block at `b`, corrected by its 16 errors one after the other.
template <int W>
NIBBLE_INLINE void correct_rest(const Tile& tile, int64_t b, const float* errors) {
  for (int64_t k = b + 16; k < tile.cols; k += W) {
    detail::Floats<W> factor[16];
    for (int j = 0; j < 16; ++j)
      std::memcpy(&factor[j], tile.factor + (b + j) * tile.cols + k, sizeof factor[j]);
    for (int r = 0; r < tile.rows; ++r) {
      detail::Floats<W> rest;
      std::memcpy(&rest, tile.u + r * tile.cols + k, sizeof rest);
      for (int j = 0; j < 16; ++j) rest -= factor[j] * errors[r * 16 + j];
      std::memcpy(tile.u + r * tile.cols + k, &rest, sizeof rest);
    }
  }
}

template <int W>
NIBBLE_INLINE void round_tile(const Tile& tile, RoundStatistics& statistics) {
  for (int64_t b = 0; b < tile.cols; b += 16) {
    const int64_t at = tile.order[b / 16];
    alignas(64) float errors[kTile * 16], rounded[16];
    for (int r = 0; r < tile.rows; ++r) {
      float* u = tile.u + r * tile.cols + b;
      const float* original = tile.original + r * tile.cols + b;
      const detail::SearchBlock block = detail::search_block<W>(u);
      const int code = detail::diagonal_code<W>(block, tile.weights + b);
      feed_back(u, tile.factor + b * tile.cols + b, tile.cols,
                detail::kBlockTables.scale[static_cast<size_t>(code)], errors + r * 16, rounded);
      const uint64_t packed =
          detail::encode_block<W>(rounded, detail::search_block<W>(original), code, statistics);
      std::memcpy(tile.codes + r * (tile.cols / 2) + at * 8, &packed, 8);
      tile.scales[r * (tile.cols / 16) + at] =
          block.amax == 0.0F ? kZeroBlockScale : static_cast<uint8_t>(code);
      add_true_errors<W>(original, rounded, statistics);
    }
    correct_rest<W>(tile, b, errors);
  }
}

struct TileJob {
  const Tile& tile;
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    round_tile<W>(tile, statistics);
  }
};

class GptqRounder final : public RowRounder {
 public:
  GptqRounder(std::vector<int64_t> order, const Square& inverse, RoundPath path)
      : cols_(static_cast<int64_t>(inverse.n)),
        path_(path),
        order_(std::move(order)),
        factor_(inverse.values.begin(), inverse.values.end()) {
    double total = 0;
    for (size_t i = 0; i < inverse.n; ++i) {
      const double u = inverse.row(i)[i];
      total += 1.0 / (u * u);
    }
    for (size_t i = 0; i < inverse.n; ++i) {
      const double u = inverse.row(i)[i];
      weights_.push_back(static_cast<float>(static_cast<double>(inverse.n) / (u * u) / total));
    }
  }

  RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                        std::span<uint8_t> scales) const override;

 private:
  /// One row over 2^exponent, its blocks in order.
  void load(const TensorView& weights, int64_t row, int exponent, float* out) const;

  int64_t cols_;
  RoundPath path_;
  std::vector<int64_t> order_;
  std::vector<float> factor_;   // U; zeros below its diagonal
  std::vector<float> weights_;  // of the squared errors in a block's search
};

void GptqRounder::load(const TensorView& weights, int64_t row, int exponent, float* out) const {
  std::vector<float> u(static_cast<size_t>(cols_));
  detail::load_row(weights, row, std::ldexp(1.0F, -exponent), u);
  for (size_t b = 0; b < order_.size(); ++b)
    std::copy_n(&u[static_cast<size_t>(order_[b] * 16)], 16, out + b * 16);
}

RoundStatistics GptqRounder::round(const TensorView& weights, int exponent,
                                   std::span<uint8_t> codes, std::span<uint8_t> scales) const {
  CHECK(weights.shape[1] == cols_, "columns ", weights.shape[1], " of ", cols_);
  const int64_t rows = weights.shape[0];
  std::vector<float> original(static_cast<size_t>(kTile * cols_)), u(original.size());
  RoundStatistics total;
  for (int64_t n = 0; n < rows; n += kTile) {
    const int count = static_cast<int>(std::min<int64_t>(kTile, rows - n));
    for (int r = 0; r < count; ++r)
      load(weights, n + r, exponent, &original[static_cast<size_t>(r * cols_)]);
    u = original;
    const Tile tile = {.rows = count,
                       .original = original.data(),
                       .u = u.data(),
                       .factor = factor_.data(),
                       .weights = weights_.data(),
                       .order = order_.data(),
                       .cols = cols_,
                       .codes = codes.data() + n * (cols_ / 2),
                       .scales = scales.data() + n * (cols_ / 16)};
    detail::run_on(path_, TileJob{tile, total});
  }
  total.scale_by(std::ldexp(1.0, 2 * exponent));
  return total;
}

/// The damped second moment, columns in the order of the blocks.
Square damped(const InputStatistics& statistics, const std::vector<int64_t>& order,
              double damping) {
  const auto n = static_cast<size_t>(statistics.cols);
  const double unit = mean_square(statistics) * static_cast<double>(statistics.tokens);
  Square h = {.n = n, .values = std::vector<double>(n * n)};
  const auto column = [&](size_t i) { return order[i / 16] * 16 + static_cast<int64_t>(i % 16); };
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j)
      h.row(i)[j] = statistics.product(column(i), column(j)) / unit + (i == j ? damping : 0.0);
  return h;
}

}  // namespace

std::unique_ptr<RowRounder> make_gptq_rounder(const InputStatistics& statistics, RoundPath path) {
  const std::vector<int64_t> order = block_order(statistics);
  for (const double damping : {kDamping, 10 * kDamping, 100 * kDamping}) {
    Square h = damped(statistics, order, damping);
    if (!factorise(h)) continue;
    invert(h);
    return std::make_unique<GptqRounder>(order, h, path);
  }
  return nullptr;
}

}  // namespace nibble
