// Products of generation arithmetic against double arithmetic: every format, layout of factors and
// ending, rows that do not fill a tile, the same bits alone and among others; as linear() makes
// them and, on a card with wgmma, streamed whatever their size.
#include <algorithm>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/linear_outputs.h"
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
constexpr int kRowCounts[] = {1, 2, 7, 8, 9, 16, 31, 33, 64};

using GateUp = void (*)(const ExpertArgs&, const Launcher&);

class Check {
 public:
  void run(const Shape& shape, uint32_t seed);
  void gate_up(const Shape& shape, uint32_t seed);
  explicit Check(Tally& to) : tally(to) {}
  Tally& tally;

 private:
  void lay(const DeviceLinear& weight) const;
  static double error_of(const std::vector<float>& found, const std::vector<double>& want,
                         double before);
  void same_bits(Product make, const LinearArgs& args, const LinearOutputs& all,
                 const std::string& name);
  void ending(const LinearArgs& args, const std::vector<double>& want, float before,
              const std::string& name);
  void streamed(const LinearArgs& args, const std::vector<double>& want, const std::string& name);

  const Launcher launcher_ = launcher_of(Kernels::native);
  const Launcher portable_ = launcher_of(Kernels::portable);
};

double Check::error_of(const std::vector<float>& found, const std::vector<double>& want,
                       double before) {
  Error error;
  for (size_t i = 0; i < found.size(); ++i) error.add(found[i] - before, want[i]);
  return error.value();
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
void Check::same_bits(Product make, const LinearArgs& args, const LinearOutputs& all,
                      const std::string& name) {
  LinearArgs some = args;
  int differing = 0;
  const auto compare = [&](int rows, const Launcher& launcher) {
    some.rows = rows;
    const LinearOutputs found = product(make, some, launcher, 0.0F);
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
  const LinearOutputs all = product(stream_anyway, one, launcher_, 0.0F);
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
  const LinearOutputs all = product(linear, args, launcher_, 0.0F);
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
  check_fused_convolution(tally, seed + 20);
  for (const int columns : {2048, 1000, 132, 36}) check_fused_norms(tally, columns, seed += 40);
}

}  // namespace nibble::checks
