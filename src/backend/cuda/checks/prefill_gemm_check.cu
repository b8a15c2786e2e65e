// Prompt GEMMs and the expert path against double arithmetic on samples, with odd shapes; bits
// equal whatever the number of tokens; timings at the shapes of the 35B.
#include <cstring>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/route/prompt_route.h"
#include "backend/cuda/weights/device_checks.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

/// A weight whose elements the host can name: [E, N, K].
struct HashWeight {
  Format format;
  FactorLayout layout;
  int experts, n, k;
  uint32_t seed;
  DeviceLinear device;

  static HashWeight make(Format format, int experts, int n, int k, uint32_t seed,
                         FactorLayout layout = FactorLayout::scalar);
  double at(int e, int row, int col) const;
  int64_t fp8_scale_index(int e, int row, int col) const {
    if (layout == FactorLayout::scalar) return e;
    if (layout == FactorLayout::row) return int64_t{e} * n + row;
    return (int64_t{e} * ((n + 127) / 128) + row / 128) * ((k + 127) / 128) + col / 128;
  }
  int64_t fp8_scale_count() const { return fp8_scale_index(experts - 1, n - 1, k - 1) + 1; }
  void free() const {
    cudaFree(const_cast<uint8_t*>(device.values));
    cudaFree(const_cast<uint8_t*>(device.scales));
    cudaFree(const_cast<float*>(device.factors));
  }
};

HashWeight HashWeight::make(Format format, int experts, int n, int k, uint32_t seed,
                            FactorLayout layout) {
  HashWeight w{format,
               layout,
               experts,
               n,
               k,
               seed,
               {.format = format, .layout = layout, .rows = n, .cols = k}};
  const int64_t count = int64_t{experts} * n * k;
  w.device.factor_stride = w.fp8_scale_count() / experts;
  if (format == Format::nvfp4) w.device.factor_stride = 1;
  if (format == Format::bf16) {
    auto* values = device_array<uint16_t>(count);
    fill_normal(values, count, seed, 0.05F);
    w.device.values = reinterpret_cast<const uint8_t*>(values);
    return w;
  }
  const int64_t bytes = format == Format::nvfp4 ? count / 2 : count;
  auto* values = device_array<uint8_t>(bytes);
  fill_bytes(values, bytes, seed, format == Format::nvfp4 ? 0xFF : 0xBF);
  lay_codes(values, bytes, format, {});
  w.device.values = values;
  if (format == Format::nvfp4) {
    auto* block = device_array<uint8_t>(count / 16);
    fill_bytes(block, count / 16, seed + 1, 0x3F);
    auto* global = device_array<float>(experts);
    fill_normal(global, experts, seed + 2, 0.001F, 0.01F);
    w.device.scales = block;
    w.device.factors = global;
  } else {
    auto* factors = device_array<float>(w.fp8_scale_count());
    fill_normal(factors, w.fp8_scale_count(), seed + 1, 0.003F, 0.02F);
    w.device.factors = factors;
  }
  return w;
}

double HashWeight::at(int e, int row, int col) const {
  const uint64_t i = (uint64_t(e) * n + row) * k + col;
  if (format == Format::bf16) return round_bf16(0.05F * hash_normal(seed, i));
  if (format == Format::fp8) {
    const float scale = 0.003F * hash_normal(seed + 1, fp8_scale_index(e, row, col)) + 0.02F;
    return double{e4m3_value(hash_bits(seed, i) & 0xBF)} * scale;
  }
  const uint32_t byte = hash_bits(seed, i / 2) & 255;
  const uint32_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
  const float global = 0.001F * hash_normal(seed + 2, e) + 0.01F;
  return e2m1_value(code) * e4m3_value(hash_bits(seed + 1, i / 16) & 0x3F) * global;
}

struct Check {
  Launcher native = launcher_of(Kernels::native);
  Launcher portable = launcher_of(Kernels::portable);
  Tally& tally;

  void run_dense(const char* name, const HashWeight& w, GemmOutput output, int rows,
                 const Launcher& launcher);
  void run_moe(const char* name, Format format, int rows, int experts, int top_k, int hidden,
               int width, const Launcher& launcher);
  void time_dense(const char* name, Format format, GemmOutput output, int rows, int n, int k);
  void time_moe(int rows);
};

