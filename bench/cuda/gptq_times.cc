// Made-up linears, and timings of GPTQ at the shapes of Qwen3.5-35B-A3B.
#include "gptq_times.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "backend/cuda/ops/gptq/gptq_lanes.h"
#include "quantize/rounding/gptq_factor.h"
#include "quantize/rounding/row_rounders.h"
#include "tensor/float_formats.h"

namespace nibble::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Products of columns of different size, near ones alike, with a few common directions.
void draw_moment(InputStatistics& to, MomentShape shape, std::mt19937& random) {
  constexpr int kDirections = 4;
  const int64_t n = to.cols;
  std::normal_distribution<float> normal;
  std::vector<double> size(static_cast<size_t>(n)), mix(static_cast<size_t>(n * kDirections));
  for (double& s : size) s = std::exp(1.5 * static_cast<double>(normal(random)));
  for (double& m : mix) m = 0.4 * static_cast<double>(normal(random));
  for (size_t i = 5; i < size.size(); i += 37) size[i] = 0;
  std::vector<double> alike(static_cast<size_t>(n));
  for (int64_t d = 0; d < n; ++d) alike[static_cast<size_t>(d)] = std::pow(0.7, d);
  to.tokens = 4096;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j) {
      double sum = alike[static_cast<size_t>(j - i)];
      for (int64_t d = 0; d < kDirections; ++d)
        sum += mix[static_cast<size_t>(i * kDirections + d)] *
               mix[static_cast<size_t>(j * kDirections + d)];
      to.moment[static_cast<size_t>(i * n + j)] =
          4096 * sum * size[static_cast<size_t>(i)] * size[static_cast<size_t>(j)];
    }
  if (shape == MomentShape::sound) return;
  // Two columns of the mean size whose product is more than it can be.
  const double mean = mean_square(to) * 4096, more = shape == MomentShape::broken ? 9 : 1.05;
  for (const int64_t i : {0, 1})
    for (int64_t j = i; j < n; ++j)
      to.moment[static_cast<size_t>(i * n + j)] = i == j ? mean : j == 1 ? more * mean : 0;
}

std::vector<int64_t> order_of(const InputStatistics& statistics) {
  const auto factor = block_order(statistics);
  return {factor.begin(), factor.end()};
}

/// Draws weights that are normal, some much larger; and a row of zeros.
void draw_weights(GptqCase& to, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto cols = static_cast<size_t>(to.statistics.cols);
  to.weights.resize(to.count() * static_cast<size_t>(dtype_bytes(to.dtype, 1)));
  to.fp8_scales.assign(static_cast<size_t>(to.rows), 1.0F);
  std::vector<float> amax(static_cast<size_t>(to.rows));
  for (size_t i = 0; i < to.count(); ++i) {
    float w = normal(random) * 0.03F * (random() % 64 == 0 ? 8.0F : 1.0F);
    if (i / cols == 3) w = 0.0F;
    const uint16_t bits = to.dtype == DType::f16 ? float_to_f16(w) : float_to_bf16(w);
    if (to.dtype == DType::f32) {
      std::memcpy(&to.weights[i * 4], &w, 4);
    } else {
      w = to.dtype == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
      std::memcpy(&to.weights[i * 2], &bits, 2);
    }
    amax[i / cols] = std::max(amax[i / cols], std::fabs(w));
  }
  to.exponent = global_exponent(*std::ranges::max_element(amax));
  for (size_t row = 0; row < amax.size(); ++row) {
    if (amax[row] > 0) to.fp8_scales[row] = amax[row] / 448.0F;
    to.exponents.push_back(std::ilogb(to.fp8_scales[row]));
    to.block_scales.insert(to.block_scales.end(), cols / 16,
                           std::ldexp(to.fp8_scales[row], -to.exponents.back()));
  }
}

}  // namespace

GptqMoment GptqCase::moment() const {
  return {.cols = statistics.cols,
          .products = statistics.moment.data(),
          .unit = unit,
          .order = order,
          .dampings = kDampings};
}

std::string GptqCase::name() const {
  return concat(rows, " x ", statistics.cols, " ", dtype_info(dtype).name);
}

GptqCase gptq_case(int64_t cols, int64_t rows, MomentShape shape, DType dtype) {
  std::mt19937 random(static_cast<unsigned>(cols * 31 + rows));
  GptqCase out{.statistics = InputStatistics(cols, SecondMoment::full),
               .order = {},
               .rows = rows,
               .dtype = dtype,
               .weights = {},
               .fp8_scales = {},
               .exponents = {},
               .block_scales = {}};
  draw_moment(out.statistics, shape, random);
  out.unit = mean_square(out.statistics) * static_cast<double>(out.statistics.tokens);
  out.order = order_of(out.statistics);
  draw_weights(out, random);
  return out;
}

namespace {

using namespace cuda;

class Steps {
 public:
  Steps(DeviceContext& device, int64_t cols, int64_t rows)
      : device_(device), case_(gptq_case(cols, rows, MomentShape::sound)) {
    const auto n = cols;
    input_ = {.cols = static_cast<int32_t>(n)};
    auto* products = take<double>(n * n);
    input_.products = products;
    input_.square = take<double>(n * n);
    input_.roots = take<double>(n);
    input_.factors = take<float>(n * n);
    input_.costs = take<float>(n);
    input_.h = take<float>(n * n);
    input_.block_factors = take<float>(n * 16);
    input_.order = take<int32_t>(n / 16);
    input_.broken = take<int32_t>(1);
    rows_ = {.rows = static_cast<int32_t>(rows), .dtype = DType::bf16};
    rows_.exponent = case_.exponent;
    void* weights = take<uint16_t>(rows * n);
    rows_.weights = weights;
    rows_.u = take<float>(rows * n);
    rows_.errors = take<float>(rows * n);
    rows_.gradient = take<float>(rows * n);
    rows_.codes = take<uint8_t>(rows * n);
    rows_.scales = take<uint8_t>(rows * n / 16);
    const std::vector<int32_t> order(case_.order.begin(), case_.order.end());
    copy_to_device(input_.order, order.data(), n / 16 * 4);
    copy_to_device(products, case_.statistics.moment.data(), n * n * 8);
    copy_to_device(weights, case_.weights.data(), rows * n * 2);
  }

