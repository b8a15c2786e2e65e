// The sums of calibration against sums in double on the host: random rows, some with NaN or
// infinity, gathered for experts, some of which get none; twice, as passes add up. Then timings at
// the shapes of the 35B. Usage: input_sums_check [time]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "backend/cuda/checks/opened_device.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/runtime/device_memory.h"
#include "tensor/float_formats.h"

namespace nibble::cuda {
namespace {

template <typename T>
DeviceBuffer to_device(const std::vector<T>& values) {
  DeviceBuffer buffer =
      DeviceBuffer::allocate(checks::opened_device(),
                             static_cast<int64_t>(values.size() * sizeof(T)), "a test")
          .value();
  CUDA_CHECK(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice));
  return buffer;
}

template <typename T>
std::vector<T> to_host(const DeviceBuffer& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.bytes()) / sizeof(T));
  CUDA_CHECK(cudaMemcpy(values.data(), buffer.as<void>(), values.size() * sizeof(T),
                        cudaMemcpyDeviceToHost));
  return values;
}

/// Rows [rows, cols] in plain order, as BF16 holds them; padded and packed on the device.
struct Rows {
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;
  std::vector<float> plain;
  DeviceBuffer device;

  Rows(int count, int width, std::mt19937& random) : rows(count), cols(width) {
    stride = (cols + 255) / 256 * 256;
    std::normal_distribution<float> normal;
    plain.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (float& x : plain) x = bf16_to_float(float_to_bf16(normal(random)));
    for (int row = 3; row < rows; row += 50)
      at(row, row * 7 % cols) = row % 100 < 50 ? std::numeric_limits<float>::quiet_NaN()
                                               : std::numeric_limits<float>::infinity();
    std::vector<uint16_t> packed(static_cast<size_t>(rows * stride));
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < cols; ++i)
        packed[static_cast<size_t>(row * stride + packed_position(i))] = float_to_bf16(at(row, i));
    device = to_device(packed);
  }
  float& at(int row, int i) { return plain[static_cast<size_t>(row * cols + i)]; }
  bool sound(int row) {
    return std::all_of(&at(row, 0), &at(row, 0) + cols, [](float x) { return std::isfinite(x); });
  }
};

struct Expected {
  double amax = 0;
  int64_t sound = 0, bad = 0;
  std::vector<double> moment;

  Expected(Rows& x, const std::vector<int32_t>& list, MomentKind kind) {
    const int k = x.cols;
    moment.resize(static_cast<size_t>(k) * (kind == MomentKind::full     ? static_cast<size_t>(k)
                                            : kind == MomentKind::blocks ? 16U
                                                                         : 1U));
    for (const int row : list) {
      if (!x.sound(row)) {
        ++bad;
        continue;
      }
      ++sound;
      for (int i = 0; i < k; ++i) {
        const double a = x.at(row, i);
        amax = std::max(amax, std::fabs(a));
        if (kind == MomentKind::diagonal) moment[static_cast<size_t>(i)] += a * a;
        if (kind == MomentKind::blocks)
          for (int j = 0; j < 16; ++j)
            moment[static_cast<size_t>(i * 16 + j)] += a * x.at(row, i / 16 * 16 + j);
        if (kind == MomentKind::full)
          for (int j = i; j < k; ++j) moment[static_cast<size_t>(i * k + j)] += a * x.at(row, j);
      }
    }
  }
};

int failures = 0;

void fail(const std::string& what) {
  if (++failures <= 20) std::printf("WRONG %s\n", what.c_str());
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                 const std::string& what) {
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::fabs(found[i] - expected[i]) <= 2e-5 * largest) continue;
    return fail(concat(what, ", place ", i, ": ", found[i], " for ", expected[i]));
  }
}

class InputSums {
 public:
  InputSums(MomentKind kind, int cols) : kind_(kind), cols_(cols) {}
  void of_one_input();
  void of_experts();

 private:
  MomentKind kind() const { return kind_; }
  int cols() const { return cols_; }

