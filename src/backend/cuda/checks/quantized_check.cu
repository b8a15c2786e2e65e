// Products of codes against double arithmetic: linears and experts of odd shapes, outputs that stay
// as they were where no row belongs, the same bits alone and among others. On a card that lacks the
// instruction for 4-bit codes the same kernels compute it in software.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/quantized_product.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr const char* kOutputs[] = {"bf16", "f32", "add", "swiglu"};
uint16_t bf16_bits(float x) {
  const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
  uint16_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  return bits;
}
bool wide(QuantizedOutput output) {
  return output == QuantizedOutput::f32 || output == QuantizedOutput::add;
}
std::vector<int32_t> counted(int n) {
  std::vector<int32_t> list(n);
  for (int i = 0; i < n; ++i) list[i] = i;
  return list;
}

/// Number i of y before a product that adds: a small integer.
__host__ __device__ float before(int64_t i) {
  return static_cast<float>(static_cast<int>(hash_bits(9, i) % 64)) - 32;
}

std::string name_of(const SideFormat& kind) {
  if (kind.format == Format::nvfp4) return "dense";
  constexpr const char* kLayouts[] = {"", "", " rows", " blocks"};
  constexpr const char* kInputs[] = {"", "", "token", "tensor", "group"};
  return std::string("fp8") + kLayouts[static_cast<int>(kind.layout)] + " by " +
         kInputs[static_cast<int>(kind.activations)];
}

}  // namespace

