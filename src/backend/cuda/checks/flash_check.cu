// Prompt attention over pages against double arithmetic on samples, with unused cache lines NaN;
// bits equal however a prompt is cut; timings at the 35B's shape.
#include <cstring>
#include <memory>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/attention/flash_prefill.h"
#include "model/kv_codec.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr int kSharedBytesSmall = 101376;
constexpr uint32_t kQ = 1, kK = 2, kV = 3;

constexpr KvFormat kFormats[] = {KvFormat::bf16, KvFormat::fp8, KvFormat::turboquant_4bit_nc,
                                 KvFormat::nvfp4};

struct Case {
  FlashShape shape;
  std::vector<int> rows;
  std::vector<int> kv_begin;
  KvFormat format = KvFormat::bf16;
};

/// q rows are [head][q | gate]. Key i of sequence s at token t: hash of (s, t).
struct Setup {
  Case it;
  Batch batch;
  int total_pages = 0;
  uint16_t *q, *out;
  uint8_t *keys, *values;
  int64_t q_stride, out_stride, page_stride;

  explicit Setup(const Case& c) : it(c) {
    const FlashShape& s = it.shape;
    int row = 0;
    for (size_t i = 0; i < it.rows.size(); ++i) {
      const int pages = (it.kv_begin[i] + it.rows[i] + 63) / 64;
      batch.sequences.push_back({.row_begin = row,
                                 .row_count = it.rows[i],
                                 .kv_begin = it.kv_begin[i],
                                 .page_begin = static_cast<int32_t>(batch.pages.size()),
                                 .page_count = pages});
      for (int p = 0; p < pages; ++p) batch.pages.push_back(0);
      row += it.rows[i];
    }
    batch.tokens.resize(row);
    total_pages = static_cast<int>(batch.pages.size());
    for (int p = 0; p < total_pages; ++p) batch.pages[p] = total_pages - 1 - p;  // backwards
    q_stride = int64_t{s.q_heads} * 2 * s.head_dim;
    out_stride = int64_t{s.q_heads} * s.head_dim;
    // The values may be larger than the keys; 64 bytes more, so that pages are not a power of two.
    page_stride =
        int64_t{s.kv_heads} * 64 * kv_line_bytes(it.format, KvSide::values, s.head_dim) + 64;
    q = device_array<uint16_t>(row * q_stride);
    keys = device_array<uint8_t>(total_pages * page_stride);
    values = device_array<uint8_t>(total_pages * page_stride);
    out = device_array<uint16_t>(row * out_stride);
    fill_normal(q, row * q_stride, kQ, 1.0F);
    for (const BatchSequence& sequence : batch.sequences)
      for (int p = 0; p < sequence.page_count; ++p) {
        const int64_t base = batch.pages[sequence.page_begin + p] * page_stride;
        const int used = std::min(64, sequence.kv_begin + sequence.row_count - p * 64);
        fill(keys + base, KvSide::keys, sequence.page_begin + p, used);
        fill(values + base, KvSide::values, sequence.page_begin + p, used);
      }
  }
  ~Setup() {
    for (void* p : {static_cast<void*>(q), static_cast<void*>(out), static_cast<void*>(keys),
                    static_cast<void*>(values)})
      cudaFree(p);
  }
  /// The number of a key or value before the format rounds it.
  float number(KvSide side, int page, int head, int slot, int d) const {
    const uint64_t line = (uint64_t(page) * it.shape.kv_heads + head) * 64 + slot;
    return hash_normal(side == KvSide::keys ? kK : kV, line * it.shape.head_dim + d);
  }
  std::vector<float> line(KvSide side, int page, int head, int slot) const {
    std::vector<float> out(static_cast<size_t>(it.shape.head_dim));
    for (int d = 0; d < it.shape.head_dim; ++d) out[d] = number(side, page, head, slot, d);
    return out;
  }
  /// Writes the lines of a page that are in use; the others stay NaN.
  void fill(uint8_t* to, KvSide side, int page, int used) const {
    const int64_t codes = kv_code_bytes(it.format, it.shape.head_dim);
    const int64_t scales = kv_scale_bytes(it.format, side, it.shape.head_dim);
    const int64_t head_bytes = 64 * (codes + scales);
    std::vector<std::byte> bytes(static_cast<size_t>(it.shape.kv_heads * head_bytes),
                                 std::byte{0xFF});
    for (int head = 0; head < it.shape.kv_heads; ++head)
      for (int slot = 0; slot < used; ++slot) {
        std::byte* begin = bytes.data() + head * head_bytes;
        kv_store(it.format, side, line(side, page, head, slot),
                 {.codes = begin + slot * codes, .scales = begin + 64 * codes + slot * scales});
      }
    must(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "pages");
  }
  /// A key or value of the sequence whose pages begin at `page_begin`, as attention reads it.
  std::vector<float> cached(KvSide side, int page_begin, int token, int head) const {
    std::vector<float> out = line(side, page_begin + token / 64, head, token % 64);
    kv_keep(it.format, side, out, out.data());
    return out;
  }
  void launch(const Batch& run, int first_row, const Launcher& launcher) const {
    const auto tiles = flash_tiles(run);
    auto* device_tiles = to_device(tiles);
    auto* pages = to_device(run.pages);
    const uint16_t* from = q + first_row * q_stride;
    flash_prefill(
        {.shape = it.shape,
         .tiles = device_tiles,
         .tile_count = static_cast<int32_t>(tiles.size()),
         .pages = pages,
         .q = from,
         .q_stride = q_stride,
         .q_head_stride = 2 * it.shape.head_dim,
         .kv = {.keys = keys, .values = values, .page_stride = page_stride, .format = it.format},
         .gate = from + it.shape.head_dim,
         .gate_stride = q_stride,
         .gate_head_stride = 2 * it.shape.head_dim,
         .out = out + first_row * out_stride,
         .out_stride = out_stride},
        launcher);
    must(cudaDeviceSynchronize(), "flash");
    cudaFree(device_tiles);
    cudaFree(pages);
  }
};