  /// Two passes over `in`, compared with `expected` of each input.
  void expect(const InputRows& in, const std::vector<Expected>& expected) {
    const auto count = static_cast<size_t>(in.inputs);
    const DeviceBuffer amax = to_device(std::vector<float>(static_cast<size_t>(in.x_rows)));
    const DeviceBuffer row = to_device(std::vector<int32_t>(static_cast<size_t>(in.assignments)));
    const SumScratch scratch{.row_amax = amax.as<float>(), .row = row.as<int32_t>()};
    const DeviceBuffer seen = to_device(std::vector<SeenRows>(count));
    std::vector<DeviceBuffer> moments;
    std::vector<double*> pointers;
    for (const Expected& one : expected) {
      moments.push_back(to_device(std::vector<double>(one.moment.size())));
      pointers.push_back(moments.back().as<double>());
    }
    const bool skips = count > 2;
    if (skips) pointers[1] = nullptr;
    const DeviceBuffer table = to_device(pointers);
    for (int pass = 0; pass < 2; ++pass) {
      CUDA_CHECK(see_rows(in, scratch, seen.as<SeenRows>(), nullptr));
      CUDA_CHECK(add_moments(in, scratch, kind(), table.as<double*>(), nullptr));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    const auto found = to_host<SeenRows>(seen);
    for (size_t i = 0; i < count; ++i) {
      const std::string what = concat("kind ", static_cast<int>(kind_), ", ", cols_, " columns, ",
                                      in.assignments, " rows, input ", i);
      if (found[i].amax != expected[i].amax || found[i].sound != 2 * expected[i].sound ||
          found[i].bad != 2 * expected[i].bad)
        fail(
            concat(what, ": amax ", found[i].amax, ", rows ", found[i].sound, " + ", found[i].bad));
      std::vector<double> twice = expected[i].moment;
      const bool skipped = skips && i == 1;
      for (double& x : twice) x = skipped ? 0 : 2 * x;
      expect_near(to_host<double>(moments[i]), twice, what);
    }
  }

  MomentKind kind_;
  int cols_;
};

void InputSums::of_one_input() {
  std::mt19937 random(7);
  for (const int rows : {1, 33, 500}) {
    Rows x(rows, cols(), random);
    std::vector<int32_t> all(static_cast<size_t>(rows));
    for (int row = 0; row < rows; ++row) all[static_cast<size_t>(row)] = row;
    const InputRows in{.packed_x = x.device.as<uint16_t>(),
                       .x_stride = x.stride,
                       .x_rows = rows,
                       .cols = cols(),
                       .assignments = rows};
    expect(in, {Expected(x, all, kind())});
  }
}

/// Experts as route_sort lays them out: tiles of 128, gathered rows; expert 2 has none.
void InputSums::of_experts() {
  std::mt19937 random(9);
  Rows x(300, cols(), random);
  const std::vector<int> counts = {130, 40, 0, 257, 1};
  std::vector<int32_t> token;
  std::vector<ExpertTile> tiles;
  std::vector<Expected> expected;
  for (size_t e = 0; e < counts.size(); ++e) {
    std::vector<int32_t> list;
    for (int i = 0; i < counts[e]; ++i) list.push_back(static_cast<int32_t>(random() % 300));
    for (int i = 0; i < counts[e]; i += kTileTokens)
      tiles.push_back({static_cast<int32_t>(e), static_cast<int32_t>(token.size()) + i,
                       std::min(kTileTokens, counts[e] - i)});
    token.insert(token.end(), list.begin(), list.end());
    expected.emplace_back(x, list, kind());
  }
  const auto experts = static_cast<int32_t>(counts.size());
  const DeviceBuffer tokens = to_device(token);
  const auto tile_count = static_cast<int32_t>(tiles.size());
  const DeviceBuffer made = to_device(std::vector<int32_t>{tile_count});
  tiles.push_back({1, 5, 100});  // beyond the count: not read
  const DeviceBuffer device_tiles = to_device(tiles);
  const DeviceBuffer segments =
      DeviceBuffer::allocate(checks::opened_device(), experts * int64_t{sizeof(Segment)}, "a test")
          .value();
  CUDA_CHECK(expert_segments(device_tiles.as<ExpertTile>(), made.as<int32_t>(), tile_count + 1,
                             experts, segments.as<Segment>(), nullptr));
  const InputRows in{.packed_x = x.device.as<uint16_t>(),
                     .x_stride = x.stride,
                     .x_rows = 300,
                     .cols = cols(),
                     .assignments = static_cast<int32_t>(token.size()),
                     .gather = tokens.as<int32_t>(),
                     .segments = segments.as<Segment>(),
                     .inputs = experts};
  expect(in, expected);
}

/// Median of seven, in microseconds.
double time_us(const std::function<void()>& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 8; ++i) {
    CUDA_CHECK(cudaEventRecord(begin));
    work();
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0) times.push_back(1e3F * ms);
  }
  std::ranges::sort(times);
  return static_cast<double>(times[3]);
}

