// Norms that round their rows to codes against the norm and the rounding as two
// launches, byte for byte, and the time of both.
#include <string>
#include <utility>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/ops/norm/norm_rows.h"
#include "tensor/activation_codec.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr const char* kInputs[] = {"", "NVFP4", "FP8 by token", "FP8 by tensor", "FP8 by group"};
constexpr int kTopK = 3;
constexpr int kSpoilt = 5;  // a row with a number that is none

enum class Norm : uint8_t { add, combine };

/// The memory of one run; two runs begin with the same bytes.
struct Run {
  int rows, hidden;
  int cols = static_cast<int>(padded_columns(hidden));
  ActivationFormat inputs;
  InputScales scales = InputScales::amax;
  ColumnOrder order = ColumnOrder::packed;
  float* h = device_array<float>(int64_t{rows} * hidden);
  uint16_t* x = device_array<uint16_t>(int64_t{rows} * cols);
  uint8_t* codes = device_array<uint8_t>(rows * fp8_row_bytes(cols));

  void fill() const {
    fill_normal(h, int64_t{rows} * hidden, 5, 2.0F);
    must(cudaMemset(x, 0, int64_t{rows} * cols * 2), "padding");
    fill_kernel<<<1, 1>>>([p = h + int64_t{kSpoilt} * hidden] __device__(int64_t) { *p = NAN; }, 1);
  }
  QuantizedInput out() const {
    return inputs == ActivationFormat::nvfp4 ? cut_fp4_rows(codes, rows, cols)
                                             : cut_fp8_rows(codes, rows, cols, inputs);
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all = to_host(codes, rows * fp8_row_bytes(cols));
    const auto of_x = to_host(reinterpret_cast<const uint8_t*>(x), int64_t{rows} * cols * 2);
    const auto of_h = to_host(reinterpret_cast<const uint8_t*>(h), int64_t{rows} * hidden * 4);
    all.insert(all.end(), of_x.begin(), of_x.end());
    all.insert(all.end(), of_h.begin(), of_h.end());
    return all;
  }
  void free() const {
    for (void* p : {static_cast<void*>(h), static_cast<void*>(x), static_cast<void*>(codes)})
      cudaFree(p);
  }
};

/// The sources of both runs: results of a block of the model, as F32 or those of experts.
struct Sources {
  float* y;
  uint16_t* experts;
  float* weights;
  int32_t* position;
  float* norm;
  float* factors;

  Sources(int rows, int hidden)
      : y(device_array<float>(int64_t{rows} * hidden)),
        experts(device_array<uint16_t>(int64_t{rows} * kTopK * hidden)),
        weights(device_array<float>(rows * kTopK)),
        norm(device_array<float>(hidden)),
        factors(to_device(std::vector<float>{0.5F, 37.0F})) {
    fill_normal(y, int64_t{rows} * hidden, 1, 1.0F);
    fill_normal(experts, int64_t{rows} * kTopK * hidden, 2, 1.0F);
    fill_normal(weights, rows * kTopK, 3, 0.3F);
    fill_normal(norm, hidden, 4, 0.2F, 1.0F);
    std::vector<int32_t> places(rows * kTopK);
    for (size_t i = 0; i < places.size(); ++i)
      places[i] = static_cast<int32_t>(i * 7 % places.size());
    position = to_device(places);
  }
  ~Sources() {
    for (void* p :
         {static_cast<void*>(y), static_cast<void*>(experts), static_cast<void*>(weights),
          static_cast<void*>(position), static_cast<void*>(norm), static_cast<void*>(factors)})
      cudaFree(p);
  }
};

