// Operands in the order of tensor memory: matrices and inputs put into it, on any card, and
// products of them against double arithmetic on a card of compute capability 10.
#include <algorithm>
#include <string>

#include "backend/cuda/checks/block_operands.h"
#include "backend/cuda/ops/quantized/quantized_gemm.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr uint8_t kPoison = 0xA5;

// ---- matrices ----

/// Counts codes and scales that are not where a row, a column and the manual say.
int64_t misplaced(const QuantizedSide& side, const DeviceLinear& copy, CodeOrder order) {
  const int64_t scales = side.cols / 16;
  const auto plain = to_host(side.plain, side.rows * side.cols);
  const auto wanted = to_host(side.scales, side.rows * scales);
  const auto words =
      to_host(reinterpret_cast<const uint32_t*>(copy.values), side.rows * side.cols / 8);
  const auto placed_scales = to_host(copy.scales, side.rows * scales);
  int64_t wrong = 0;
  for (int64_t from = 0; from < side.rows; ++from) {
    const int within = static_cast<int>(from % 64);
    const int64_t to =
        order == CodeOrder::paired_blocks ? from - within + packed_position(within) : from;
    for (int c = 0; c < side.cols; ++c) {
      const uint32_t word = words[(to * side.cols + c) / 8];
      wrong += (word >> (4 * fp4_nibble(c % 8)) & 15U) != plain[from * side.cols + c];
    }
    for (int64_t s = 0; s < scales; ++s)
      wrong += placed_scales[scale_place(to, s, scales)] != wanted[from * scales + s];
  }
  return wrong;
}

void check_matrices(Tally& tally, const Launcher& launcher) {
  constexpr WeightShape kShapes[] = {{1, 128, 256}, {1, 384, 768}, {3, 128, 512}, {2, 640, 2048}};
  for (const WeightShape& shape : kShapes)
    for (const auto order : {CodeOrder::blocks, CodeOrder::paired_blocks})
      for (const int at_once : {1, 3, 64}) {
        const QuantizedSide side = random_weight({}, shape, Numbers::any, 15);
        const DeviceLinear copy =
            laid(linear_of(side, shape.n), shape.matrices, order, at_once, launcher);
        const int64_t wrong = misplaced(side, copy, order);
        tally.check(
            wrong == 0,
            concat(order == CodeOrder::blocks ? "blocks" : "paired blocks", " of ", shape.matrices,
                   " x ", shape.n, " x ", shape.k, ", ", at_once, " at once")
                .c_str(),
            static_cast<double>(wrong));
        side.free();
        free_copy(copy);
      }
}

// ---- inputs ----

/// Rounds `rows` rows and returns the bytes; what is not written stays kPoison.
std::vector<uint8_t> rounded(const uint16_t* x, int rows, int cols, const float* factors,
                             ScaleOrder order, const Launcher& launcher) {
  const int64_t bytes = rows * fp4_row_bytes(cols) + fp4_filling_bytes(1, cols);
  auto* memory = device_array<uint8_t>(bytes);
  must(cudaMemset(memory, kPoison, static_cast<size_t>(bytes)), "poison");
  quantize_rows({.weight = {.activations = ActivationFormat::nvfp4,
                            .factors = factors,
                            .cols = cols,
                            .factor_stride = 2},
                 .count = rows,
                 .x = x,
                 .x_stride = cols,
                 .out = cut_fp4_rows(memory, rows, cols, order)},
                launcher);
  must(cudaDeviceSynchronize(), "rounding");
  std::vector<uint8_t> all = to_host(memory, bytes);
  cudaFree(memory);
  return all;
}