void compare(Tally& tally, const std::string& name, const Case& c, const Launcher& launcher) {
  flash_prefill_prepare(launcher);
  Setup setup(c);
  setup.launch(setup.batch, 0, launcher);
  const auto out = to_host(setup.out, setup.batch.rows() * setup.out_stride);
  const FlashShape& s = c.shape;
  Error error;
  int64_t nan = 0;
  for (const auto& value : out) nan += std::isnan(bf16_value(value));
  for (int n = 0; n < 60; ++n) {
    const auto& sequence = setup.batch.sequences[n % c.rows.size()];
    const int i = static_cast<int>(n < 10 ? 0 : hash_bits(7, n) % sequence.row_count);
    const int head = static_cast<int>(hash_bits(8, n) % s.q_heads);
    const int kv_head = head / (s.q_heads / s.kv_heads);
    const int64_t row = sequence.row_begin + i;
    const uint64_t q0 = row * setup.q_stride + head * 2 * s.head_dim;
    std::vector<double> weight;
    double highest = -INFINITY;
    for (int t = 0; t <= sequence.kv_begin + i; ++t) {
      double dot = 0.0;
      const auto key = setup.cached(KvSide::keys, sequence.page_begin, t, kv_head);
      for (int d = 0; d < s.head_dim; ++d)
        dot += double{round_bf16(hash_normal(kQ, q0 + d))} * key[d];
      weight.push_back(dot / std::sqrt(double(s.head_dim)));
      highest = std::max(highest, weight.back());
    }
    double total = 0.0;
    for (double& w : weight) total += w = std::exp(w - highest);
    std::vector<double> sums(static_cast<size_t>(s.head_dim));
    for (size_t t = 0; t < weight.size(); ++t) {
      const auto value =
          setup.cached(KvSide::values, sequence.page_begin, static_cast<int>(t), kv_head);
      for (int d = 0; d < s.head_dim; ++d) sums[d] += weight[t] * value[d];
    }
    for (int d = 0; d < s.head_dim; d += 3) {
      const double gate = round_bf16(hash_normal(kQ, q0 + s.head_dim + d));
      error.add(bf16_value(out[row * setup.out_stride + packed_position(head * s.head_dim + d)]),
                sums[d] / total / (1.0 + std::exp(-gate)));
    }
  }
  tally.check(error.value() < 4e-3 && nan == 0, name.c_str(), error.value());
}

/// One sequence whole, then cut at multiples of 64; portable: with a block of another shape, too.
void cut(Tally& tally, const FlashShape& shape, Kernels kernels, KvFormat format) {
  const Launcher launcher = launcher_of(kernels);
  const Launcher of_parts =
      kernels == Kernels::portable ? launcher_of(kernels, kSharedBytesSmall) : launcher;
  const int rows = 300;
  Setup setup({shape, {rows}, {0}, format});
  const auto bits = [&] {
    return to_host(reinterpret_cast<const uint16_t*>(setup.out), rows * setup.out_stride);
  };
  flash_prefill_prepare(launcher);
  setup.launch(setup.batch, 0, launcher);
  const auto whole = bits();
  cudaMemset(setup.out, 0xFF, static_cast<size_t>(rows * setup.out_stride) * 2);
  flash_prefill_prepare(of_parts);
  for (const auto& [begin, end] : {std::pair{0, 64}, {64, 192}, {192, rows}}) {
    Batch part = setup.batch;
    part.sequences[0].kv_begin = begin;
    part.sequences[0].row_count = end - begin;
    setup.launch(part, begin, of_parts);
  }
  const auto parts = bits();
  int64_t different = 0;
  for (size_t i = 0; i < whole.size(); ++i) different += whole[i] != parts[i];
  tally.check(different == 0, "cut at multiples of 64, to the bit", static_cast<double>(different));
}