QuantizedOutcome run(const QuantizedProduct& p,
                     const std::function<void(const QuantizedGemm&)>& launch_it) {
  const int64_t count = p.y_total * p.y_stride;
  auto* y = device_array<float>(count);
  if (p.output == QuantizedOutput::add)
    fill_kernel<<<1024, 256>>>([=] __device__(int64_t i) { y[i] = before(i); }, count);
  QuantizedGemm gemm{
      .x = {.codes = p.x.codes,
            .scales = p.x.scales,
            .factors = p.row_factors == RowFactors::each ? p.x.factors : nullptr,
            .factors_each = static_cast<int32_t>(p.x.factor_stride)},
      .rows = static_cast<int32_t>(p.x_rows.size()),
      .weight = linear_of(p.w, p.n),
      .up = p.output == QuantizedOutput::swiglu ? linear_of(p.up, p.n) : DeviceLinear{},
      .output = p.output,
      .order = p.order,
      .y = y,
      .y_stride = p.y_stride};
  launch_it(gemm);
  must(cudaDeviceSynchronize(), p.name.c_str());
  QuantizedOutcome result;
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

bool QuantizedVerdict::fine(const QuantizedProduct& p) const {
  // The manual does not say how products in FP8 are added; of what is seen on Hopper 14 bits stay.
  const double bar = !wide(p.output) ? 3.5e-3 : p.w.format == Format::fp8 ? 1e-3 : 1e-5;
  const bool bits = p.numbers == Numbers::exact && p.output != QuantizedOutput::swiglu;
  return (!bits || wrong_bits == 0) && error < bar && strayed == 0;  // NaN fails
}

QuantizedVerdict judge(const QuantizedProduct& p, const QuantizedOutcome& result) {
  QuantizedVerdict verdict;
  const ResultRows rows{
      .from = p.x_rows, .matrices = p.matrices, .n = p.n, .factors = p.row_factors};
  const auto low = products(p.x, p.w, rows);
  const auto high =
      p.output == QuantizedOutput::swiglu ? products(p.x, p.up, rows) : std::vector<double>();
  std::vector<uint8_t> written(result.bits.size());
  Error error;
  for (size_t i = 0; i < p.x_rows.size(); ++i)
    for (int n = 0; n < p.n; ++n) {
      double want = low[i * p.n + n];
      const bool paired = p.output == QuantizedOutput::swiglu;
      const int64_t at = p.y_rows[i] * p.y_stride + (paired ? place_of(p.order, n) : n);
      if (paired) want = silu_of(want) * high[i * p.n + n];
      if (p.output == QuantizedOutput::add) want += before(at);
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
    if (p.output == QuantizedOutput::add) std::memcpy(&bits, &kept, 4);
    verdict.strayed += result.bits[at] != bits;
  }
  return verdict;
}

namespace {

bool becomes_codes(const QuantizedProduct& p) {
  return p.output == QuantizedOutput::swiglu && p.w.format == Format::nvfp4;
}

void report(Tally& tally, const QuantizedProduct& p, const QuantizedVerdict& verdict) {
  const std::string name = p.name + " " + kOutputs[static_cast<int>(p.output)] +
                           (p.numbers == Numbers::exact ? ", exact" : "") + ", wrong bits " +
                           std::to_string(verdict.wrong_bits) + ", strayed " +
                           std::to_string(verdict.strayed);
  tally.check(verdict.fine(p), name.c_str(), verdict.error);
}

}  // namespace

QuantizedProduct dense(const SideFormat& kind, const DenseShape& shape, QuantizedOutput output,
                       Numbers numbers) {
  const auto [rows, n, k] = shape;
  QuantizedProduct p{.name = name_of(kind) + " " + std::to_string(rows) + "x" + std::to_string(n) +
                             "x" + std::to_string(k),
                     .numbers = numbers,
                     .output = output,
                     .x = random_rows(kind, rows, k, numbers, 31),
                     .w = random_weight(kind, {1, n, k}, numbers, 41),
                     .n = n,
                     .x_rows = counted(rows),
                     .matrices = std::vector<int32_t>(rows),
                     .y_rows = counted(rows),
                     .y_total = rows,
                     .y_stride = n + (n % 2 == 0 ? 6 : 2)};
  if (output == QuantizedOutput::swiglu) p.up = random_weight(kind, {1, n, k}, numbers, 51);
  return p;
}

void free_sides(const QuantizedProduct& p) {
  p.x.free();
  p.w.free();
  p.up.free();
}

namespace {

/// Rows 5 .. 5 + count of the product alone must have the bits that they have among all.
void check_alone(Tally& tally, const QuantizedProduct& p, const QuantizedOutcome& all, int count,
                 const Launcher& launcher) {
  constexpr int kFirst = 5;
  const int cols = p.x.cols;
  QuantizedProduct part = p;
  part.x_rows = counted(count);
  part.y_total = count;
  const QuantizedOutcome alone = run(part, [&](const QuantizedGemm& all_rows) {
    QuantizedGemm gemm = all_rows;
    gemm.x.codes += kFirst * value_bytes(p.x.format, cols);
    if (gemm.x.scales != nullptr) gemm.x.scales += int64_t{kFirst} * cols / 16;
    if (gemm.x.factors != nullptr) gemm.x.factors += kFirst * p.x.factor_stride;
    quantized_gemm(gemm, launcher);
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

void check_linear(Tally& tally, const SideFormat& kind, const DenseShape& shape,
                  QuantizedOutput output, const Launcher& launcher) {
  for (const auto numbers : {Numbers::exact, Numbers::any}) {
    QuantizedProduct p = dense(kind, shape, output, numbers);
    const bool own = kind.format == Format::fp8 ? kind.activations != ActivationFormat::fp8_tensor
                                                : output != QuantizedOutput::add;
    if (own && (numbers == Numbers::any || kind.format == Format::fp8))
      p.row_factors = RowFactors::each;
    // Products of any scales are large: their sigmoid would be 0 or 1.
    p.order = numbers == Numbers::any ? ColumnOrder::plain : ColumnOrder::packed;
    const auto launch_it = [&](const QuantizedGemm& gemm) { quantized_gemm(gemm, launcher); };
    const QuantizedOutcome all = run(p, launch_it);
    report(tally, p, judge(p, all));
    if (becomes_codes(p)) check_swiglu_codes(tally, p, all, launch_it, launcher);
    if (numbers == Numbers::any && shape.rows > 16 && output != QuantizedOutput::add) {
      check_alone(tally, p, all, 1, launcher);
      check_alone(tally, p, all, 9, launcher);
    }
    free_sides(p);
  }
}

void check_dense(Tally& tally, const SideFormat& kind, const Launcher& launcher) {
  constexpr DenseShape kShapes[] = {
      {1, 16, 256},    {7, 130, 512},   {16, 33, 128},    {31, 64, 2048},   {33, 192, 768},
      {64, 320, 2048}, {65, 1000, 256}, {129, 128, 4096}, {300, 512, 2048}, {257, 24, 384}};
  for (const DenseShape& shape : kShapes)
    for (const auto output : {QuantizedOutput::bf16, QuantizedOutput::f32, QuantizedOutput::add,
                              QuantizedOutput::swiglu})
      if (output != QuantizedOutput::swiglu || shape.n % 64 == 0)
        check_linear(tally, kind, shape, output, launcher);
}

/// Experts whose lists have `rows[e]` rows, some none, in entries of at most `most`. As prompts
/// have it (rows in order of experts, gathered) or as generation does (scattered to the
/// assignments).
enum class Lists : uint8_t { prompt, generation };
void check_experts(Tally& tally, const SideFormat& kind, const std::vector<int>& rows, int n, int k,
                   QuantizedOutput output, Numbers numbers, Lists lists, const Launcher& launcher) {
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
  QuantizedProduct p{
      .name = std::string(lists == Lists::prompt ? "prompt" : "generated") + " experts of " +
              name_of(kind) + " " + std::to_string(experts) + ", " + std::to_string(total) + "x" +
              std::to_string(n) + "x" + std::to_string(k),
      .numbers = numbers,
      .output = output,
      .order = lists == Lists::prompt ? ColumnOrder::packed : ColumnOrder::plain,
      .row_factors = kind.format == Format::fp8 ? RowFactors::each : RowFactors::none,
      .x = random_rows(kind, x_rows, k, numbers, 71),
      .w = random_weight(kind, {experts, n, k}, numbers, 81),
      .n = n,
      .y_total = total + 3,
      .y_stride = n + (n % 2 == 0 ? 2 : 1)};
  if (output == QuantizedOutput::swiglu) p.up = random_weight(kind, {experts, n, k}, numbers, 91);
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
  const auto launch_it = [&](const QuantizedGemm& dense_gemm) {
    QuantizedGemm gemm = dense_gemm;
    gemm.experts = {.list = device[0],
                    .stride = width,
                    .rows_max = most,
                    .count = device[3],
                    .gather = device[1],
                    .share = lists == Lists::prompt ? 1 : kShare,
                    .scatter = lists == Lists::prompt ? nullptr : device[2]};
    quantized_gemm(gemm, launcher, experts);
  };
  const QuantizedOutcome result = run(p, launch_it);
  report(tally, p, judge(p, result));
  if (becomes_codes(p)) check_swiglu_codes(tally, p, result, launch_it, launcher);
  for (int32_t* list : device) cudaFree(list);
  free_sides(p);
}

void check_all_experts(Tally& tally, const SideFormat& kind, const Launcher& launcher) {
  std::vector<int> each(64);  // 1 .. 64 rows an expert
  for (int e = 0; e < 64; ++e) each[e] = e + 1;
  const std::vector<int> few = {0, 3, 0, 1, 17, 8, 0, 9, 5, 0};
  const std::vector<int> many = {200, 0, 129, 128, 1, 300, 64, 33, 0};
  const std::vector<int> none = {0, 0, 0};
  for (const auto lists : {Lists::prompt, Lists::generation})
    for (const auto output : {QuantizedOutput::bf16, QuantizedOutput::f32, QuantizedOutput::swiglu})
      for (const auto numbers : {Numbers::exact, Numbers::any}) {
        check_experts(tally, kind, few, 192, 768, output, numbers, lists, launcher);
        check_experts(tally, kind, many, 64, 256, output, numbers, lists, launcher);
        check_experts(tally, kind, each, 128, 256, output, numbers, lists, launcher);
        if (output != QuantizedOutput::swiglu)
          check_experts(tally, kind, few, 37, 512, output, numbers, lists, launcher);
      }
  std::vector<int> lone = none;
  lone[1] = 1;
  check_experts(tally, kind, lone, 64, 256, QuantizedOutput::f32, Numbers::exact, Lists::prompt,
                launcher);
}

}  // namespace

void check_fp4(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  quantized_gemm_prepare(launcher);
  check_dense(tally, {}, launcher);
  check_all_experts(tally, {}, launcher);
}

void check_fp8(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  if (!launcher.card.converts_fp8()) return tally.print("no instruction for products in FP8");
  quantized_gemm_prepare(launcher);
  constexpr SideFormat kKinds[] = {
      {Format::fp8, FactorLayout::scalar, ActivationFormat::fp8_tensor},
      {Format::fp8, FactorLayout::scalar, ActivationFormat::fp8_token},
      {Format::fp8, FactorLayout::row, ActivationFormat::fp8_token},
      {Format::fp8, FactorLayout::block128, ActivationFormat::fp8_group}};
  for (const SideFormat& kind : kKinds) check_dense(tally, kind, launcher);
  check_all_experts(tally, kKinds[2], launcher);
  check_all_experts(tally, kKinds[3], launcher);
}

}  // namespace nibble::checks