  void time() {
    const auto stream = device_.stream();
    std::printf("%lld x %lld:", static_cast<long long>(rows_.rows),
                static_cast<long long>(input_.cols));
    step("fill", [&] { return gptq_fill(input_, case_.unit, kDampings[0], stream); });
    step(
        "factorise", [&] { return gptq_factorise(input_, stream); }, true);
    step("fill", [&] { return gptq_fill(input_, case_.unit, kDampings[0], stream); });
    CUDA_CHECK(gptq_factorise(input_, stream));
    step(
        "invert", [&] { return gptq_invert(input_, stream); }, true);
    CUDA_CHECK(gptq_fill(input_, case_.unit, kDampings[0], stream));
    CUDA_CHECK(gptq_factorise(input_, stream));
    CUDA_CHECK(gptq_invert(input_, stream));
    step("load", [&] { return gptq_load(input_, rows_, stream); });
    step(
        "feed back", [&] { return gptq_feed_back(input_, rows_, stream); }, true);
    CUDA_CHECK(gptq_load(input_, rows_, stream));
    CUDA_CHECK(gptq_feed_back(input_, rows_, stream));
    step("gradient", [&] { return gptq_gradient(input_, rows_, stream); });
    step(
        "descent", [&] { return gptq_descend(input_, rows_, 8, stream); }, true);
    step("encode", [&] { return gptq_encode(input_, rows_, stream); });
    std::printf("\n");
  }

 private:
  template <typename T>
  T* take(int64_t count) {
    buffers_.push_back(
        DeviceBuffer::allocate(device_, count * static_cast<int64_t>(sizeof(T)), "a test").value());
    return buffers_.back().as<T>();
  }
  /// once: it changes what it starts from.
  void step(const char* name, const std::function<cudaError_t()>& run, bool once = false) {
    const int times = once ? 1 : 3;
    CUDA_CHECK(cudaStreamSynchronize(device_.stream()));
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) CUDA_CHECK(run());
    CUDA_CHECK(cudaStreamSynchronize(device_.stream()));
    std::printf(" %s %.3f", name, since(begin) * 1e3 / times);
  }

  DeviceContext& device_;
  GptqCase case_;
  GptqInput input_;
  GptqRows rows_;
  std::vector<DeviceBuffer> buffers_;
};

/// A linear whose sums the card has kept, as those of calibration.
struct KeptCase {
  GptqCase one;
  DeviceBuffer products;

  KeptCase(DeviceContext& device, int64_t cols, int64_t rows)
      : one(gptq_case(cols, rows, MomentShape::sound)) {
    products = DeviceBuffer::allocate(device, cols * cols * 8, "a test").value();
    copy_to_device(products.as<void>(), one.statistics.moment.data(), cols * cols * 8);
  }
  GptqMoment moment() const {
    GptqMoment out = one.moment();
    out.place = MomentPlace::device;
    out.products = products.as<double>();
    return out;
  }
};

/// `linears` linears of each of `count` inputs, from so many threads. Milliseconds for an input.
double milliseconds(GptqLanes& lanes, int threads, int count, const KeptCase& made, int linears) {
  std::atomic<int> next = 0;
  const GptqCase& one = made.one;
  const auto work = [&] {
    std::vector<uint8_t> codes(one.count() / 2), scales(one.count() / 16);
    while (next++ < count) {
      const auto input = lanes.factorise(made.moment());
      for (int i = 0; i < linears; ++i) input->round_nvfp4(one.view(), one.exponent, codes, scales);
    }
  };
  const auto begin = Clock::now();
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work);
  for (auto& thread : all) thread.join();
  return since(begin) * 1e3 / count;
}

}  // namespace

void time_gptq(DeviceContext& device) {
  std::printf("ms, one stream:\n");
  for (int i = 0; i < 2; ++i) Steps(device, 2048, 512).time();  // the first loads kernels
  Steps(device, 512, 2048).time();
  Steps(device, 2048, 8192).time();
  Steps(device, 4096, 2048).time();
  const KeptCase in(device, 2048, 512), down(device, 512, 2048);
  const KeptCase mixer(device, 2048, 8192), out(device, 4096, 2048);
  for (const int count : {1, 4, 8, 12}) {
    auto lanes = GptqLanes::reserve(device, 4096, count);
    if (!lanes.ok()) {
      std::printf("%s\n", lanes.error().message.c_str());
      continue;
    }
    const auto time = [&](const KeptCase& made, int inputs, int linears) {
      return milliseconds(*lanes.value(), count, inputs, made, linears);
    };
    const double gate_up = time(in, 64, 2), downs = time(down, 128, 1);
    const double mixers = time(mixer, 16, 1), outs = time(out, 16, 1);
    std::printf(
        "%2d lanes: ms for gate and up %.3f, down %.3f, 8192 x 2048 %.3f, 2048 x 4096 %.3f; 40 "
        "layers of 256 experts, 1.5 and 1 of the others: %.1f s\n",
        count, gate_up, downs, mixers, outs,
        0.04 * (256 * (gate_up + downs) + 1.5 * mixers + outs));
  }
}

}  // namespace nibble::bench