/// Scales in blocks are those in rows, and the rest of a last block stays as it was.
void check_inputs(Tally& tally, const Launcher& launcher) {
  auto* factors = to_device(std::vector<float>{0.5F, 37.0F});
  for (const auto& [rows, cols] : {std::pair(1, 256), {127, 512}, {128, 768}, {300, 2048}}) {
    auto* bits = device_array<uint16_t>(int64_t{rows} * cols);
    fill_kernel<<<256, 256>>>(
        [=] __device__(int64_t i) {
          bits[i] = __bfloat16_as_ushort(__float2bfloat16_rn(hash_normal(3, i)));
        },
        int64_t{rows} * cols);
    const auto plain = rounded(bits, rows, cols, factors, ScaleOrder::rows, launcher);
    const auto blocks = rounded(bits, rows, cols, factors, ScaleOrder::blocks, launcher);
    const int64_t codes = int64_t{rows} * cols / 2;
    const int64_t scales = cols / 16;
    std::vector<uint8_t> wanted(plain.begin(), plain.begin() + codes);
    wanted.resize(plain.size(), kPoison);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t s = 0; s < scales; ++s)
        wanted[codes + scale_place(row, s, scales)] = plain[codes + row * scales + s];
    int64_t wrong = 0;
    for (size_t i = 0; i < wanted.size(); ++i) wrong += blocks[i] != wanted[i];
    tally.check(wrong == 0, concat("inputs in blocks ", rows, " x ", cols).c_str(),
                static_cast<double>(wrong));
    cudaFree(bits);
  }
  cudaFree(factors);
}

// ---- products ----

/// The first rows of a product alone must have the bits that they have among all.
void check_first_rows(Tally& tally, const QuantizedProduct& p, const BlockProduct& product,
                      const QuantizedOutcome& all, int count, const Launcher& launcher) {
  QuantizedProduct part = p;
  part.x_rows.resize(count);
  part.y_total = count;
  const QuantizedOutcome alone =
      product.run(part, [&](const QuantizedGemm& gemm) { quantized_gemm(gemm, launcher); });
  int64_t different = 0;
  for (size_t i = 0; i < alone.bits.size(); ++i) different += alone.bits[i] != all.bits[i];
  tally.check(different == 0,
              concat(p.name, ": ", count, " rows alone by tensor memory, to the bit").c_str(),
              static_cast<double>(different));
}

void check_product(Tally& tally, const DenseShape& shape, QuantizedOutput output, Numbers numbers,
                   const Launcher& launcher) {
  QuantizedProduct p = dense({}, shape, output, numbers);
  p.y_stride = shape.n + 8;
  if (numbers == Numbers::any) p.row_factors = RowFactors::each;
  constexpr int32_t kNoShift = 0;
  const BlockProduct product(p, 1, {&kNoShift, 1}, launcher);
  const QuantizedOutcome all =
      product.run(p, [&](const QuantizedGemm& gemm) { quantized_gemm(gemm, launcher); });
  const QuantizedVerdict verdict = judge(p, all);
  tally.check(verdict.fine(p),
              concat(p.name, " by tensor memory, output ", static_cast<int>(output),
                     numbers == Numbers::exact ? ", exact" : "", ", wrong bits ",
                     verdict.wrong_bits, ", strayed ", verdict.strayed)
                  .c_str(),
              verdict.error);
  for (const int count : {1, 9, 65})
    if (count < shape.rows) check_first_rows(tally, p, product, all, count, launcher);
  free_sides(p);
}

void check_products(Tally& tally, const Launcher& launcher) {
  quantized_gemm_prepare(launcher);
  constexpr DenseShape kShapes[] = {{1, 128, 256},   {7, 384, 512},    {64, 256, 2048},
                                    {65, 1024, 256}, {129, 128, 4096}, {300, 512, 2048},
                                    {257, 640, 768}};
  for (const DenseShape& shape : kShapes)
    for (const auto output : {QuantizedOutput::bf16, QuantizedOutput::f32, QuantizedOutput::add,
                              QuantizedOutput::swiglu})
      for (const auto numbers : {Numbers::exact, Numbers::any})
        check_product(tally, shape, output, numbers, launcher);
}

}  // namespace

void check_blocks(Tally& tally) {
  Launcher launcher = fp4_launcher();
  check_matrices(tally, launcher);
  check_inputs(tally, launcher);
  launcher.card.fp4 = by_tensor_memory(launcher.card);
  check_products(tally, launcher);
}

}  // namespace nibble::checks
