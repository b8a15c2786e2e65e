// Timings of the operations of a vision tower.
#include <functional>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/checks/vision_shapes.h"
#include "backend/cuda/ops/vision/vision.h"
#include "kernel_times.h"

namespace nibble::bench {
namespace {

using namespace nibble::checks;
using namespace nibble::cuda;

struct Op {
  const char* name;
  int times;  // in a layer
  double flops;
  std::function<void()> run;
};

/// Memory of a tower's layer, filled with numbers.
struct Layer {
  Tower tower;
  int rows = 0;
  int width = 0;
  int inner = 0;
  std::vector<int> ends;
  float* x = nullptr;
  uint16_t* a = nullptr;
  uint16_t* b = nullptr;
  uint16_t* heads = nullptr;
  uint16_t* w = nullptr;
  float* bias = nullptr;
  float2* turns = nullptr;
  FramePlace* places = nullptr;

  Layer(const Tower& shape, const std::vector<Frame>& frames, const Launcher& launcher)
      : tower(shape),
        width(shape.width()),
        inner((shape.inner + 63) / 64 * 64),
        ends(ends_of(frames)) {
    const auto host_places = places_of(frames);
    rows = static_cast<int>(host_places.size());
    const int64_t numbers = int64_t{rows} * inner;
    const int64_t weights = int64_t{inner} * width;
    x = device_array<float>(int64_t{rows} * width);
    a = device_array<uint16_t>(numbers);
    b = device_array<uint16_t>(numbers);
    heads = device_array<uint16_t>(int64_t{3} * tower.heads * rows * padded_head(tower.head_dim));
    w = device_array<uint16_t>(weights);
    bias = device_array<float>(inner);
    turns = device_array<float2>(64 * tower.head_dim);
    vision_turns(turns, 64, tower.head_dim, launcher);
    fill_normal(x, int64_t{rows} * width, 1, 1.0F);
    fill_normal(a, numbers, 1, 1.0F);
    fill_normal(w, weights, 2, 0.03F);
    fill_normal(bias, inner, 2, 0.03F);
    places = to_device(host_places);
  }
  ~Layer() {
    for (void* p : {static_cast<void*>(x), static_cast<void*>(a), static_cast<void*>(b),
                    static_cast<void*>(heads), static_cast<void*>(w), static_cast<void*>(bias),
                    static_cast<void*>(turns), static_cast<void*>(places)})
      cudaFree(p);
  }

  Op gemm(const char* name, GemmOutput output, int n, int k, const Launcher& launcher) const {
    const PrefillGemm product = {
        .packed_x = a,
        .x_stride = k,
        .rows = rows,
        .weight = {.values = reinterpret_cast<const uint8_t*>(w), .rows = n, .cols = k},
        .output = output,
        .bias = bias,
        .y = output == GemmOutput::add ? static_cast<void*>(x) : b,
        .y_stride = n};
    return {name, 1, 2.0 * rows * n * k, [=] { vision_gemm(product, launcher); }};
  }
  Op norm(const Launcher& launcher) const {
    const VisionNorm norm = {.x = x,
                             .weight = bias,
                             .bias = bias,
                             .width = width,
                             .rows = rows,
                             .out = b,
                             .stride = width};
    return {"norm", 2, 0.0, [=] { vision_norm(norm, launcher); }};
  }
  Op rotate(const Launcher& launcher) const {
    const VisionRotate rotate = {.qkv = a,
                                 .places = places,
                                 .turns = turns,
                                 .heads = tower.heads,
                                 .head_dim = tower.head_dim,
                                 .rows = rows,
                                 .out = heads,
                                 .out_rows = rows};
    return {"rotate", 1, 0.0, [=] { vision_rotate(rotate, launcher); }};
  }
  Op attention(double pairs, const Launcher& launcher) const {
    const VisionAttention attention = {.qkv = heads,
                                       .rows = rows,
                                       .heads = tower.heads,
                                       .head_dim = tower.head_dim,
                                       .out = b,
                                       .stride = width};
    return {"attention", 1, 4.0 * pairs * width,
            [=, this] { attend_frames(attention, ends, launcher); }};
  }
};

/// Prints the time of each operation of a layer, and of all layers, for these frames.
void time_tower(const char* name, const Tower& tower, const std::vector<Frame>& frames,
                const Launcher& launcher) {
  const Layer layer(tower, frames, launcher);
  const int width = layer.width;
  double pairs = 0.0;
  for (const Frame& f : frames) pairs += std::pow(double(f.rows) * f.columns, 2);
  const Op ops[] = {layer.norm(launcher),
                    layer.gemm("qkv", GemmOutput::bias, 3 * width, width, launcher),
                    layer.rotate(launcher),
                    layer.attention(pairs, launcher),
                    layer.gemm("projection", GemmOutput::add, width, width, launcher),
                    layer.gemm("fc1", GemmOutput::gelu_tanh, layer.inner, width, launcher),
                    layer.gemm("fc2", GemmOutput::add, width, layer.inner, launcher)};
  double total = 0.0;
  for (const Op& op : ops) {
    const double us = time_us(op.run);
    total += us * op.times * tower.layers;
    std::printf("%s: %-10s %8.1f us, %5.0f TFLOP/s, %7.2f ms in all layers\n", name, op.name, us,
                op.flops / us * 1e-6, us * op.times * tower.layers * 1e-3);
  }
  std::printf("%s: %d patches, %.2f ms\n", name, layer.rows, total * 1e-3);
}

}  // namespace

void time_vision() {
  const Launcher launcher = checks::launcher_of(Kernels::native);
  vision_prepare(launcher);
  time_tower("1 image of 1,024 x 1,024", kLarge, {{64, 64}}, launcher);
  time_tower("8 images of 1,024 x 1,024", kLarge, std::vector<Frame>(8, {64, 64}), launcher);
}

}  // namespace nibble::bench