constexpr uint32_t kX = 11;
constexpr uint32_t kY = 12;

double x_at(int64_t row, int stride, int col) {
  return round_bf16(hash_normal(kX, static_cast<uint64_t>(row * stride + col)));
}

/// x in packed column order, as the GEMMs read it.
void fill_packed(uint16_t* x, int64_t rows, int stride) {
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        const int64_t column = packed_column(static_cast<int>(i % stride));
        x[i] = to_bf16(hash_normal(kX, i / stride * stride + column));
      },
      rows * stride);
}

double dot(const HashWeight& w, int e, int64_t row, int stride, int n) {
  double sum = 0.0;
  for (int c = 0; c < w.k; ++c) sum += x_at(row, stride, c) * w.at(e, n, c);
  return sum;
}

void Check::run_dense(const char* name, const HashWeight& w, GemmOutput output, int rows,
                      const Launcher& launcher) {
  const int stride = w.k + 64;
  auto* x = device_array<uint16_t>(int64_t{rows} * stride);
  fill_packed(x, rows, stride);
  const bool paired = output == GemmOutput::swiglu;
  const HashWeight up = paired ? HashWeight::make(w.format, 1, w.n, w.k, w.seed + 10, w.layout) : w;
  const bool wide = output == GemmOutput::f32;
  const int64_t y_stride = w.n + (w.n % 4 == 0 ? 4 : 3);
  const int64_t count = rows * y_stride;
  auto* y = device_array<float>(count);
  const auto launch = [&](int first, int number, void* out) {
    prefill_gemm({.packed_x = x + int64_t{first} * stride,
                  .x_stride = stride,
                  .rows = number,
                  .weight = w.device,
                  .up = up.device,
                  .output = output,
                  .y = out,
                  .y_stride = y_stride},
                 launcher);
    must(cudaDeviceSynchronize(), name);
  };
  launch(0, rows, y);
  const auto bits = to_host(reinterpret_cast<uint16_t*>(y), count * (wide ? 2 : 1));
  const auto value = [&](int64_t i) {
    const uint32_t word = wide ? reinterpret_cast<const uint32_t*>(bits.data())[i]
                               : uint32_t{bits[static_cast<size_t>(i)]} << 16;
    return float_of(word);
  };
  Error error;
  for (int i = 0; i < 3000; ++i) {
    const int t = static_cast<int>(hash_bits(3, i) % rows);
    const int n = static_cast<int>(hash_bits(4, i) % w.n);
    double want = dot(w, 0, t, stride, n);
    if (paired) want = silu_of(want) * dot(up, 0, t, stride, n);
    error.add(value(t * y_stride + (paired ? packed_position(n) : n)), want);
  }
  tally.check(error.value() < (wide ? (w.layout == FactorLayout::block128 ? 3e-3 : 1e-5) : 3.5e-3),
              name, error.value());
  if (rows > 8) {
    const int first = rows / 2;
    const int number = std::min(5, rows - first);
    auto* z = device_array<float>(number * y_stride);
    launch(first, number, z);
    const auto again = to_host(reinterpret_cast<uint16_t*>(z), number * y_stride * (wide ? 2 : 1));
    int64_t different = 0;
    const int width = wide ? 2 : 1;
    for (int64_t r = 0; r < number; ++r)
      for (int64_t c = 0; c < int64_t{w.n} * width; ++c)
        different += again[r * y_stride * width + c] != bits[(first + r) * y_stride * width + c];
    tally.check(different == 0, (std::string(name) + ": alone, to the bit").c_str(),
                static_cast<double>(different));
    cudaFree(z);
  }
  if (paired) up.free();
  cudaFree(x);
  cudaFree(y);
}

/// The whole expert path of `rows` tokens.
struct Moe {
  int rows, experts, top_k, hidden, width;
  HashWeight gate, up, down;
  uint16_t *x, *inner, *y, *normed;
  float *h, *norm;
  float *logits, *weight;
  int32_t *chosen, *scratch, *token, *position, *tile_count;
  ExpertTile* tiles;

