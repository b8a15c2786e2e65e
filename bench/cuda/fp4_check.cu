// Products of 4-bit codes against double arithmetic: the instruction on fragments, rows of inputs,
// linears and experts of odd shapes, outputs that stay as they were where no row belongs, the same
// bits alone and among others, and mistakes in layouts, planted, that must be seen. On a card that
// lacks the instruction the same kernels compute it in software.
//   cuda_fp4_check [instruction|rows|dense|experts|mistakes ...]
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "backend/cuda/ops/fp4/fp4_tile.cuh"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "fp4_check.h"
#include "fp4_operands.h"

namespace nibble::bench {
namespace {

using namespace nibble::cuda;

constexpr const char* kOutputs[] = {"bf16", "f32", "add", "swiglu"};
uint16_t bf16_bits(float x) {
  const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
  uint16_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  return bits;
}
bool wide(Fp4Output output) { return output == Fp4Output::f32 || output == Fp4Output::add; }
std::vector<int32_t> counted(int n) {
  std::vector<int32_t> list(n);
  for (int i = 0; i < n; ++i) list[i] = i;
  return list;
}

/// A Product is one call and what it must give: row i of the result is at y_rows[i] and was made of
/// row x_rows[i] of x and matrix matrices[i].
struct Product {
  std::string name;
  Numbers numbers;
  Fp4Output output;
  ColumnOrder order = ColumnOrder::packed;
  RowFactors row_factors = RowFactors::none;
  Fp4Side x, w, up;
  int n;
  std::vector<int32_t> x_rows, matrices, y_rows;
  int64_t y_total = 0;  // rows of y
  int64_t y_stride = 0;
};

/// Returns y, [y_total][y_stride] numbers as F32; where nothing was written, what was there.
struct Result {
  std::vector<float> values;
  std::vector<uint32_t> bits;
};

/// Number i of y before a product that adds: a small integer.
__host__ __device__ float before(int64_t i) {
  return static_cast<float>(static_cast<int>(hash_bits(9, i) % 64)) - 32;
}

Result run(const Product& p, const std::function<void(const Fp4Gemm&)>& launch_it) {
  const int64_t count = p.y_total * p.y_stride;
  auto* y = device_array<float>(count);
  if (p.output == Fp4Output::add)
    fill_kernel<<<1024, 256>>>([=] __device__(int64_t i) { y[i] = before(i); }, count);
  Fp4Gemm gemm{.x = {.codes = p.x.codes,
                     .scales = p.x.scales,
                     .factors = p.row_factors == RowFactors::each ? p.x.factors : nullptr},
               .rows = static_cast<int32_t>(p.x_rows.size()),
               .weight = linear_of(p.w, p.n),
               .up = p.output == Fp4Output::swiglu ? linear_of(p.up, p.n) : DeviceLinear{},
               .output = p.output,
               .order = p.order,
               .y = y,
               .y_stride = p.y_stride};
  launch_it(gemm);
  must(cudaDeviceSynchronize(), p.name.c_str());
  Result result;
  result.values.resize(count);
  result.bits.resize(count);
  if (wide(p.output)) {
    result.values = to_host(y, count);
    std::memcpy(result.bits.data(), result.values.data(), count * 4);
  } else {
    const auto half = to_host(reinterpret_cast<const uint16_t*>(y), count);
    for (int64_t i = 0; i < count; ++i) {
      result.bits[i] = half[i];
      result.values[i] = static_cast<float>(bf16_value(half[i]));
    }
  }
  cudaFree(y);
  return result;
}

/// Numbers that differ from what they must be, in bits (sums that are exact) or by the error that
/// roundings may have, and numbers that were written though no row of the result is there.
struct Verdict {
  int64_t wrong_bits = 0;
  double error = 0.0;
  int64_t strayed = 0;
  bool fine(const Product& p) const {
    const double bar = wide(p.output) ? 1e-5 : 3.5e-3;
    const bool bits = p.numbers == Numbers::exact && p.output != Fp4Output::swiglu;
    return (!bits || wrong_bits == 0) && error < bar && strayed == 0;  // NaN fails
  }
};

Verdict judge(const Product& p, const Result& result) {
  Verdict verdict;
  const ResultRows rows{
      .from = p.x_rows, .matrices = p.matrices, .n = p.n, .factors = p.row_factors};
  const auto low = products(p.x, p.w, rows);
  const auto high =
      p.output == Fp4Output::swiglu ? products(p.x, p.up, rows) : std::vector<double>();
  std::vector<uint8_t> written(result.bits.size());
  Error error;
  for (size_t i = 0; i < p.x_rows.size(); ++i)
    for (int n = 0; n < p.n; ++n) {
      double want = low[i * p.n + n];
      const bool paired = p.output == Fp4Output::swiglu;
      const int64_t at = p.y_rows[i] * p.y_stride + (paired ? place_of(p.order, n) : n);
      if (paired) want = silu_of(want) * high[i * p.n + n];
      if (p.output == Fp4Output::add) want += before(at);
      written[at] = 1;
      error.add(result.values[at], want);
      const auto rounded = static_cast<float>(want);
      uint32_t bits;
      std::memcpy(&bits, &rounded, 4);
      verdict.wrong_bits += result.bits[at] != (wide(p.output) ? bits : bf16_bits(rounded));
    }
  verdict.error = error.value();
  for (size_t at = 0; at < written.size(); ++at) {
    if (written[at] != 0) continue;
    const float kept = before(static_cast<int64_t>(at));
    uint32_t bits = wide(p.output) ? 0xFFFFFFFFU : 0xFFFFU;
    if (p.output == Fp4Output::add) std::memcpy(&bits, &kept, 4);
    verdict.strayed += result.bits[at] != bits;
  }
  return verdict;
}

void report(Tally& tally, const Product& p, const Verdict& verdict) {
  const std::string name = p.name + " " + kOutputs[static_cast<int>(p.output)] +
                           (p.numbers == Numbers::exact ? ", exact" : "") + ", wrong bits " +
                           std::to_string(verdict.wrong_bits) + ", strayed " +
                           std::to_string(verdict.strayed);
  tally.check(verdict.fine(p), name.c_str(), verdict.error);
}

Product dense(int rows, int n, int k, Fp4Output output, Numbers numbers) {
  Product p{
      .name = "dense " + std::to_string(rows) + "x" + std::to_string(n) + "x" + std::to_string(k),
      .numbers = numbers,
      .output = output,
      .x = random_rows(rows, k, numbers, 31),
      .w = random_weight(1, n, k, numbers, 41),
      .n = n,
      .x_rows = counted(rows),
      .matrices = std::vector<int32_t>(rows),
      .y_rows = counted(rows),
      .y_total = rows,
      .y_stride = n + (n % 2 == 0 ? 6 : 2)};
  if (output == Fp4Output::swiglu) p.up = random_weight(1, n, k, numbers, 51);
  return p;
}
void free_sides(const Product& p) {
  p.x.free();
  p.w.free();
  p.up.free();
}

/// Rows 5 .. 5 + count of the product alone must have the bits that they have among all.
void check_alone(Tally& tally, const Product& p, const Result& all, int count,
                 const Launcher& launcher) {
  constexpr int kFirst = 5;
  const int cols = p.x.cols;
  Product part = p;
  part.x_rows = counted(count);
  part.y_total = count;
  const Result alone = run(part, [&](const Fp4Gemm& all_rows) {
    Fp4Gemm gemm = all_rows;
    gemm.x.codes += int64_t{kFirst} * cols / 2;
    gemm.x.scales += int64_t{kFirst} * cols / 16;
    if (gemm.x.factors != nullptr) gemm.x.factors += kFirst;
    fp4_gemm(gemm, launcher);
  });
  int64_t different = 0;
  for (int64_t r = 0; r < count; ++r)
    for (int n = 0; n < p.n; ++n)
      different += alone.bits[r * p.y_stride + n] != all.bits[(kFirst + r) * p.y_stride + n];
  tally.check(different == 0,
              (p.name + " " + kOutputs[static_cast<int>(p.output)] + ": " + std::to_string(count) +
               " rows alone, to the bit")
                  .c_str(),
              static_cast<double>(different));
}

void check_dense(Tally& tally, const Launcher& launcher) {
  constexpr int kShapes[][3] = {
      {1, 16, 256},    {7, 130, 512},   {16, 33, 128},    {31, 64, 2048},   {33, 192, 768},
      {64, 320, 2048}, {65, 1000, 256}, {129, 128, 4096}, {300, 512, 2048}, {257, 24, 384}};
  for (const auto& [rows, n, k] : kShapes)
    for (const auto output : {Fp4Output::bf16, Fp4Output::f32, Fp4Output::add, Fp4Output::swiglu}) {
      if (output == Fp4Output::swiglu && n % 64 != 0) continue;
      for (const auto numbers : {Numbers::exact, Numbers::any}) {
        Product p = dense(rows, n, k, output, numbers);
        if (numbers == Numbers::any && output != Fp4Output::add) p.row_factors = RowFactors::each;
        // Products of any scales are large: their sigmoid would be 0 or 1.
        p.order = numbers == Numbers::any ? ColumnOrder::plain : ColumnOrder::packed;
        const Result all = run(p, [&](const Fp4Gemm& gemm) { fp4_gemm(gemm, launcher); });
        report(tally, p, judge(p, all));
        if (numbers == Numbers::any && rows > 16 && output != Fp4Output::add) {
          check_alone(tally, p, all, 1, launcher);
          check_alone(tally, p, all, 9, launcher);
        }
        free_sides(p);
      }
    }
}

/// Experts whose lists have `rows[e]` rows, some none, in entries of at most `most`. As prompts
/// have it (rows in order of experts, gathered) or as generation does (scattered to the
/// assignments).
enum class Lists : uint8_t { prompt, generation };
void check_experts(Tally& tally, const std::vector<int>& rows, int n, int k, Fp4Output output,
                   Numbers numbers, Lists lists, const Launcher& launcher) {
  constexpr int kShare = 4;  // assignments of one row of x
  const int experts = static_cast<int>(rows.size());
  const int most = lists == Lists::prompt ? 128 : 8;
  const int width = lists == Lists::prompt ? 3 : 4;
  int total = 0;
  for (const int count : rows) total += count;
  std::vector<int32_t> assignment(total);  // in order of experts: a permutation
  for (int i = 0; i < total; ++i) assignment[i] = i;
  for (int i = total - 1; i > 0; --i)
    std::swap(assignment[i], assignment[hash_bits(61, i) % (i + 1)]);
  const int x_rows = total / kShare + 1;
  std::vector<int32_t> entries;
  std::vector<int32_t> gather(total);
  Product p{.name = std::string(lists == Lists::prompt ? "prompt" : "generated") + " experts " +
                    std::to_string(experts) + ", " + std::to_string(total) + "x" +
                    std::to_string(n) + "x" + std::to_string(k),
            .numbers = numbers,
            .output = output,
            .order = lists == Lists::prompt ? ColumnOrder::packed : ColumnOrder::plain,
            .x = random_rows(x_rows, k, numbers, 71),
            .w = random_weight(experts, n, k, numbers, 81),
            .n = n,
            .y_total = total + 3,
            .y_stride = n + (n % 2 == 0 ? 2 : 1)};
  if (output == Fp4Output::swiglu) p.up = random_weight(experts, n, k, numbers, 91);
  int first = 0;
  for (int e = 0; e < experts; ++e) {
    for (int done = 0; done < rows[e]; done += most) {
      entries.insert(entries.end(), {e, first + done, std::min(most, rows[e] - done)});
      if (width == 4) entries.push_back(0);
    }
    for (int i = first; i < first + rows[e]; ++i) {
      gather[i] = lists == Lists::prompt ? assignment[i] / kShare : assignment[i];
      p.x_rows.push_back(assignment[i] / kShare);
      p.matrices.push_back(e);
      p.y_rows.push_back(lists == Lists::prompt ? i : assignment[i]);
    }
    first += rows[e];
  }
  int32_t* device[4] = {
      to_device(entries), to_device(gather), to_device(assignment),
      to_device(std::vector<int32_t>{static_cast<int32_t>(entries.size()) / width})};
  const Result result = run(p, [&](const Fp4Gemm& dense_gemm) {
    Fp4Gemm gemm = dense_gemm;
    gemm.experts = {.list = device[0],
                    .stride = width,
                    .rows_max = most,
                    .count = device[3],
                    .gather = device[1],
                    .share = lists == Lists::prompt ? 1 : kShare,
                    .scatter = lists == Lists::prompt ? nullptr : device[2]};
    fp4_gemm(gemm, launcher, experts);
  });
  report(tally, p, judge(p, result));
  for (int32_t* list : device) cudaFree(list);
  free_sides(p);
}

void check_all_experts(Tally& tally, const Launcher& launcher) {
  std::vector<int> each(64);  // 1 .. 64 rows an expert
  for (int e = 0; e < 64; ++e) each[e] = e + 1;
  const std::vector<int> few = {0, 3, 0, 1, 17, 8, 0, 9, 5, 0};
  const std::vector<int> many = {200, 0, 129, 128, 1, 300, 64, 33, 0};
  const std::vector<int> none = {0, 0, 0};
  for (const auto lists : {Lists::prompt, Lists::generation})
    for (const auto output : {Fp4Output::bf16, Fp4Output::f32, Fp4Output::swiglu})
      for (const auto numbers : {Numbers::exact, Numbers::any}) {
        check_experts(tally, few, 192, 768, output, numbers, lists, launcher);
        check_experts(tally, many, 64, 256, output, numbers, lists, launcher);
        check_experts(tally, each, 128, 256, output, numbers, lists, launcher);
        if (output != Fp4Output::swiglu)
          check_experts(tally, few, 37, 512, output, numbers, lists, launcher);
      }
  std::vector<int> lone = none;
  lone[1] = 1;
  check_experts(tally, lone, 64, 256, Fp4Output::f32, Numbers::exact, Lists::prompt, launcher);
}

// ---- planted mistakes: the product of a kernel with one of them must not pass ----

enum class Mistake : uint8_t {
  none,
  left_nibbles,  // two codes of a byte
  right_nibbles,
  left_depth,  // the halves of the 64 columns
  right_depth,
  left_rows,         // rows r and r + 8
  left_scale_bytes,  // scales of two groups
  right_scale_bytes,
  left_scale_lanes,   // scales of rows r and r + 8
  right_scale_lanes,  // scales of two tokens
  left_thread,        // the pair of lanes that gives scales
  right_thread,       // the lane
};
constexpr const char* kMistakes[] = {"none",
                                     "codes of a byte of W",
                                     "codes of a byte of x",
                                     "halves of W",
                                     "halves of x",
                                     "rows 8 apart",
                                     "bytes of W's scales",
                                     "bytes of x's scales",
                                     "lanes of W's scales",
                                     "lanes of x's scales",
                                     "thread-id-a",
                                     "thread-id-b"};

template <Mistake kMistake>
struct Planted {
  static constexpr bool kMachine = SoftwareFp4::kMachine;
  template <int kLeftThread, int kRightThread>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t left_scales,
                                                  uint32_t right_scales) {
    const auto swap_nibbles = [](uint32_t w) {
      return (w & 0xF0F0F0F0U) >> 4 | (w & 0x0F0F0F0FU) << 4;
    };
    uint32_t l[4] = {a[0], a[1], a[2], a[3]};
    uint32_t r[2] = {b0, b1};
    if constexpr (kMistake == Mistake::left_nibbles) l[2] = swap_nibbles(l[2]);
    if constexpr (kMistake == Mistake::right_nibbles) r[1] = swap_nibbles(r[1]);
    if constexpr (kMistake == Mistake::left_depth) {
      l[0] = a[2];
      l[2] = a[0];
    }
    if constexpr (kMistake == Mistake::right_depth) {
      r[0] = b1;
      r[1] = b0;
    }
    if constexpr (kMistake == Mistake::left_rows) {
      l[2] = a[3];
      l[3] = a[2];
    }
    if constexpr (kMistake == Mistake::left_scale_bytes)
      left_scales = __byte_perm(left_scales, 0, 0x3201);
    if constexpr (kMistake == Mistake::right_scale_bytes)
      right_scales = __byte_perm(right_scales, 0, 0x2310);
    if constexpr (kMistake == Mistake::left_scale_lanes)
      left_scales = __shfl_xor_sync(kAllLanes, left_scales, 1);
    if constexpr (kMistake == Mistake::right_scale_lanes)
      right_scales = __shfl_xor_sync(kAllLanes, right_scales, 4);
    constexpr int kLeft = kMistake == Mistake::left_thread ? 1 - kLeftThread : kLeftThread;
    constexpr int kRight =
        kMistake == Mistake::right_thread ? (kRightThread + 1) % kFp4RightThreads : kRightThread;
    SoftwareFp4::multiply<kLeft, kRight>(d, l, r[0], r[1], left_scales, right_scales);
  }
};

template <Mistake kMistake>
void check_mistake(Tally& tally, const Product& p, const Launcher& launcher) {
  const Result result = run(p, [&](const Fp4Gemm& gemm) {
    const auto kernel = fp4_kernel<Planted<kMistake>, Fp4Output::f32, kFp4ManyTokens>;
    const int shared = fp4_shared_bytes(kFp4ManyTokens);
    must(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
         "shared memory");
    launch(kernel, launcher.in_order(), 4, kFp4Threads, static_cast<size_t>(shared),
           Fp4Args{.gemm = gemm,
                   .k_steps = gemm.weight.cols / kFp4StepColumns,
                   .row_tiles = (gemm.weight.rows + kFp4TileRows - 1) / kFp4TileRows,
                   .parts = (gemm.rows + kFp4ManyTokens - 1) / kFp4ManyTokens});
  });
  const Verdict verdict = judge(p, result);
  tally.check(verdict.fine(p) == (kMistake == Mistake::none),
              (std::string("planted: ") + kMistakes[static_cast<int>(kMistake)]).c_str(),
              verdict.error);
}

template <int kNumber = 0>
void check_mistakes(Tally& tally, const Product& p, const Launcher& launcher) {
  if constexpr (kNumber <= static_cast<int>(Mistake::right_thread)) {
    check_mistake<static_cast<Mistake>(kNumber)>(tally, p, launcher);
    check_mistakes<kNumber + 1>(tally, p, launcher);
  }
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  using namespace nibble::bench;
  if (skips_without_card()) return 0;
  const auto asked = [&](const char* part) {
    return argc < 2 ||
           std::any_of(argv + 1, argv + argc, [&](char* word) { return !std::strcmp(word, part); });
  };
  const nibble::cuda::Launcher launcher = fp4_launcher();
  const bool software = launcher.card.fp4 == nibble::cuda::Architecture::Fp4::software;
  std::printf("products of 4-bit codes by %s\n", software ? "software" : "the instruction");
  nibble::cuda::fp4_gemm_prepare(launcher);
  Tally tally;
  if (asked("instruction")) check_instruction(tally, launcher);
  if (asked("rows")) check_rows(tally, launcher);
  if (asked("dense")) check_dense(tally, launcher);
  if (asked("experts")) check_all_experts(tally, launcher);
  if (asked("mistakes") && software) {
    const Product p = dense(100, 200, 512, nibble::cuda::Fp4Output::f32, Numbers::any);
    check_mistakes(tally, p, launcher);
    free_sides(p);
  }
  std::printf("%d passed, %d failed\n", tally.passed, tally.failed);
  return tally.failed == 0 ? 0 : 1;
}