CombineNormArgs norm_of(const Run& run, const Sources& from, Norm norm) {
  return {.base = {.rows = run.rows,
                   .hidden = run.hidden,
                   .y = norm == Norm::add ? from.y : nullptr,
                   .top_k = norm == Norm::add ? 0 : kTopK,
                   .weights = norm == Norm::add ? nullptr : from.weights,
                   .h = run.h,
                   .norm = from.norm,
                   .x = run.x,
                   .x_stride = run.cols,
                   .eps = 1e-6F,
                   .packed_from = run.order == ColumnOrder::packed ? 0 : INT32_MAX},
          .y = from.experts,
          .position = from.position};
}
QuantizeRows rows_of(const Run& run, const Sources& from) {
  return {.weight = {.activations = run.inputs,
                     .input_scales = run.scales,
                     .factors = from.factors,
                     .cols = run.cols,
                     .factor_stride = 2},
          .count = run.rows,
          .x = run.x,
          .x_stride = run.cols,
          .order = run.order,
          .out = run.out()};
}

void apart(const Run& run, const Sources& from, Norm norm, const Launcher& launcher) {
  const CombineNormArgs args = norm_of(run, from, norm);
  norm == Norm::add ? add_norm(args.base, launcher) : combine_norm(args, launcher);
  quantize_rows(rows_of(run, from), launcher);
}
void together(const Run& run, const Sources& from, Norm norm, const Launcher& launcher) {
  const CombineNormArgs args = norm_of(run, from, norm);
  const QuantizeRows rows = rows_of(run, from);
  norm == Norm::add ? add_norm_rows(args.base, rows, launcher)
                    : combine_norm_rows(args, rows, launcher);
}

void check_case(Tally& tally, const Run& two, const Run& one, Norm norm, const Launcher& launcher) {
  const Sources from(two.rows, two.hidden);
  two.fill();
  one.fill();
  apart(two, from, norm, launcher);
  together(one, from, norm, launcher);
  must(cudaDeviceSynchronize(), "norms that round");
  const auto want = two.bytes();
  const auto got = one.bytes();
  int64_t different = 0;
  for (size_t i = 0; i < want.size(); ++i) different += want[i] != got[i];
  const std::string name =
      std::string("norm and rounding, ") + kInputs[static_cast<int>(two.inputs)] +
      (norm == Norm::add ? ", " : " of experts, ") + std::to_string(two.hidden);
  tally.check(different == 0, name.c_str(), static_cast<double>(different));
}

constexpr ActivationFormat kFormats[] = {ActivationFormat::nvfp4, ActivationFormat::fp8_token,
                                         ActivationFormat::fp8_tensor, ActivationFormat::fp8_group};

}  // namespace

void check_norm_rows(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  for (const ActivationFormat inputs : kFormats)
    for (const Norm norm : {Norm::add, Norm::combine})
      for (const int hidden : {192, 2048, 5120}) {
        const auto scales = hidden == 2048 ? InputScales::four_over_six : InputScales::amax;
        const auto order = hidden == 192 ? ColumnOrder::plain : ColumnOrder::packed;
        const auto made = [&] {
          return Run{
              .rows = 37, .hidden = hidden, .inputs = inputs, .scales = scales, .order = order};
        };
        const Run two = made();
        const Run one = made();
        check_case(tally, two, one, norm, launcher);
        two.free();
        one.free();
      }
}

void time_norm_rows(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  for (const int tokens : {64, 1024, 8192})
    for (const auto& [inputs, scales] : {std::pair(ActivationFormat::nvfp4, InputScales::amax),
                                         {ActivationFormat::nvfp4, InputScales::four_over_six},
                                         {ActivationFormat::fp8_token, InputScales::amax}}) {
      const Run run{.rows = tokens, .hidden = 2048, .inputs = inputs, .scales = scales};
      const Sources from(tokens, run.hidden);
      run.fill();
      tally.print(
          "time %d rows of %d, %s, %s: norm, then rounding %.1f us, "
          "together %.1f us",
          tokens, run.hidden, kInputs[static_cast<int>(inputs)],
          std::string(input_scales_name(scales)).c_str(),
          time_us([&] { apart(run, from, Norm::add, launcher); }),
          time_us([&] { together(run, from, Norm::add, launcher); }));
      run.free();
    }
}

}  // namespace nibble::checks
