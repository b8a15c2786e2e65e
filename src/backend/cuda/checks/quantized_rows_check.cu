// Rows of inputs in NVFP4 and FP8 against the codec of the host, bit for bit: both orders of
// columns, rows that are gathered, shared and scattered, the file's scale and the row's own, and
// rows of odd numbers.
#include <bit>
#include <string>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/ops/quantized/quantized_rows.h"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/fp8_bytes.h"
#include "tensor/activation_codec.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr float kInfinity = INFINITY;

/// Row r of the inputs: normal numbers, and rows that codecs stumble over.
float input_at(int64_t r, int c) {
  const float normal = round_bf16(hash_normal(21, static_cast<uint64_t>(r) * 8192 + c));
  switch (r % 12) {
    case 1:
      return 0.0F;
    case 2:
      return c % 3 == 0 ? -0.0F : round_bf16(0.01F * normal);
    case 3:
      return c == 37 ? NAN : normal;
    case 4:
      return c == 5 ? kInfinity : normal;
    case 5:
      return round_bf16(1e30F * normal);
    case 6:
      return round_bf16(1e-30F * normal);
    case 7:  // ties between codes: multiples of a quarter below 6, with 6 in each group
      return c % 16 == 0 ? 6.0F : static_cast<float>(c % 25) * 0.25F - 3.0F;
    case 8:
      return c / 16 % 2 == 0 ? 0.0F : normal;
    case 9:
      return -std::fabs(normal);
    default:
      return round_bf16(normal * (1 + static_cast<int>(r % 5)));
  }
}

struct Case {
  const char* name;
  ActivationFormat activations = ActivationFormat::nvfp4;
  ColumnOrder order = ColumnOrder::plain;
  GlobalOf global = GlobalOf::file;
  InputScales scales = InputScales::amax;
  int share = 1;
  bool lists = false;     // rows are gathered and scattered
  bool matrices = false;  // each row has an expert's scale
};

constexpr int kRows = 60;
constexpr int kMatrices = 3;
constexpr float kFactors[2 * kMatrices] = {0.25F,  448.0F, 0.5F,
                                           131.0F, 2.0F,   3333.3F};  // a factor, then G, of each

/// The rows as they are when they come back.
struct Found {
  std::vector<uint32_t> codes;
  std::vector<uint8_t> scales;
  std::vector<float> factors;
};

/// Those of FP8: what codes and factors stand for is what the codec rounds to.
int64_t wrong_in_fp8_row(const Found& found, const Case& test, int cols, int from, int to,
                         int matrix) {
  const bool fixed = test.activations == ActivationFormat::fp8_tensor;
  const int each = fp8_factors_each(test.activations, cols);
  const float scale = kFactors[2 * matrix + 1];
  std::vector<float> row(cols);
  for (int c = 0; c < cols; ++c) row[c] = input_at(from, c);
  if (fixed)
    round_fp8_static(row.data(), scale, SourceType::f32, cols, row.data());
  else
    round_fp8_dynamic(row.data(), SourceType::f32, cols / each, cols, row.data());
  int64_t different = 0;
  for (int c = 0; c < cols; ++c) {
    const size_t word = (static_cast<size_t>(to) * cols + c) / 8 * 2 + fp8_column(c % 8) / 4;
    const uint32_t code = found.codes[word] >> (8 * (fp8_column(c % 8) % 4)) & 0xFFU;
    const float factor =
        fixed ? scale : found.factors[static_cast<size_t>(to) * each + c / (cols / each)];
    const float value = (code & 0x7FU) == 0x7FU ? NAN : e4m3_value(code) * factor;
    different += std::isnan(row[c])
                     ? !std::isnan(value)
                     : std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(row[c]);
  }
  return different;
}

/// Counts the numbers of row `to` that are not those of row `from` under the scale of `matrix`.
int64_t wrong_in_row(const Found& found, const Case& test, int cols, int from, int to, int matrix) {
  if (test.activations != ActivationFormat::nvfp4)
    return wrong_in_fp8_row(found, test, cols, from, to, matrix);
  int64_t different = 0;
  std::vector<float> row(cols);
  float amax = 0.0F;
  for (int c = 0; c < cols; ++c) {
    row[c] = input_at(from, c);
    amax = std::isnan(row[c]) || std::isnan(amax) ? NAN : std::max(amax, std::fabs(row[c]));
  }
  GlobalScale global{.value = kFactors[2 * matrix + 1],
                     .direction = GlobalScale::Direction::divide};
  if (test.global == GlobalOf::row) {
    global = nvfp4_global_scale(amax, GlobalScale::Direction::divide, SourceType::f32);
    different += found.factors[to] != 1.0F / global.value;
  }
  std::vector<uint8_t> codes(cols / 2), scales(cols / 16);
  encode_nvfp4_activations(row.data(), {.global = global, .scales = test.scales}, cols,
                           codes.data(), scales.data());
  for (int g = 0; g < cols / 16; ++g)
    different += found.scales[static_cast<size_t>(to) * (cols / 16) + g] != scales[g];
  for (int c = 0; c < cols; ++c) {
    const uint32_t word = found.codes[static_cast<size_t>(to) * (cols / 8) + c / 8];
    const uint32_t code = word >> (4 * fp4_nibble(c % 8)) & 15U;
    different += code != (codes[c / 2] >> (c % 2 * 4) & 15U);
  }
  return different;
}

