// The operations of the vision tower against double arithmetic on samples; a row's bits alone and
// beside other images.
#include <cstring>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/checks/vision_shapes.h"
#include "backend/cuda/ops/vision/vision.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

/// q, k and v of some frames, their rotated heads and the result of attention.
struct Attention {
  Tower tower;
  std::vector<FramePlace> places;
  std::vector<int> ends;
  int rows;
  int width;
  int padded;
  uint16_t* qkv;  // [rows][3 width]
  uint16_t* heads;
  uint16_t* out;

  Attention(const Tower& shape, const std::vector<Frame>& frames)
      : tower(shape),
        places(places_of(frames)),
        ends(ends_of(frames)),
        rows(static_cast<int>(places.size())),
        width(tower.width()),
        padded(padded_head(tower.head_dim)),
        qkv(device_array<uint16_t>(int64_t{rows} * 3 * width)),
        heads(device_array<uint16_t>(int64_t{3} * tower.heads * rows * padded)),
        out(device_array<uint16_t>(int64_t{rows} * width)) {
    fill_normal(qkv, int64_t{rows} * 3 * width, 1, 2.0F);
  }
  ~Attention() {
    for (uint16_t* p : {qkv, heads, out}) cudaFree(p);
  }
  void run(const Launcher& launcher) const {
    auto* turns = device_array<float2>(64 * tower.head_dim);
    auto* device_places = to_device(places);
    vision_turns(turns, 64, tower.head_dim, launcher);
    vision_rotate({.qkv = qkv,
                   .places = device_places,
                   .turns = turns,
                   .heads = tower.heads,
                   .head_dim = tower.head_dim,
                   .rows = rows,
                   .out = heads,
                   .out_rows = rows},
                  launcher);
    attend_frames({.qkv = heads,
                   .rows = rows,
                   .heads = tower.heads,
                   .head_dim = tower.head_dim,
                   .out = out,
                   .stride = width},
                  ends, launcher);
    must(cudaDeviceSynchronize(), "attention");
    for (void* p : {static_cast<void*>(turns), static_cast<void*>(device_places)}) cudaFree(p);
  }
};

/// Element d of a head's q (part 0), k or v after rotation, in double.
struct Rotated {
  const Attention& in;
  std::vector<uint16_t> from;
  double at(int part, int head, int row, int d) const {
    const int size = in.tower.head_dim;
    const auto number = [&](int column) {
      return bf16_value(
          from[static_cast<size_t>((int64_t{row} * 3 + part) * in.width + head * size + column)]);
    };
    if (part == 2) return number(d);
    const int half = size / 2;
    const int i = d % half;
    const FramePlace& place = in.places[static_cast<size_t>(row)];
    const double angle = (i < half / 2 ? place.row : place.column) /
                         std::pow(10000.0, 2.0 * (i % (half / 2)) / half);
    return d < half ? number(d) * std::cos(angle) - number(d + half) * std::sin(angle)
                    : number(d) * std::cos(angle) + number(d - half) * std::sin(angle);
  }
};

void check_rotation(Tally& tally, const std::string& name, const Rotated& want) {
  const Attention& in = want.in;
  const auto found = to_host(in.heads, int64_t{3} * in.tower.heads * in.rows * in.padded);
  Error rotation;
  int64_t filled = 0;
  for (int n = 0; n < 600; ++n) {
    const int part = n % 3;
    const int row = static_cast<int>(hash_bits(3, n) % in.rows);
    const int head = static_cast<int>(hash_bits(4, n) % in.tower.heads);
    for (int d = 0; d < in.padded; ++d) {
      const int64_t line = (int64_t{part} * in.tower.heads + head) * in.rows + row;
      const double value = bf16_value(found[static_cast<size_t>(line * in.padded + d)]);
      if (d < in.tower.head_dim)
        rotation.add(value, want.at(part, head, row, d));
      else
        filled += value != 0.0;
    }
  }
  tally.check(rotation.value() < 3e-3, (name + ", rotation").c_str(), rotation.value());
  tally.check(filled == 0, (name + ", added columns are zero").c_str(),
              static_cast<double>(filled));
}

/// `frame` are the rows of the query's frame.
void add_row(Error& error, const Rotated& want, std::pair<int, int> frame, int row, int head,
             const uint16_t* found) {
  const int size = want.in.tower.head_dim;
  std::vector<double> weights;
  double highest = -INFINITY;
  for (int key = frame.first; key < frame.second; ++key) {
    double dot = 0.0;
    for (int d = 0; d < size; ++d) dot += want.at(0, head, row, d) * want.at(1, head, key, d);
    weights.push_back(dot / std::sqrt(size));
    highest = std::max(highest, weights.back());
  }
  double total = 0.0;
  for (double& weight : weights) total += weight = std::exp(weight - highest);
  for (int d = 0; d < size; ++d) {
    double sum = 0.0;
    for (size_t i = 0; i < weights.size(); ++i)
      sum += weights[i] / total * want.at(2, head, frame.first + static_cast<int>(i), d);
    error.add(bf16_value(found[d]), sum);
  }
}

