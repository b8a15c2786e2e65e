// A product goes tile by tile: a panel of B's columns is packed once and met by blocks of A's rows.
#include "quantize/gradient/dense_linear.h"

#include <algorithm>

#include "base/check.h"
#include "quantize/rounding/round_path.inl.h"

namespace nibble::gradient {
namespace {

constexpr int64_t kTileRows = 4;     // of A, in registers with a panel's columns
constexpr int64_t kBlockRows = 256;  // of A, one unit of work with a panel

/// out [M, N] += a [M, K] B, where B is `b` [K, N] or the transpose of `b` [N, K].
struct Product {
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
  int64_t m = 0, n = 0, k = 0;
  enum class Layout : uint8_t { straight, transposed } layout = Layout::straight;
};

/// Columns [begin, begin + 2 W) of B as [K, 2 W]; columns beyond N are zeros.
template <int W>
void pack(const Product& p, int64_t begin, std::vector<float>& panel) {
  constexpr int64_t kColumns = 2 * W;
  const int64_t count = std::min(kColumns, p.n - begin);
  panel.assign(static_cast<size_t>(p.k * kColumns), 0.0F);
  for (int64_t i = 0; i < p.k; ++i)
    for (int64_t j = 0; j < count; ++j)
      panel[static_cast<size_t>(i * kColumns + j)] = p.layout == Product::Layout::straight
                                                         ? p.b[i * p.n + begin + j]
                                                         : p.b[(begin + j) * p.k + i];
}

/// Rows [r, r + count) of the product with a panel.
template <int W>
NIBBLE_INLINE void multiply_rows(const Product& p, const float* panel, int64_t r, int64_t count,
                                 float (*sums)[2 * W]) {
  using Floats = detail::Floats<W>;
  const float* a[kTileRows];
  for (int64_t t = 0; t < kTileRows; ++t) a[t] = p.a + (r + std::min(t, count - 1)) * p.k;
  Floats low[kTileRows] = {}, high[kTileRows] = {};
  for (int64_t i = 0; i < p.k; ++i) {
    Floats b0, b1;
    std::memcpy(&b0, panel + i * 2 * W, sizeof b0);
    std::memcpy(&b1, panel + i * 2 * W + W, sizeof b1);
    for (int64_t t = 0; t < kTileRows; ++t) {
      low[t] += a[t][i] * b0;
      high[t] += a[t][i] * b1;
    }
  }
  for (int64_t t = 0; t < kTileRows; ++t) {
    std::memcpy(sums[t], &low[t], sizeof low[t]);
    std::memcpy(sums[t] + W, &high[t], sizeof high[t]);
  }
}

/// Units [begin, end) of the work: panel after panel, of each all blocks of rows.
struct Units {
  const Product& p;
  int64_t begin, end;

  template <int W>
  NIBBLE_INLINE void run() const {
    const int64_t blocks = (p.m + kBlockRows - 1) / kBlockRows;
    std::vector<float> panel;
    int64_t packed = -1;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit / blocks * 2 * W;
      if (packed != column) pack<W>(p, column, panel);
      packed = column;
      const int64_t columns = std::min<int64_t>(2 * W, p.n - column);
      const int64_t first = unit % blocks * kBlockRows, last = std::min(first + kBlockRows, p.m);
      float sums[kTileRows][2 * W];
      for (int64_t r = first; r < last; r += kTileRows) {
        const int64_t count = std::min(kTileRows, last - r);
        multiply_rows<W>(p, panel.data(), r, count, sums);
        for (int64_t t = 0; t < count; ++t)
          for (int64_t j = 0; j < columns; ++j) p.out[(r + t) * p.n + column + j] += sums[t][j];
      }
    }
  }
};

int64_t lanes(RoundPath path) {
  return path == RoundPath::avx512 ? 16 : path == RoundPath::avx2 ? 8 : 4;
}

void multiply(const Product& p, ThreadPool& threads) {
  if (p.m == 0) return;
  const RoundPath path = best_round_path();
  const int64_t columns = 2 * lanes(path);
  const int64_t units = (p.n + columns - 1) / columns * ((p.m + kBlockRows - 1) / kBlockRows);
  threads.parallel_for(static_cast<size_t>(units), 1, [&](size_t begin, size_t end) {
    detail::run_on(
        path,
        Units{.p = p, .begin = static_cast<int64_t>(begin), .end = static_cast<int64_t>(end)});
  });
}

}  // namespace

Result<DenseLinear> DenseLinear::load(const Weights& weights, const LinearSource& source) {
  DenseLinear linear;
  linear.source_ = source;
  if (!source.present()) return linear;
  const LinearWeight stored = TRY(weights.load(source));
  linear.values_.resize(static_cast<size_t>(source.rows * source.cols));
  dequantize_rows(stored, 0, source.rows, linear.values_.data());
  return linear;
}

DenseLinear DenseLinear::of(LinearSource source, std::vector<float> values) {
  CHECK(std::ssize(values) == source.rows * source.cols, source.module, ": ", values.size());
  DenseLinear linear;
  linear.source_ = std::move(source);
  linear.values_ = std::move(values);
  return linear;
}

Rows DenseLinear::apply(const Rows& x, ThreadPool& threads) const {
  CHECK(x.width == source_.cols && !values_.empty(), source_.module, ": input of ", x.width);
  Rows y(x.count, source_.rows);
  multiply({.a = x.values.data(),
            .b = values_.data(),
            .out = y.values.data(),
            .m = x.count,
            .n = source_.rows,
            .k = source_.cols,
            .layout = Product::Layout::transposed},
           threads);
  return y;
}

void DenseLinear::add_back(const Rows& x, const Rows& dy, Rows& dx, const Pass& pass,
                           std::span<const int32_t> rows) const {
  CHECK(dy.width == source_.rows && dx.width == source_.cols && dy.count == dx.count,
        source_.module, ": gradient of ", dy.width);
  if (pass.seen) pass.seen(*this, x, dy, rows);
  multiply({.a = dy.values.data(),
            .b = values_.data(),
            .out = dx.values.data(),
            .m = dy.count,
            .n = source_.cols,
            .k = source_.rows},
           pass.threads);
}

}  // namespace nibble::gradient
