// Products of generation arithmetic against double arithmetic: every format, layout of factors and
// ending, rows that do not fill a tile, the same bits alone and among others; as linear() makes
// them and, on a card with wgmma, streamed whatever their size.
#include <algorithm>
#include <cstring>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/linear_weights.h"
#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/weights/device_checks.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

__device__ double weight_value(const DeviceLinear& w, int64_t row, int64_t column) {
  const int64_t at = row * w.cols + column;
  if (w.format == Format::bf16) return bf16_value(reinterpret_cast<const uint16_t*>(w.values)[at]);
  if (w.format == Format::nvfp4) {
    const uint32_t code = w.values[at / 2] >> (column % 2 * 4) & 15;
    return e2m1_value(code) * e4m3_value(w.scales[at / 16]) * w.factors[0];
  }
  const double factor = w.layout == FactorLayout::row ? w.factors[row]
                        : w.layout == FactorLayout::block128
                            ? w.factors[row / 128 * (w.cols / 128) + column / 128]
                            : w.factors[0];
  return e4m3_value(w.values[at]) * factor;
}

/// A warp makes an output.
__global__ void reference_kernel(DeviceLinear w, const uint16_t* x, int64_t x_stride,
                                 const int32_t* gather, int rows, double* y) {
  const int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (i >= int64_t{rows} * w.rows) return;
  const int64_t token = i / w.rows;
  const int64_t from = gather == nullptr ? token : gather[token];
  double sum = 0.0;
  for (int c = static_cast<int>(threadIdx.x % 32); c < w.cols; c += 32)
    sum += weight_value(w, i % w.rows, c) * bf16_value(x[from * x_stride + placed(c)]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  if (threadIdx.x % 32 == 0) y[i] = sum;
}

struct Shape {
  const char* name;
  Format format;
  FactorLayout layout;
  int rows, cols;
  int beside = 0;  // rows of a BF16 matrix in the same launch
  float x_scale = 1.0F;
  uint32_t codes = 0xFF;  // bits of FP8 codes
  bool alike = false;     // that matrix is of this one's format
};
constexpr Shape kShapes[] = {
    {"fp8 scalar 12288 x 2048, bf16 beside", Format::fp8, FactorLayout::scalar, 12288, 2048, 32},
    {"fp8 row 9216 x 2048", Format::fp8, FactorLayout::row, 9216, 2048},
    {"fp8 row 9300 x 1280", Format::fp8, FactorLayout::row, 9300, 1280},
    {"fp8 block 9300 x 2048, bf16 beside", Format::fp8, FactorLayout::block128, 9300, 2048, 48},
    {"fp8 block 2048 x 4096", Format::fp8, FactorLayout::block128, 2048, 4096},
    {"fp8 scalar 2048 x 4096", Format::fp8, FactorLayout::scalar, 2048, 4096},
    {"fp8 subnormal codes", Format::fp8, FactorLayout::scalar, 2048, 2048, 0, 1.0F, 0x87},
    {"fp8 large x", Format::fp8, FactorLayout::scalar, 2048, 2048, 0, 1e5F},
    {"fp8 tiny x", Format::fp8, FactorLayout::scalar, 2048, 2048, 0, 1e-20F},
    {"fp8 block 1500 x 2048, bf16 beside", Format::fp8, FactorLayout::block128, 1500, 2048, 48},
    {"fp8 row 3300 x 256, bf16 beside", Format::fp8, FactorLayout::row, 3300, 256, 40},
    {"fp8 row 1090 x 256", Format::fp8, FactorLayout::row, 1090, 256},
    {"fp8 block 1090 x 768", Format::fp8, FactorLayout::block128, 1090, 768},
    {"fp8 scalar 5120 x 5120", Format::fp8, FactorLayout::scalar, 5120, 5120},
    {"fp8 scalar 100 x 512", Format::fp8, FactorLayout::scalar, 100, 512},
    {"nvfp4 4000 x 2048", Format::nvfp4, FactorLayout::scalar, 4000, 2048},
    {"nvfp4 9216 x 2048, bf16 beside", Format::nvfp4, FactorLayout::scalar, 9216, 2048, 40},
    {"nvfp4 8200 x 2560", Format::nvfp4, FactorLayout::scalar, 8200, 2560},
    {"nvfp4 2048 x 4096", Format::nvfp4, FactorLayout::scalar, 2048, 4096},
    {"nvfp4 1090 x 768, bf16 beside", Format::nvfp4, FactorLayout::scalar, 1090, 768, 40},
    {"nvfp4 5120 x 5120", Format::nvfp4, FactorLayout::scalar, 5120, 5120},
    {"nvfp4 65600 x 512, streamed", Format::nvfp4, FactorLayout::scalar, 65600, 512},
    {"nvfp4 66000 x 1280, tiny x", Format::nvfp4, FactorLayout::scalar, 66000, 1280, 0, 1e-20F},
    {"fp8 row 65700 x 768, streamed", Format::fp8, FactorLayout::row, 65700, 768},
    {"nvfp4 5000 x 5120 and 1030", Format::nvfp4, FactorLayout::scalar, 5000, 5120, 1030, 1.0F,
     0xFF, true},
    {"fp8 block 3100 x 6144 and 200", Format::fp8, FactorLayout::block128, 3100, 6144, 200, 1.0F,
     0xFF, true},
    {"fp8 row 3100 x 4608 and 1000", Format::fp8, FactorLayout::row, 3100, 4608, 1000, 1.0F, 0xFF,
     true},
    {"nvfp4 130 x 4608 and 70", Format::nvfp4, FactorLayout::scalar, 130, 4608, 70, 1.0F, 0xFF,
     true},
    {"fp8 block 200 x 8192", Format::fp8, FactorLayout::block128, 200, 8192},
    {"nvfp4 3100 x 17408", Format::nvfp4, FactorLayout::scalar, 3100, 17408},
    {"fp8 scalar 3100 x 18432", Format::fp8, FactorLayout::scalar, 3100, 18432},
    {"nvfp4 3100 x 18688, too long", Format::nvfp4, FactorLayout::scalar, 3100, 18688},
    {"nvfp4 1090 x 256, tiny x", Format::nvfp4, FactorLayout::scalar, 1090, 256, 0, 1e-20F},
    {"bf16 6400 x 256", Format::bf16, FactorLayout::none, 6400, 256},
    {"bf16 8192 x 2048", Format::bf16, FactorLayout::none, 8192, 2048},
    {"bf16 2000 x 4096", Format::bf16, FactorLayout::none, 2000, 4096},
    {"bf16 257 x 2048", Format::bf16, FactorLayout::none, 257, 2048},
    {"bf16 1090 x 256, large x", Format::bf16, FactorLayout::none, 1090, 256, 0, 1e5F},
};
constexpr Shape kGateUpShapes[] = {
    {"nvfp4 2000 x 5120", Format::nvfp4, FactorLayout::scalar, 2000, 5120, 0, 0.05F},
    {"nvfp4 1540 x 4352", Format::nvfp4, FactorLayout::scalar, 1540, 4352, 0, 0.05F},
    {"fp8 block 1700 x 5120", Format::fp8, FactorLayout::block128, 1700, 5120, 0, 0.05F},
    {"fp8 row 1540 x 6400", Format::fp8, FactorLayout::row, 1540, 6400, 0, 0.05F},
    {"nvfp4 200 x 6144, few", Format::nvfp4, FactorLayout::scalar, 200, 6144, 0, 0.05F},
    {"fp8 block 200 x 5120, few", Format::fp8, FactorLayout::block128, 200, 5120, 0, 0.05F},
    {"fp8 scalar 300 x 5120, few", Format::fp8, FactorLayout::scalar, 300, 5120, 0, 0.05F},
    {"nvfp4 1600 x 1024", Format::nvfp4, FactorLayout::scalar, 1600, 1024, 0, 0.05F},
    {"nvfp4 1500 x 1024, resident", Format::nvfp4, FactorLayout::scalar, 1500, 1024, 0, 0.05F},
    {"fp8 block 1600 x 2560", Format::fp8, FactorLayout::block128, 1600, 2560, 0, 0.05F},
};
constexpr int kSmallNumbers = 1 << 21;   // of a matrix
constexpr int kStreamedColumns = 18432;  // at most
constexpr int kRowsMax = 65;
constexpr int kRowCounts[] = {1, 2, 7, 8, 9, 16, 31, 33, 64};

/// linear(), or one of the kernels that it chooses from.
using Product = void (*)(const LinearArgs&, const Launcher&);
using GateUp = void (*)(const ExpertArgs&, const Launcher&);

class Check {
 public:
  void run(const Shape& shape, uint32_t seed);
  void convolution(uint32_t seed);
  void norms(int columns, uint32_t seed);
  void gate_up(const Shape& shape, uint32_t seed);
  explicit Check(Tally& to) : tally(to) {}
  Tally& tally;

 private:
  struct Output {
    std::vector<float> main, beside;
  };
  static Output product(Product make, const LinearArgs& args, const Launcher& launcher,
                        float before);
  void lay(const DeviceLinear& weight) const;
  static double error_of(const std::vector<float>& found, const std::vector<double>& want,
                         double before);
  void same_bits(Product make, const LinearArgs& args, const Output& all, const std::string& name);
  void ending(const LinearArgs& args, const std::vector<double>& want, float before,
              const std::string& name);
  void streamed(const LinearArgs& args, const std::vector<double>& want, const std::string& name);

  const Launcher launcher_ = launcher_of(Kernels::native);
  const Launcher portable_ = launcher_of(Kernels::portable);
};

constexpr int64_t kPad = 5;  // floats between the rows of y

Check::Output Check::product(Product make, const LinearArgs& args, const Launcher& launcher,
                             float before) {
  LinearArgs with = args;
  Output out;
  std::vector<float>* const to[2] = {&out.main, &out.beside};
  std::vector<float*> buffers;
  for (int i = 0; i < args.count; ++i) {
    const int64_t stride = args.outputs[i].weight.rows + kPad;
    auto* y = device_array<float>(stride * args.rows);
    if (args.outputs[i].finish == Finish::add) fill_normal(y, stride * args.rows, 0, 0.0F, before);
    with.outputs[i].y = y;
    with.outputs[i].y_stride = stride;
    buffers.push_back(y);
  }
  must(cudaDeviceSynchronize(), "before");
  make(with, launcher);
  must(cudaDeviceSynchronize(), "linear");
  for (int i = 0; i < args.count; ++i) {
    const int n = args.outputs[i].weight.rows;
    const auto all = to_host(buffers[static_cast<size_t>(i)], (n + kPad) * args.rows);
    for (int r = 0; r < args.rows; ++r)
      to[i]->insert(to[i]->end(), all.begin() + r * (n + kPad), all.begin() + r * (n + kPad) + n);
    cudaFree(buffers[static_cast<size_t>(i)]);
  }
  return out;
}

double Check::error_of(const std::vector<float>& found, const std::vector<double>& want,
                       double before) {
  Error error;
  for (size_t i = 0; i < found.size(); ++i) error.add(found[i] - before, want[i]);
  return error.value();
}

bool same_head(const std::vector<float>& part, const std::vector<float>& all) {
  return part.size() <= all.size() &&
         std::memcmp(part.data(), all.data(), part.size() * sizeof(float)) == 0;
}

std::vector<double> expected(const DeviceLinear& w, const uint16_t* x, int64_t stride,
                             const int32_t* gather, int rows) {
  auto* y = device_array<double>(int64_t{rows} * w.rows);
  reference_kernel<<<static_cast<unsigned>((int64_t{rows} * w.rows + 7) / 8), 256>>>(
      w, x, stride, gather, rows, y);
  auto host = to_host(y, int64_t{rows} * w.rows);
  cudaFree(y);
  return host;
}

/// Rows by themselves, and with less shared memory, as they are among `all`.
void Check::same_bits(Product make, const LinearArgs& args, const Output& all,
                      const std::string& name) {
  LinearArgs some = args;
  int differing = 0;
  const auto compare = [&](int rows, const Launcher& launcher) {
    some.rows = rows;
    const Output found = product(make, some, launcher, 0.0F);
    if (same_head(found.main, all.main) && same_head(found.beside, all.beside)) return;
    ++differing;
    tally.print("  %d rows differ", rows);
  };
  for (const int rows : kRowCounts) compare(rows, launcher_);
  Launcher smaller = launcher_;
  smaller.card.shared_bytes = 99 << 10;
  compare(40, smaller);
  tally.check(differing == 0, (name + ": the same bits by themselves").c_str(), differing);
}

void Check::ending(const LinearArgs& args, const std::vector<double>& want, float before,
                   const std::string& name) {
  LinearArgs added = args;
  added.outputs[0].finish = Finish::add;
  for (const int rows : {3, 20, 40}) {
    added.rows = rows;
    const double error =
        error_of(product(linear, added, launcher_, before).main,
                 {want.begin(), want.begin() + rows * args.outputs[0].weight.rows}, before);
    tally.check(error < 1e-5, (name + ": added to").c_str(), error);
  }
}

/// linear_stream.cu even where another kernel is chosen.
void stream_anyway(const LinearArgs& args, const Launcher& launcher) {
  linear_stream(args, select_stream(args, launcher.card).plans[0], launcher);
}
void stream_gate_up_anyway(const ExpertArgs& args, const Launcher& launcher) {
  gate_up_stream(args, select_stream(args, launcher.card).plans[0], launcher);
}

/// The portable twin of products that are streamed, and the streamed twin of others.
void Check::streamed(const LinearArgs& args, const std::vector<double>& want,
                     const std::string& name) {
  LinearArgs one = args;
  one.count = 1;
  if (select_linear(one, launcher_.card).plans[0].kernel == LinearKernel::stream) {
    one.rows = 13;
    const double error =
        error_of(product(linear, one, portable_, 0.0F).main,
                 {want.begin(), want.begin() + 13 * one.outputs[0].weight.rows}, 0.0);
    tally.check(error < 1e-5, (name + ": portable").c_str(), error);
    return;
  }
  const Output all = product(stream_anyway, one, launcher_, 0.0F);
  const double error = error_of(all.main, want, 0.0);
  tally.check(error < 1e-5, (name + ": streamed").c_str(), error);
  same_bits(stream_anyway, one, all, name + ": streamed");
}

/// The references read codes in the order of a file.
void Check::lay(const DeviceLinear& weight) const {
  if (weight.present() && weight.format != Format::bf16)
    lay_codes(const_cast<uint8_t*>(weight.values),
              weight.rows * value_bytes(weight.format, weight.cols), weight.format, launcher_);
}

void Check::run(const Shape& shape, uint32_t seed) {
  const DeviceLinear w =
      make_weight(shape.format, shape.layout, shape.rows, shape.cols, seed, shape.codes);
  DeviceLinear beside;
  if (shape.beside > 0)
    beside = make_weight(shape.alike ? shape.format : Format::bf16,
                         shape.alike ? shape.layout : FactorLayout::none, shape.beside, shape.cols,
                         seed + 7);
  const int64_t stride = shape.cols + 64;
  auto* x = device_array<uint16_t>(stride * kRowsMax);
  fill_normal(x, stride * kRowsMax, seed + 5, shape.x_scale);
  std::vector<int32_t> order(kRowsMax);
  for (int i = 0; i < kRowsMax; ++i) order[static_cast<size_t>(i)] = (i * 7 + 3) % kRowsMax;
  auto* gather = to_device(order);
  LinearArgs args{.count = shape.beside > 0 ? 2 : 1,
                  .rows = kRowsMax,
                  .x = x,
                  .x_stride = stride,
                  .gather = gather};
  args.outputs[0].weight = w;
  args.outputs[1].weight = beside;
  const auto want = expected(w, x, stride, gather, kRowsMax);
  const auto want_beside =
      shape.beside > 0 ? expected(beside, x, stride, gather, kRowsMax) : std::vector<double>();
  for (const DeviceLinear& each : {w, beside}) lay(each);
  const Output all = product(linear, args, launcher_, 0.0F);
  const std::string name = shape.name;
  tally.check(error_of(all.main, want, 0.0) < 1e-5, name.c_str(), error_of(all.main, want, 0.0));
  if (shape.beside > 0) {
    const double error = error_of(all.beside, want_beside, 0.0);
    tally.check(error < 1e-5, (name + ": what is beside").c_str(), error);
  }
  same_bits(linear, args, all, name);
  ending(args, want, 0.5F * shape.x_scale, name);
  if (launcher_.card.has_wgmma() && w.format != Format::bf16 && w.cols <= kStreamedColumns)
    streamed(args, want, name);
  for (const DeviceLinear& each : {w, beside}) free_weight(each);
  cudaFree(x);
  cudaFree(gather);
}

/// A dense MLP's gate and up, as BF16 of the SwiGLU.
void Check::gate_up(const Shape& shape, uint32_t seed) {
  DeviceLinear w[2];
  for (uint32_t i = 0; i < 2; ++i)
    w[i] = make_weight(shape.format, shape.layout, shape.rows, shape.cols, seed + i);
  const int64_t stride = shape.cols + 64;
  const int64_t act_stride = (shape.rows + 255) / 256 * 256 + 64;
  auto* x = device_array<uint16_t>(stride * kRowsMax);
  fill_normal(x, stride * kRowsMax, seed + 5, shape.x_scale);
  auto* act = device_array<uint16_t>(act_stride * kRowsMax);
  std::vector<double> want[2];
  for (int i = 0; i < 2; ++i) want[i] = expected(w[i], x, stride, nullptr, kRowsMax);
  for (const DeviceLinear& each : w) lay(each);
  ExpertArgs args{.shared_low = w[0],
                  .shared_high = w[1],
                  .x = x,
                  .x_stride = stride,
                  .act = act,
                  .act_stride = act_stride};
  const auto make = [&](GateUp gate_up, int rows, const Launcher& launcher) {
    args.rows = rows;
    must(cudaMemset(act, 0, static_cast<size_t>(2 * act_stride * kRowsMax)), "act");
    gate_up(args, launcher);
    must(cudaDeviceSynchronize(), "gate and up");
    return to_host(act, act_stride * kRowsMax);
  };
  const auto error_of_act = [&](const std::vector<uint16_t>& found, int rows) {
    Error error;
    for (int64_t r = 0; r < rows; ++r)
      for (int n = 0; n < shape.rows; ++n) {
        const auto at = static_cast<size_t>(r * shape.rows + n);
        const double gate = want[0][at];
        error.add(bf16_value(found[static_cast<size_t>(r * act_stride + placed(n))]),
                  silu_of(gate) * want[1][at]);
      }
    return error.value();
  };
  Launcher smaller = launcher_;
  smaller.card.shared_bytes = 99 << 10;
  const auto check = [&](GateUp gate_up, const std::string& name) {
    const auto all = make(gate_up, kRowsMax, launcher_);
    tally.check(error_of_act(all, kRowsMax) < 3e-3, name.c_str(), error_of_act(all, kRowsMax));
    int differing = 0;
    const auto compare = [&](int rows, const Launcher& launcher) {
      const auto found = make(gate_up, rows, launcher);
      const auto end = static_cast<std::ptrdiff_t>(rows * act_stride);
      if (std::equal(found.begin(), found.begin() + end, all.begin()) &&
          std::all_of(found.begin() + end, found.end(), [](uint16_t bits) { return bits == 0; }))
        return;
      ++differing;
      tally.print("  %d rows differ", rows);
    };
    for (const int rows : kRowCounts) compare(rows, launcher_);
    compare(40, smaller);
    tally.check(differing == 0, (name + ": the same bits by themselves").c_str(), differing);
  };
  const std::string name = std::string("gate and up, ") + shape.name;
  check(experts_gate_up, name);
  if (!inputs_fit(w[0]) && select_gate_up(args, launcher_.card).count == 0 &&
      select_stream(args, launcher_.card).count > 0)
    check(stream_gate_up_anyway, name + ": streamed");
  const double error = error_of_act(make(experts_gate_up, 13, portable_), 13);
  tally.check(error < 3e-3, (name + ": portable").c_str(), error);
  for (const DeviceLinear& each : w) free_weight(each);
  cudaFree(x);
  cudaFree(act);
}

/// Several rows that are normed by their readers, against add_norm and the product of its rows.
void Check::norms(int columns, uint32_t seed) {
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
           launcher_);
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
    const Output want = product(linear, plain, launcher_, 1.0F);
    const Output found = product(linear, normed, launcher_, 1.0F);
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

/// The convolution of up to 8 rows, and a single row's norm, against the kernels that do the same
/// apart.
void Check::convolution(uint32_t seed) {
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
           launcher_);
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
  const std::vector<float> raw = product(linear, args, launcher_, 0.0F).main;
  args.rows = 1;
  args.norm = {.h = h, .weight = norm, .columns = kHidden, .eps = 1e-6F};
  const bool same = same_head(product(linear, args, launcher_, 0.0F).main, raw);
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
  const std::vector<float> found = product(linear, args, launcher_, 0.0F).main;
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

}  // namespace

void check_linear(Tally& tally, Matrices matrices) {
  Check check(tally);
  const auto wanted = [&](const Shape& shape) {
    return matrices == Matrices::all || shape.rows * shape.cols <= kSmallNumbers;
  };
  uint32_t seed = 1;
  for (const Shape& shape : kShapes)
    if (wanted(shape)) check.run(shape, seed += 20);
  for (const Shape& shape : kGateUpShapes)
    if (wanted(shape)) check.gate_up(shape, seed += 20);
  check.convolution(seed + 20);
  for (const int columns : {2048, 1000, 132, 36}) check.norms(columns, seed += 40);
}

}  // namespace nibble::checks