void check_attention(Tally& tally, const std::string& name, const Tower& tower,
                     const std::vector<Frame>& frames, const Launcher& launcher) {
  const Attention all(tower, frames);
  all.run(launcher);
  const Rotated want{all, to_host(all.qkv, int64_t{all.rows} * 3 * all.width)};
  check_rotation(tally, name, want);
  const auto found = to_host(all.out, int64_t{all.rows} * all.width);
  Error error;
  for (int n = 0; n < 48; ++n) {
    const int row = n == 0 ? all.rows - 1 : static_cast<int>(hash_bits(5, n) % all.rows);
    const int head = static_cast<int>(hash_bits(6, n) % tower.heads);
    const auto end = std::ranges::upper_bound(all.ends, row);
    const std::pair frame(end == all.ends.begin() ? 0 : *(end - 1), *end);
    add_row(error, want, frame, row, head,
            &found[static_cast<size_t>(int64_t{row} * all.width + head * tower.head_dim)]);
  }
  tally.check(error.value() < 1e-2, (name + ", attention").c_str(), error.value());
  // The last frame alone.
  const Attention alone(tower, {frames.back()});
  const int64_t before = all.rows - alone.rows;
  must(cudaMemcpy(alone.qkv, all.qkv + before * 3 * all.width,
                  size_t(alone.rows) * 3 * all.width * 2, cudaMemcpyDeviceToDevice),
       "copy");
  alone.run(launcher);
  const auto bits = to_host(alone.out, int64_t{alone.rows} * all.width);
  int64_t different = 0;
  for (size_t i = 0; i < bits.size(); ++i)
    different += bits[i] != found[static_cast<size_t>(before * all.width) + i];
  tally.check(different == 0, (name + ", bits alone and beside others").c_str(),
              static_cast<double>(different));
}