/// 16,384 tokens, each at 8 of 256 experts, gate and up; and the same tokens as one input.
void time_kind(MomentKind kind, const char* name, int experts, int cols) {
  constexpr int kTokens = 16384;
  std::mt19937 random(1);
  Rows x(kTokens, cols, random);
  const int assignments = experts > 1 ? 8 * kTokens : kTokens;
  std::vector<int32_t> token(static_cast<size_t>(assignments));
  std::vector<Segment> segments;
  for (int32_t& t : token) t = static_cast<int32_t>(random() % kTokens);
  for (int e = 0; e < experts; ++e)
    segments.push_back({assignments / experts * e, assignments / experts * (e + 1)});
  const DeviceBuffer tokens = to_device(token);
  const DeviceBuffer parts = to_device(segments);
  const DeviceBuffer amax = to_device(std::vector<float>(kTokens));
  const DeviceBuffer row = to_device(token);
  const DeviceBuffer seen = to_device(std::vector<SeenRows>(static_cast<size_t>(experts)));
  const int64_t width = kind == MomentKind::full ? cols : kind == MomentKind::blocks ? 16 : 1;
  const DeviceBuffer moments =
      DeviceBuffer::allocate(checks::opened_device(), int64_t{8} * experts * cols * width, "a test")
          .value();
  std::vector<double*> pointers;
  for (int e = 0; e < experts; ++e) pointers.push_back(moments.as<double>() + e * cols * width);
  const DeviceBuffer table = to_device(pointers);
  const InputRows in{.packed_x = x.device.as<uint16_t>(),
                     .x_stride = x.stride,
                     .x_rows = kTokens,
                     .cols = cols,
                     .assignments = assignments,
                     .gather = tokens.as<int32_t>(),
                     .segments = parts.as<Segment>(),
                     .inputs = experts};
  const SumScratch scratch{.row_amax = amax.as<float>(), .row = row.as<int32_t>()};
  const double see =
      time_us([&] { CUDA_CHECK(see_rows(in, scratch, seen.as<SeenRows>(), nullptr)); });
  const double add =
      time_us([&] { CUDA_CHECK(add_moments(in, scratch, kind, table.as<double*>(), nullptr)); });
  const double flops =
      2.0 * assignments * cols * static_cast<double>(width) / (kind == MomentKind::full ? 2 : 1);
  std::printf("%-8s %3d inputs of %d columns: rows %.0f us, sums %.0f us, %.1f useful TFLOP/s\n",
              name, experts, cols, see, add, flops / add / 1e6);
}

int run(bool timed) {
  for (const MomentKind kind : {MomentKind::diagonal, MomentKind::blocks, MomentKind::full})
    for (const int cols : {64, 192, 512}) {
      InputSums(kind, cols).of_one_input();
      InputSums(kind, cols).of_experts();
    }
  std::printf("%s\n", failures == 0 ? "sums of calibration: as in double" : "FAILED");
  if (!timed) return failures == 0 ? 0 : 1;
  for (const int experts : {1, 256})
    for (const int cols : {512, 2048}) {
      time_kind(MomentKind::blocks, "blocks", experts, cols);
      time_kind(MomentKind::full, "full", experts, cols);
    }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nibble::cuda

int main(int argc, char** argv) {
  if (const auto device = nibble::describe_cuda_device(); !device.ok()) {
    std::printf("skipped: %s\n", device.error().message.c_str());
    return 0;
  }
  return nibble::cuda::run(argc > 1 && std::strcmp(argv[1], "time") == 0);
}