/// The 35B's attention over `rows` rows after `kv_begin` others; lists of tiles and pages stay.
TimedStep step_of(int rows, int kv_begin, KvFormat format) {
  const auto kept = std::make_shared<const Setup>(
      Case{{.q_heads = 16, .kv_heads = 2, .head_dim = 256}, {rows}, {kv_begin}, format});
  const Setup& setup = *kept;
  const auto tiles = flash_tiles(setup.batch);
  auto* device_tiles = to_device(tiles);
  auto* pages = to_device(setup.batch.pages);
  const FlashPrefill flash{.shape = setup.it.shape,
                           .tiles = device_tiles,
                           .tile_count = static_cast<int32_t>(tiles.size()),
                           .pages = pages,
                           .q = setup.q,
                           .q_stride = setup.q_stride,
                           .q_head_stride = 512,
                           .kv = {.keys = setup.keys,
                                  .values = setup.values,
                                  .page_stride = setup.page_stride,
                                  .format = format},
                           .gate = setup.q + 256,
                           .gate_stride = setup.q_stride,
                           .gate_head_stride = 512,
                           .out = setup.out,
                           .out_stride = setup.out_stride};
  const Launcher launcher = launcher_of(Kernels::native);
  flash_prefill_prepare(launcher);
  const double pairs = (double(kv_begin) + rows / 2.0) * rows;
  return {.name = std::to_string(rows) + " rows",
          .flops = 4.0 * pairs * 16 * 256,
          .launch = [kept, flash, launcher] { flash_prefill(flash, launcher); }};
}

void time_shape(Tally& tally, int rows, int kv_begin, KvFormat format) {
  const TimedStep step = step_of(rows, kv_begin, format);
  const double us = time_us(step.launch, 5);
  tally.print("time flash %s T=%d after %d: %.1f us %.1f TFLOP/s %.1f %% of 790",
              kv_traits(format).name, rows, kv_begin, us, step.flops / us * 1e-6,
              step.flops / us * 1e-6 / 7.9);
}

}  // namespace

TimedStep attention_step() { return step_of(4096, 0, KvFormat::bf16); }

void check_flash(Tally& tally) {
  const auto native = launcher_of(Kernels::native);
  const auto portable = launcher_of(Kernels::portable);
  const auto small = launcher_of(Kernels::native, kSharedBytesSmall);
  const FlashShape real{.q_heads = 16, .kv_heads = 2, .head_dim = 256};
  const FlashShape pebble{.q_heads = 8, .kv_heads = 2, .head_dim = 64};
  const FlashShape single{.q_heads = 3, .kv_heads = 3, .head_dim = 128};
  const std::vector<int> rows{200, 1, 63, 64, 65, 40}, begins{0, 64, 128, 640, 0, 100};
  compare(tally, "35B", {real, rows, begins}, native);
  compare(tally, "pebble", {pebble, rows, begins}, native);
  compare(tally, "one head a group", {single, rows, begins}, native);
  compare(tally, "35B 2000 rows", {real, {2000}, {0}}, native);
  for (const auto kernels : {Kernels::native, Kernels::portable}) {
    for (const auto format : kFormats) {
      cut(tally, real, kernels, format);
      cut(tally, pebble, kernels, format);
    }
  }
  compare(tally, "35B portable", {real, rows, begins}, portable);
  compare(tally, "35B, 99 KB", {real, rows, begins}, small);
  for (const auto format : kFormats) {
    if (format == KvFormat::bf16) continue;
    const std::string of = std::string(", ") + kv_traits(format).name;
    compare(tally, "35B" + of, {real, rows, begins, format}, native);
    compare(tally, "pebble" + of, {pebble, rows, begins, format}, native);
    compare(tally, "one head a group" + of, {single, rows, begins, format}, native);
    compare(tally, "35B portable" + of, {real, rows, begins, format}, portable);
    compare(tally, "35B, 99 KB" + of, {real, rows, begins, format}, small);
  }
}

void time_flash(Tally& tally) {
  for (const auto format : kFormats) {
    time_shape(tally, 8192, 0, format);
    time_shape(tally, 2048, 30720, format);
  }
}

}  // namespace nibble::checks