double shaped(GemmOutput output, double x) {
  if (output == GemmOutput::gelu_erf) return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  if (output == GemmOutput::gelu_tanh)
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

void check_gemm(Tally& tally, const std::string& name, GemmOutput output, int rows, int n, int k,
                const Launcher& launcher) {
  const bool wide = output == GemmOutput::add;
  auto* x = device_array<uint16_t>(int64_t{rows} * k);
  auto* w = device_array<uint16_t>(int64_t{n} * k);
  auto* bias = device_array<float>(n);
  auto* y = device_array<float>(int64_t{rows} * n);
  fill_normal(x, int64_t{rows} * k, 1, 1.0F);
  fill_normal(w, int64_t{n} * k, 2, 1.5F / std::sqrt(static_cast<float>(k)));
  fill_normal(bias, n, 3, 0.7F);
  if (wide) fill_normal(y, int64_t{rows} * n, 4, 1.0F);
  vision_gemm({.packed_x = x,
               .x_stride = k,
               .rows = rows,
               .weight = {.values = reinterpret_cast<const uint8_t*>(w), .rows = n, .cols = k},
               .output = output,
               .bias = bias,
               .y = y,
               .y_stride = n},
              launcher);
  must(cudaDeviceSynchronize(), "gemm");
  const auto hx = to_host(x, int64_t{rows} * k);
  const auto hw = to_host(w, int64_t{n} * k);
  const auto hb = to_host(bias, n);
  const auto hy = to_host(y, int64_t{rows} * n);
  const auto* narrow = reinterpret_cast<const uint16_t*>(hy.data());
  Error error;
  for (int i = 0; i < 3000; ++i) {
    const int row = i == 0 ? rows - 1 : static_cast<int>(hash_bits(5, i) % rows);
    const int feature = i == 0 ? n - 1 : static_cast<int>(hash_bits(6, i) % n);
    double sum = hb[static_cast<size_t>(feature)];
    for (int c = 0; c < k; ++c)  // position c of x meets column packed_column(c) of w
      sum += bf16_value(hx[static_cast<size_t>(int64_t{row} * k + c)]) *
             bf16_value(hw[static_cast<size_t>(int64_t{feature} * k + packed_column(c))]);
    const auto at = static_cast<size_t>(int64_t{row} * n + feature);
    if (wide)
      error.add(hy[at], sum + hash_normal(4, at));
    else
      error.add(bf16_value(narrow[at]), shaped(output, sum));
  }
  tally.check(error.value() < (wide ? 1e-5 : 3e-3), name.c_str(), error.value());
  for (void* p : {static_cast<void*>(x), static_cast<void*>(w), static_cast<void*>(bias),
                  static_cast<void*>(y)})
    cudaFree(p);
}

/// Positions of some frames' rows and their layer norms.
struct Rows {
  Tower tower;
  std::vector<FramePlace> places;
  int rows;
  int width;
  int stride;
  std::vector<float> x;
  std::vector<uint16_t> out;

  Rows(const Tower& shape, const std::vector<Frame>& frames, const Launcher& launcher)
      : tower(shape),
        places(places_of(frames)),
        rows(static_cast<int>(places.size())),
        width(tower.width()),
        stride(tower.padded()) {
    const int64_t table_size = int64_t{tower.side} * tower.side * width;
    auto* table = device_array<float>(table_size);
    fill_normal(table, table_size, 1, 1.0F);
    auto* device_x = device_array<float>(int64_t{rows} * width);
    auto* device_places = to_device(places);
    auto* weight = device_array<float>(width);
    auto* bias = device_array<float>(width);
    fill_normal(weight, width, 2, 0.3F, 1.0F);
    fill_normal(bias, width, 3, 0.3F);
    auto* device_out = device_array<uint16_t>(int64_t{rows} * stride);
    vision_positions({.places = device_places,
                      .table = table,
                      .side = tower.side,
                      .width = width,
                      .rows = rows,
                      .x = device_x},
                     launcher);
    vision_norm({.x = device_x,
                 .weight = weight,
                 .bias = bias,
                 .width = width,
                 .rows = rows,
                 .out = device_out,
                 .stride = stride},
                launcher);
    must(cudaDeviceSynchronize(), "rows");
    x = to_host(device_x, int64_t{rows} * width);
    out = to_host(device_out, int64_t{rows} * stride);
    for (void* p : {static_cast<void*>(table), static_cast<void*>(device_x),
                    static_cast<void*>(device_places), static_cast<void*>(weight),
                    static_cast<void*>(bias), static_cast<void*>(device_out)})
      cudaFree(p);
  }
  double position(int row, int c) const {
    const FramePlace& place = places[static_cast<size_t>(row)];
    const auto at = [&](int index, int count) {
      return count > 1 ? index * (tower.side - 1.0) / (count - 1) : 0.0;
    };
    const double y = at(place.row, place.rows);
    const double z = at(place.column, place.columns);
    double sum = 0.0;
    for (int corner = 0; corner < 4; ++corner) {
      const int line = std::min(static_cast<int>(y) + corner / 2, tower.side - 1);
      const int column = std::min(static_cast<int>(z) + corner % 2, tower.side - 1);
      const double share = (corner / 2 == 1 ? y - std::floor(y) : 1.0 - y + std::floor(y)) *
                           (corner % 2 == 1 ? z - std::floor(z) : 1.0 - z + std::floor(z));
      sum += share * hash_normal(1, (uint64_t(line) * tower.side + column) * width + c);
    }
    return sum;
  }
};

void check_rows(Tally& tally, const std::string& name, const Rows& in) {
  Error positions;
  Error norms;
  int64_t filled = 0;
  for (int n = 0; n < 64; ++n) {
    const int row = n == 0 ? in.rows - 1 : static_cast<int>(hash_bits(5, n) % in.rows);
    const float* x = &in.x[static_cast<size_t>(int64_t{row} * in.width)];
    double mean = 0.0;
    double square = 0.0;
    for (int c = 0; c < in.width; ++c) {
      positions.add(x[c], in.position(row, c));
      mean += static_cast<double>(x[c]) / in.width;
    }
    for (int c = 0; c < in.width; ++c) square += std::pow(x[c] - mean, 2) / in.width;
    for (int c = 0; c < in.stride; ++c) {
      const double value = bf16_value(in.out[static_cast<size_t>(int64_t{row} * in.stride + c)]);
      if (c >= in.width)
        filled += value != 0.0;
      else
        norms.add(value,
                  (x[c] - mean) / std::sqrt(square + 1e-6) * (0.3F * hash_normal(2, c) + 1.0F) +
                      0.3F * hash_normal(3, c));
    }
  }
  tally.check(positions.value() < 1e-4, (name + ", positions").c_str(), positions.value());
  tally.check(norms.value() < 3e-3, (name + ", norm").c_str(), norms.value());
  tally.check(filled == 0, (name + ", added columns are zero").c_str(),
              static_cast<double>(filled));
}

}  // namespace

void check_vision(Tally& tally) {
  for (const Kernels kernels : {Kernels::native, Kernels::portable}) {
    const Launcher launcher = launcher_of(kernels);
    vision_prepare(launcher);
    const std::string kind = kernels == Kernels::portable ? "portable, " : "";
    const std::vector<Frame> frames = {{2, 2}, {16, 10}, {8, 32}, {24, 20}};
    for (const auto& [name, tower] :
         {std::pair("large", kLarge), std::pair("small", kSmall), std::pair("middle", kMiddle)}) {
      check_attention(tally, kind + name, tower, frames, launcher);
      check_rows(tally, kind + name, Rows(tower, frames, launcher));
    }
    for (const auto& [name, output] :
         {std::pair("bias", GemmOutput::bias), std::pair("gelu tanh", GemmOutput::gelu_tanh),
          std::pair("gelu erf", GemmOutput::gelu_erf), std::pair("add", GemmOutput::add)})
      for (const auto& [rows, n, k] :
           {std::tuple(1, 96, 128), std::tuple(200, 288, 128), std::tuple(700, 1152, 1152),
            std::tuple(300, 4352, 1152), std::tuple(129, 1152, 4352)})
        check_gemm(tally,
                   kind + name + " " + std::to_string(rows) + " x " + std::to_string(n) + " x " +
                       std::to_string(k),
                   output, rows, n, k, launcher);
  }
}

}  // namespace nibble::checks
