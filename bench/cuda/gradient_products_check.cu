// Products forward and backward, those of experts, and the gradient of labels.
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "backend/cuda/ops/gradient/gradient_rows.h"
#include "gradient_check.h"

namespace nibble::bench {
namespace {

using namespace nibble::checks;
using namespace nibble::cuda;
using checks::Error;

constexpr double kProductError = 3e-5;  // rows of 16 bits

/// Matrices [stack][n][k] as the weight store has them: columns of zeros up to a multiple of 256.
struct Matrices {
  int stack, n, k;
  std::vector<uint16_t> values;
  DeviceLinear device;

  Matrices(int count, int rows, int cols, uint32_t seed) : stack(count), n(rows), k(cols) {
    const auto padded = static_cast<int>(padded_columns(cols));
    values.assign(static_cast<size_t>(count) * rows * padded, 0);
    device.rows = rows;
    device.cols = padded;
    for (int64_t row = 0; row < int64_t{count} * rows; ++row)
      for (int i = 0; i < cols; ++i) {
        const float x = 0.05F * hash_normal(seed, row * cols + i);
        values[row * padded + i] = __bfloat16_as_ushort(__float2bfloat16(x));
      }
    device.values = reinterpret_cast<const uint8_t*>(to_device(values));
  }
  double at(int index, int row, int column) const {
    return bf16_value(values[(int64_t{index} * n + row) * device.cols + column]);
  }
};

std::vector<float> normal_numbers(int64_t count, uint32_t seed) {
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[i] = hash_normal(seed, i);
  return x;
}

/// Rows of x on the card in two parts.
SplitRows split_on_card(const std::vector<float>& x, int rows, int cols, int padded) {
  auto* to = device_array<uint16_t>(int64_t{rows} * 2 * padded);
  must(split_rows({to_device(x), rows, cols, padded}, to, nullptr), "split");
  return {to, padded};
}

struct Case {
  const char* name;
  int rows, n, k;
};

/// x W^T stored, then added to itself; dy W by the transposed matrix.
void check_case(Tally& tally, const Case& one, Kernels kernels) {
  const Launcher launcher = launcher_of(kernels);
  gradient_product_prepare(launcher);
  const Matrices w(1, one.n, one.k, 3);
  const auto x = normal_numbers(int64_t{one.rows} * one.k, 5);
  auto* out = device_array<float>(int64_t{one.rows} * one.n);
  GradientProduct product{.x = split_on_card(x, one.rows, one.k, w.device.cols),
                          .weight = w.device,
                          .out = out,
                          .rows = one.rows};
  gradient_product(product, launcher);
  const auto once = to_host(out, int64_t{one.rows} * one.n);
  product.result = ProductResult::added;
  gradient_product(product, launcher);
  const auto twice = to_host(out, int64_t{one.rows} * one.n);
  Error forward, added;
  for (int r = 0; r < one.rows; ++r)
    for (int j = 0; j < one.n; ++j) {
      double want = 0;
      for (int i = 0; i < one.k; ++i) want += x[int64_t{r} * one.k + i] * w.at(0, j, i);
      forward.add(once[int64_t{r} * one.n + j], want);
      added.add(twice[int64_t{r} * one.n + j], 2 * want);
    }
  const std::string name =
      std::string(kernels == Kernels::native ? "native " : "portable ") + one.name;
  tally.check(forward.value() < kProductError, (name + ", forward").c_str(), forward.value());
  tally.check(added.value() < kProductError, (name + ", added").c_str(), added.value());

  auto* memory = device_array<uint8_t>(transposed_bytes(one.n, one.k, 1));
  const DeviceLinear back =
      transpose_matrices({.weight = w.device, .cols = one.k}, memory, nullptr);
  const auto dy = normal_numbers(int64_t{one.rows} * one.n, 7);
  auto* dx = device_array<float>(int64_t{one.rows} * one.k);
  gradient_product({.x = split_on_card(dy, one.rows, one.n, back.cols),
                    .weight = back,
                    .out = dx,
                    .rows = one.rows},
                   launcher);
  const auto found = to_host(dx, int64_t{one.rows} * one.k);
  Error backward;
  for (int r = 0; r < one.rows; ++r)
    for (int i = 0; i < one.k; ++i) {
      double want = 0;
      for (int j = 0; j < one.n; ++j) want += dy[int64_t{r} * one.n + j] * w.at(0, j, i);
      backward.add(found[int64_t{r} * one.k + i], want);
    }
  tally.check(backward.value() < kProductError, (name + ", backward").c_str(), backward.value());
}

/// Experts with many rows, few, one and none; gathered rows.
void check_experts(Tally& tally, Kernels kernels) {
  constexpr int kRows = 100, kN = 192, kK = 320;
  const std::vector<int> counts = {150, 20, 0, 1, 129};
  const Launcher launcher = launcher_of(kernels);
  gradient_product_prepare(launcher);
  const Matrices w(static_cast<int>(counts.size()), kN, kK, 11);
  const auto x = normal_numbers(int64_t{kRows} * kK, 13);
  std::vector<int32_t> row, expert;
  std::vector<ExpertTile> tiles;
  for (size_t e = 0; e < counts.size(); ++e) {
    const auto begin = static_cast<int32_t>(row.size());
    for (int i = 0; i < counts[e]; i += kTileTokens)
      tiles.push_back({static_cast<int32_t>(e), begin + i, std::min(kTileTokens, counts[e] - i)});
    for (int i = 0; i < counts[e]; ++i) {
      row.push_back(static_cast<int32_t>(hash_bits(17, row.size()) % kRows));
      expert.push_back(static_cast<int32_t>(e));
    }
  }
  const auto count = static_cast<int>(row.size());
  auto* out = device_array<float>(int64_t{count} * kN);
  const std::vector<int32_t> tile_count = {static_cast<int32_t>(tiles.size())};
  gradient_product({.x = split_on_card(x, kRows, kK, w.device.cols),
                    .gather = to_device(row),
                    .weight = w.device,
                    .out = out,
                    .rows = count,
                    .tiles = to_device(tiles),
                    .tile_count = to_device(tile_count)},
                   launcher);
  auto* memory = device_array<uint8_t>(transposed_bytes(kN, kK, w.stack));
  const DeviceLinear back =
      transpose_matrices({.weight = w.device, .cols = kK, .stack = w.stack}, memory, nullptr);
  const auto dy = normal_numbers(int64_t{count} * kN, 19);
  auto* dx = device_array<float>(int64_t{count} * kK);
  gradient_product({.x = split_on_card(dy, count, kN, back.cols),
                    .weight = back,
                    .out = dx,
                    .rows = count,
                    .tiles = to_device(tiles),
                    .tile_count = to_device(tile_count)},
                   launcher);
  const auto y = to_host(out, int64_t{count} * kN);
  const auto found = to_host(dx, int64_t{count} * kK);
  Error forward, backward;
  for (int a = 0; a < count; ++a) {
    for (int j = 0; j < kN; ++j) {
      double want = 0;
      for (int i = 0; i < kK; ++i) want += x[int64_t{row[a]} * kK + i] * w.at(expert[a], j, i);
      forward.add(y[int64_t{a} * kN + j], want);
    }
    for (int i = 0; i < kK; ++i) {
      double want = 0;
      for (int j = 0; j < kN; ++j) want += dy[int64_t{a} * kN + j] * w.at(expert[a], j, i);
      backward.add(found[int64_t{a} * kK + i], want);
    }
  }
  const std::string name = kernels == Kernels::native ? "native experts" : "portable experts";
  tally.check(forward.value() < kProductError, (name + ", forward").c_str(), forward.value());
  tally.check(backward.value() < kProductError, (name + ", backward").c_str(), backward.value());
}

void check_labels_of(Tally& tally, int vocabulary) {
  const std::vector<double> random = {0.0, 0.3, 0.5, 0.999, 1.5};  // the last passes all sums
  const auto rows = static_cast<int>(random.size());
  auto logits = normal_numbers(int64_t{rows} * vocabulary, 23);
  for (float& x : logits) x *= 3.0F;
  const int padded = step_columns(vocabulary);
  auto* gradient = device_array<uint16_t>(int64_t{rows} * 2 * padded);
  auto* squares = device_array<double>(rows);
  must(label_gradient({to_device(logits), to_device(random), rows, vocabulary, padded}, gradient,
                      squares, nullptr),
       "labels");
  const auto found = to_host(gradient, int64_t{rows} * 2 * padded);
  const auto lengths = to_host(squares, rows);
  Error error;
  double wrong = 0;
  for (int r = 0; r < rows; ++r) {
    const float* x = logits.data() + int64_t{r} * vocabulary;
    const float most = *std::max_element(x, x + vocabulary);
    double total = 0, before = 0, square = 0;
    for (int i = 0; i < vocabulary; ++i) total += std::exp(static_cast<double>(x[i] - most));
    int label = static_cast<int>(std::max_element(x, x + vocabulary) - x);
    for (int i = 0; i < vocabulary; ++i) {
      before += std::exp(static_cast<double>(x[i] - most)) / total;
      if (random[r] >= before) continue;
      label = i;
      break;
    }
    for (int i = 0; i < padded; ++i) {
      const int64_t at = int64_t{r} * 2 * padded + packed_position(i);
      const double value = bf16_value(found[at]) + bf16_value(found[at + padded]);
      const double p = i < vocabulary ? std::exp(static_cast<double>(x[i] - most)) / total : 0.0;
      const double want = (i == label ? 1.0 : 0.0) - p;
      error.add(value, want);
      square += want * want;
      if (i >= vocabulary && value != 0.0) ++wrong;
    }
    if (!(std::fabs(lengths[r] - square) <= 1e-5 * square)) ++wrong;
  }
  const std::string name = "labels of " + std::to_string(vocabulary) + " tokens";
  tally.check(error.value() < kProductError, name.c_str(), error.value());
  tally.check(wrong == 0, (name + ", lengths and padding").c_str(), wrong);
}

}  // namespace

void check_gradient_products(Tally& tally) {
  for (const Kernels kernels : {Kernels::native, Kernels::portable}) {
    for (const Case& one :
         {Case{"300 rows, 200 to 70", 300, 70, 200}, Case{"5 rows, 64 to 1", 5, 1, 64},
          Case{"129 rows, 512 to 300", 129, 300, 512}})
      check_case(tally, one, kernels);
    check_experts(tally, kernels);
  }
}

void check_gradient_labels(Tally& tally) {
  for (const int vocabulary : {20, 1003, 4096, 40000}) check_labels_of(tally, vocabulary);
}

}  // namespace nibble::bench
