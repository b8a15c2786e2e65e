// Products in recorded chains of four, so that one launch begins while the one before ends.
#include <algorithm>

#include "backend/cuda/checks/linear_weights.h"
#include "backend/cuda/ops/experts/experts.h"
#include "backend/cuda/ops/linear/linear.h"
#include "kernel_times.h"

namespace nibble::bench {
namespace {

using namespace nibble::checks;
using namespace nibble::cuda;

constexpr int kCount = 4;  // launches of a chain

/// Microseconds of one launch in a recorded chain; make(i, launcher) launches the i-th.
template <typename Make>
double chain_us(const Make& make, Kernels kernels = Kernels::native) {
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Launcher launcher = checks::launcher_of(kernels);
  launcher.stream = stream;
  const auto launch_all = [&] {
    for (int i = 0; i < kCount; ++i) make(i, launcher);
  };
  launch_all();
  must(cudaStreamSynchronize(stream), "first");
  cudaGraph_t graph;
  cudaGraphExec_t recorded;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  launch_all();
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&recorded, graph, 0), "record");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(recorded, stream);
    cudaEventRecord(end, stream);
    must(cudaEventSynchronize(end), "timing");
    float ms = 0.0F;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1e3 / kCount);
  }
  cudaGraphExecDestroy(recorded);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[4];
}

/// The head: its weights fill the L2 cache several times over.
void time_head() {
  constexpr int kVocab = 248320;
  constexpr int kHidden = 2048;
  std::printf("%-12s %6s %10s %10s %10s\n", "us a launch", "rows", "bytes/4.3T", "portable",
              "streamed");
  auto* x = device_array<uint16_t>(64 * kHidden);
  fill_normal(x, 64 * kHidden, 3, 1.0F);
  auto* y = device_array<float>(int64_t{64} * kVocab);
  for (const Format format : {Format::nvfp4, Format::fp8}) {
    const bool nvfp4 = format == Format::nvfp4;
    LinearArgs args{.count = 1, .x = x, .x_stride = kHidden};
    args.outputs[0] = {.weight = make_weight(format, FactorLayout::scalar, kVocab, kHidden, 100),
                       .y = y,
                       .y_stride = kVocab};
    const double bytes =
        double{kVocab} * (value_bytes(format, kHidden) + (nvfp4 ? kHidden / 16 : 0));
    for (const int rows : {1, 8, 16, 32, 64}) {
      args.rows = rows;
      const auto us = [&](Kernels kernels) {
        return chain_us([&](int, const Launcher& launcher) { linear(args, launcher); }, kernels);
      };
      std::printf("%-12s %6d %10.2f %10.2f %10.2f\n", nvfp4 ? "head, NVFP4" : "head, FP8", rows,
                  bytes / 4.3e6, us(Kernels::portable), us(Kernels::native));
      std::fflush(stdout);
    }
    free_weight(args.outputs[0].weight);
  }
  cudaFree(x);
  cudaFree(y);
}

/// The products of Qwen3.6-27B, four matrices of each in turn.
void time_long() {
  struct Product {
    const char* name;
    Format format;
    int rows, cols;
    bool gate_up;
  };
  constexpr Product kProducts[] = {{"gate and up", Format::nvfp4, 17408, 5120, true},
                                   {"down", Format::nvfp4, 5120, 17408, false},
                                   {"qkv z", Format::fp8, 16384, 5120, false},
                                   {"out", Format::fp8, 5120, 6144, false}};
  std::printf("%-12s %10s; us of 1, 8, 16, 32, 64 rows\n", "us a launch", "bytes/4.3T");
  constexpr int kColumnsMax = 17408;
  auto* x = device_array<uint16_t>(64 * kColumnsMax);
  fill_normal(x, 64 * kColumnsMax, 3, 0.05F);
  auto* y = device_array<float>(64 * kColumnsMax);
  auto* act = device_array<uint16_t>(64 * kColumnsMax);
  for (const Product& product : kProducts) {
    DeviceLinear w[kCount];
    for (uint32_t i = 0; i < kCount; ++i)
      w[i] = make_weight(product.format, FactorLayout::scalar,
                         product.gate_up ? 2 * product.rows : product.rows, product.cols, 100 + i);
    const int64_t row_bytes = value_bytes(product.format, product.cols) +
                              (w[0].scales != nullptr ? product.cols / 16 : 0);
    const auto bytes = static_cast<double>(w[0].rows * row_bytes);
    std::printf("%-12s %10.2f", product.name, bytes / 4.3e6);
    for (const int rows : {1, 8, 16, 32, 64}) {
      const auto make = [&](int i, const Launcher& launcher) {
        if (!product.gate_up) {
          LinearArgs args{.count = 1, .rows = rows, .x = x, .x_stride = product.cols};
          args.outputs[0] = {.weight = w[i], .y = y, .y_stride = product.rows};
          return linear(args, launcher);
        }
        ExpertArgs args{.shared_low = w[i],
                        .shared_high = w[i],
                        .rows = rows,
                        .x = x,
                        .x_stride = product.cols,
                        .act = act,
                        .act_stride = product.rows};
        args.shared_low.rows = args.shared_high.rows = product.rows;
        args.shared_high.values += product.rows * value_bytes(product.format, product.cols);
        args.shared_high.scales += int64_t{product.rows} * product.cols / 16;
        experts_gate_up(args, launcher);
      };
      std::printf(" %9.2f", chain_us(make));
      std::fflush(stdout);
    }
    std::printf("\n");
    for (const DeviceLinear& each : w) free_weight(each);
  }
  for (void* each : {static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(act)})
    cudaFree(each);
}

}  // namespace

void time_products() {
  time_head();
  time_long();
}

}  // namespace nibble::bench