void check_case(Tally& tally, const Case& test, int cols, const Launcher& launcher) {
  const int stride = cols + 64;
  const int count = kRows * test.share;
  std::vector<uint16_t> x(static_cast<size_t>(kRows) * stride);
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < cols; ++c)
      x[static_cast<size_t>(r) * stride + place_of(test.order, c)] =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(input_at(r, c)) >> 16);  // already BF16
  std::vector<int32_t> from(count), to(count), matrix(count);
  for (int i = 0; i < count; ++i) {
    from[i] = test.lists ? (i * 7) % kRows : i / test.share;
    to[i] = test.lists ? (i * 11 + 5) % count : i;
    matrix[i] = test.matrices ? i % kMatrices : 0;
  }
  uint16_t* device_x = to_device(x);
  float* device_factors = to_device(std::vector<float>(std::begin(kFactors), std::end(kFactors)));
  int32_t* lists[3] = {to_device(from), to_device(to), to_device(matrix)};
  const bool fp8 = test.activations != ActivationFormat::nvfp4;
  const Format format = fp8 ? Format::fp8 : Format::nvfp4;
  const int64_t code_bytes = count * value_bytes(format, cols);
  const int32_t each = fp8_factors_each(test.activations, cols);
  const QuantizedInput out{.codes = device_array<uint8_t>(code_bytes),
                           .scales = device_array<uint8_t>(int64_t{count} * cols / 16),
                           .factors = device_array<float>(int64_t{count} * each),
                           .factors_each = each};
  quantize_rows({.weight = {.format = format,
                            .activations = test.activations,
                            .input_scales = test.scales,
                            .factors = device_factors,
                            .cols = cols,
                            .factor_stride = 2},
                 .global = test.global,
                 .count = count,
                 .x = device_x,
                 .x_stride = stride,
                 .order = test.order,
                 .from = test.lists ? lists[0] : nullptr,
                 .share = test.share,
                 .to = test.lists ? lists[1] : nullptr,
                 .matrix = test.matrices ? lists[2] : nullptr,
                 .out = out},
                launcher);
  must(cudaDeviceSynchronize(), test.name);
  const Found found{.codes = to_host(reinterpret_cast<const uint32_t*>(out.codes), code_bytes / 4),
                    .scales = to_host(out.scales, int64_t{count} * cols / 16),
                    .factors = to_host(out.factors, int64_t{count} * each)};
  int64_t different = 0;
  for (int i = 0; i < count; ++i)
    different += wrong_in_row(found, test, cols, from[i], to[i], matrix[i]);
  tally.check(different == 0,
              (std::string("rows: ") + test.name + ", " + std::to_string(cols)).c_str(),
              static_cast<double>(different));
  for (void* p : {static_cast<void*>(device_x), static_cast<void*>(device_factors),
                  static_cast<void*>(lists[0]), static_cast<void*>(lists[1]),
                  static_cast<void*>(lists[2]), static_cast<void*>(out.codes),
                  static_cast<void*>(out.scales), static_cast<void*>(out.factors)})
    cudaFree(p);
}

}  // namespace

void check_quantized_rows(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  constexpr Case kCases[] = {
      {.name = "generation order"},
      {.name = "prompt order", .order = ColumnOrder::packed},
      {.name = "shared rows, scales of experts", .share = 4, .matrices = true},
      {.name = "gathered and scattered",
       .order = ColumnOrder::packed,
       .lists = true,
       .matrices = true},
      {.name = "four-over-six", .scales = InputScales::four_over_six},
      {.name = "four-over-six, gathered and scattered",
       .order = ColumnOrder::packed,
       .scales = InputScales::four_over_six,
       .lists = true,
       .matrices = true},
      {.name = "four-over-six, the row's own scale",
       .global = GlobalOf::row,
       .scales = InputScales::four_over_six},
      {.name = "the row's own scale", .order = ColumnOrder::packed, .global = GlobalOf::row},
      {.name = "the row's own scale, scattered", .global = GlobalOf::row, .lists = true},
      {.name = "FP8, a scale for a row", .activations = ActivationFormat::fp8_token},
      {.name = "FP8, a scale for a row, scattered",
       .activations = ActivationFormat::fp8_token,
       .order = ColumnOrder::packed,
       .lists = true},
      {.name = "FP8, scales of columns",
       .activations = ActivationFormat::fp8_group,
       .order = ColumnOrder::packed,
       .share = 4},
      {.name = "FP8, scales of columns, scattered",
       .activations = ActivationFormat::fp8_group,
       .lists = true},
      {.name = "FP8, the file's scale",
       .activations = ActivationFormat::fp8_tensor,
       .order = ColumnOrder::packed,
       .matrices = true},
  };
  for (const Case& test : kCases)
    for (const int cols : {256, 2048, 4352}) check_case(tally, test, cols, launcher);
}

}  // namespace nibble::checks