  Moe(Format format, int t, int e, int k, int d, int f)
      : rows(t),
        experts(e),
        top_k(k),
        hidden(d),
        width(f),
        gate(HashWeight::make(format, e, f, d, 100)),
        up(HashWeight::make(format, e, f, d, 200)),
        down(HashWeight::make(format, e, d, f, 300)) {
    const int64_t a = int64_t{t} * k;
    x = device_array<uint16_t>(int64_t{t} * d);
    h = device_array<float>(int64_t{t} * d);
    normed = device_array<uint16_t>(int64_t{t} * d);
    norm = device_array<float>(d);
    fill_normal(norm, d, 14, 0.1F, 1.0F);
    inner = device_array<uint16_t>(a * f);
    y = device_array<uint16_t>(a * d);
    logits = device_array<float>(int64_t{t} * e);
    weight = device_array<float>(a);
    chosen = device_array<int32_t>(a);
    scratch = device_array<int32_t>(route_scratch_ints(a, e));
    token = device_array<int32_t>(a);
    position = device_array<int32_t>(a);
    tiles = device_array<ExpertTile>(route_tiles_max(a, e));
    tile_count = device_array<int32_t>(1);
    fill_packed(x, t, d);
    fill_normal(h, int64_t{t} * d, kY, 1.0F);
    fill_normal(logits, int64_t{t} * e, 13, 1.5F);
  }
  ~Moe() {
    for (void* p :
         {static_cast<void*>(x), static_cast<void*>(h), static_cast<void*>(norm),
          static_cast<void*>(normed), static_cast<void*>(inner), static_cast<void*>(y),
          static_cast<void*>(logits), static_cast<void*>(weight), static_cast<void*>(chosen),
          static_cast<void*>(scratch), static_cast<void*>(token), static_cast<void*>(position),
          static_cast<void*>(tiles), static_cast<void*>(tile_count)})
      cudaFree(p);
    gate.free();
    up.free();
    down.free();
  }
  void route(const Launcher& launcher) {
    route_top_k({.logits = logits,
                 .logits_stride = experts,
                 .rows = rows,
                 .experts = experts,
                 .top_k = top_k,
                 .chosen = chosen,
                 .chosen_weight = weight},
                launcher);
  }
  void sort(const Launcher& launcher) {
    route_sort({.chosen = chosen,
                .assignments = rows * top_k,
                .experts = experts,
                .top_k = top_k,
                .scratch = scratch,
                .token = token,
                .position = position,
                .tiles = tiles,
                .tile_count = tile_count},
               launcher);
  }
  void raise(const Launcher& launcher) {
    prefill_gemm({.packed_x = x,
                  .x_stride = hidden,
                  .rows = rows * top_k,
                  .weight = gate.device,
                  .up = up.device,
                  .output = GemmOutput::swiglu,
                  .y = inner,
                  .y_stride = width,
                  .tiles = tiles,
                  .tile_count = tile_count,
                  .gather = token},
                 launcher);
  }
  void lower(const Launcher& launcher) {
    prefill_gemm({.packed_x = inner,
                  .x_stride = width,
                  .rows = rows * top_k,
                  .weight = down.device,
                  .output = GemmOutput::bf16,
                  .y = y,
                  .y_stride = hidden,
                  .tiles = tiles,
                  .tile_count = tile_count},
                 launcher);
  }
  /// Ends the feed-forward as the model's prompts do.
  void combine(const Launcher& launcher) {
    combine_norm({.base = {.rows = rows,
                           .hidden = hidden,
                           .top_k = top_k,
                           .weights = weight,
                           .h = h,
                           .norm = norm,
                           .x = reinterpret_cast<uint16_t*>(normed),
                           .x_stride = hidden,
                           .eps = 1e-6F,
                           .packed_from = 0},
                  .y = reinterpret_cast<const uint16_t*>(y),
                  .position = position},
                 launcher);
  }
};

void Check::run_moe(const char* name, Format format, int rows, int experts, int top_k, int hidden,
                    int width, const Launcher& launcher) {
  Moe moe(format, rows, experts, top_k, hidden, width);
  moe.route(launcher);
  moe.sort(launcher);
  moe.raise(launcher);
  moe.lower(launcher);
  moe.combine(launcher);
  must(cudaDeviceSynchronize(), name);
  const auto out = to_host(moe.h, int64_t{rows} * hidden);
  Error error;
  const int samples = hidden > 1000 ? 4 : 24;
  for (int i = 0; i < samples; ++i) {
    const int t = static_cast<int>(hash_bits(5, i) % rows);
    std::vector<std::pair<double, int>> order;
    for (int e = 0; e < experts; ++e)
      order.push_back({-1.5F * hash_normal(13, static_cast<uint64_t>(t) * experts + e), e});
    std::sort(order.begin(), order.end());
    double total = 0.0;
    for (int s = 0; s < top_k; ++s) total += std::exp(-order[s].first);
    std::vector<double> sum(hidden);
    for (int s = 0; s < top_k; ++s) {
      const int e = order[s].second;
      std::vector<double> inner(width);
      for (int f = 0; f < width; ++f)
        inner[f] = silu_of(dot(moe.gate, e, t, hidden, f)) * dot(moe.up, e, t, hidden, f);
      for (int d = 0; d < hidden; d += 7) {
        double y = 0.0;
        for (int f = 0; f < width; ++f) y += inner[f] * moe.down.at(e, d, f);
        sum[d] += std::exp(-order[s].first) / total * y;
      }
    }
    for (int d = 0; d < hidden; d += 7) {
      const double base = hash_normal(kY, static_cast<uint64_t>(t) * hidden + d);
      error.add(out[int64_t{t} * hidden + d], base + sum[d]);
    }
  }
  tally.check(error.value() < 4e-3, name, error.value());
  const auto normed = to_host(moe.normed, int64_t{rows} * hidden);
  Error norm_error;
  for (int64_t t = 0; t < rows; t += 17) {
    double squares = 0.0;
    for (int d = 0; d < hidden; ++d) squares += double{out[t * hidden + d]} * out[t * hidden + d];
    for (int d = 0; d < hidden; ++d)
      norm_error.add(bf16_value(normed[t * hidden + packed_position(d)]),
                     out[t * hidden + d] / std::sqrt(squares / hidden + 1e-6) *
                         (0.1F * hash_normal(14, d) + 1.0F));
  }
  tally.check(norm_error.value() < 2.5e-3, (std::string(name) + " norm").c_str(),
              norm_error.value());
}

void Check::time_dense(const char* name, Format format, GemmOutput output, int rows, int n, int k) {
  const HashWeight w = HashWeight::make(format, 1, n, k, 50);
  const HashWeight up = HashWeight::make(format, 1, n, k, 60);
  auto* x = device_array<uint16_t>(int64_t{rows} * k);
  fill_normal(x, int64_t{rows} * k, kX, 1.0F);
  auto* y = device_array<float>(int64_t{rows} * n);
  for (const Launcher& launcher : {native, portable}) {
    const double us = time_us([&] {
      prefill_gemm({.packed_x = x,
                    .x_stride = k,
                    .rows = rows,
                    .weight = w.device,
                    .up = up.device,
                    .output = output,
                    .y = y,
                    .y_stride = n},
                   launcher);
    });
    const double flops = 2.0 * rows * n * k * (output == GemmOutput::swiglu ? 2 : 1);
    tally.print("time %-10s %-40s %9.1f us %7.1f TFLOP/s %5.1f %% of 790",
                launcher.card.has_wgmma() ? "wgmma" : "mma.sync", name, us, flops / us * 1e-6,
                flops / us * 1e-6 / 7.9);
  }
  w.free();
  up.free();
  cudaFree(x);
  cudaFree(y);
}

void Check::time_moe(int rows) {
  Moe moe(Format::nvfp4, rows, 256, 8, 2048, 512);
  moe.route(native);
  moe.sort(native);
  const double up_flops = 2.0 * rows * 8 * 1024 * 2048;
  for (const Launcher& launcher : {native, portable}) {
    const char* name = launcher.card.has_wgmma() ? "wgmma" : "mma.sync";
    const double raise = time_us([&] { moe.raise(launcher); });
    const double lower = time_us([&] { moe.lower(launcher); });
    tally.print("time %-10s experts T=%d gate+up %.1f us %.1f TFLOP/s, down %.1f us %.1f TFLOP/s",
                name, rows, raise, up_flops / raise * 1e-6, lower, up_flops / 2 / lower * 1e-6);
  }
  tally.print("time experts T=%d top-k %.1f us, sort %.1f us, combine %.1f us", rows,
              time_us([&] { moe.route(native); }), time_us([&] { moe.sort(native); }),
              time_us([&] { moe.combine(native); }));
}

void all_checks(Check& check) {
  for (const Launcher& launcher : {check.portable, check.native}) {
    const std::string tag = launcher.card.kernels == Kernels::portable ? "portable " : "native ";
    for (const auto format : {Format::bf16, Format::fp8, Format::nvfp4}) {
      const char* formats[] = {"bf16", "fp8", "nvfp4"};
      const std::string kind = tag + formats[static_cast<int>(format)];
      const int shapes[][3] = {{300, 512, 2048}, {130, 259, 192}, {1, 33, 64},
                               {70, 300, 128},   {257, 24, 320},  {129, 192, 256}};
      for (const auto& [t, n, k] : shapes) {
        const HashWeight w = HashWeight::make(format, 1, n, k, 40);
        const std::string at =
            " " + std::to_string(t) + "x" + std::to_string(n) + "x" + std::to_string(k);
        check.run_dense((kind + at).c_str(), w, GemmOutput::bf16, t, launcher);
        check.run_dense((kind + at + " f32").c_str(), w, GemmOutput::f32, t, launcher);
        if (n % 64 == 0)
          check.run_dense((kind + at + " swiglu").c_str(), w, GemmOutput::swiglu, t, launcher);
        w.free();
      }
      check.run_moe((kind + " experts small").c_str(), format, 203, 16, 4, 256, 64, launcher);
      check.run_moe((kind + " experts odd").c_str(), format, 77, 24, 3, 320, 192, launcher);
    }
    for (const auto layout : {FactorLayout::row, FactorLayout::block128}) {
      const HashWeight w = HashWeight::make(Format::fp8, 1, 384, 320, 40, layout);
      const std::string kind = tag + (layout == FactorLayout::row ? "fp8 row" : "fp8 block128");
      check.run_dense(kind.c_str(), w, GemmOutput::f32, 140, launcher);
      check.run_dense((kind + " swiglu").c_str(), w, GemmOutput::swiglu, 140, launcher);
      w.free();
    }
    check.run_moe((tag + "nvfp4 experts real").c_str(), Format::nvfp4, 1030, 256, 8, 2048, 512,
                  launcher);
  }
}

}  // namespace

void check_prefill_gemm(Tally& tally) {
  Check check{.tally = tally};
  for (const auto& launcher : {check.native, check.portable}) prefill_gemm_prepare(launcher);
  all_checks(check);
}

void time_prefill_gemm(Tally& tally) {
  Check check{.tally = tally};
  for (const auto& launcher : {check.native, check.portable}) prefill_gemm_prepare(launcher);
  constexpr int kTokens = 8192;
  const auto to_bf16 = [&](const char* name, Format format, int n, int k) {
    check.time_dense(name, format, GemmOutput::bf16, kTokens, n, k);
  };
  to_bf16("bf16 delta qkv 8192x2048", Format::bf16, 8192, 2048);
  to_bf16("fp8 delta qkv 8192x2048", Format::fp8, 8192, 2048);
  to_bf16("nvfp4 delta qkv 8192x2048", Format::nvfp4, 8192, 2048);
  to_bf16("fp8 out 2048x4096", Format::fp8, 2048, 4096);
  check.time_dense("nvfp4 shared swiglu 512x2048", Format::nvfp4, GemmOutput::swiglu, kTokens, 512,
                   2048);
  check.time_dense("bf16 router 256x2048 f32", Format::bf16, GemmOutput::f32, kTokens, 256, 2048);
  check.time_dense("bf16 gate 32x2048 f32", Format::bf16, GemmOutput::f32, kTokens, 32, 2048);
  check.time_moe(8192);
  check.time_moe(1024);
}

}  // namespace nibble::checks
