// This file launches the products of a linear.
#include "backend/cuda/ops/quantized/quantized_select.h"
#include "backend/cuda/ops/quantized/sm100/collectives.cuh"
#include "backend/cuda/ops/quantized/sm100/products_sm100.h"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

using namespace sm100;

template <Output kOutput, int kTokens>
struct Linear : Product<Matrices::one, kOutput, kTokens> {
  using Base = Product<Matrices::one, kOutput, kTokens>;
  using typename Base::Gemm;
  using typename Base::Kernel;
  using Number = typename Base::End::Number;
  using Arguments = typename Gemm::Arguments;

  /// The epilogue's tree of scaled sums takes a scalar and a row.
  static auto scaled(const QuantizedGemm& gemm, const DeviceLinear& w) {
    using Tree = typename Base::End::Sums;
    return typename Tree::Arguments{{{}, {.scalar_ptrs = {w.factors}}, {}},
                                    {.ptr_row = gemm.x.factors, .null_default = 1.0F},
                                    {}};
  }
  static typename Base::End::Tree::Arguments finish(const QuantizedGemm& gemm,
                                                    const DeviceLinear& w) {
    if constexpr (kOutput == Output::added)
      return {{}, scaled(gemm, w), {}};
    else if constexpr (kOutput == Output::gated)
      return {{scaled(gemm, w), {}}, {}, {}};
    else
      return scaled(gemm, w);
  }

  static Arguments arguments(const QuantizedGemm& gemm, const DeviceLinear& w,
                             int multiprocessors) {
    const auto shape = cute::make_shape(int{w.rows}, int{gemm.rows}, int{w.cols}, 1);
    const auto along = cute::make_stride(int64_t{w.cols}, cute::_1{}, int64_t{0});
    const auto across = cute::make_stride(cute::_1{}, gemm.y_stride, int64_t{0});
    auto* y = static_cast<Number*>(gemm.y);
    Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        shape,
        {reinterpret_cast<const cutlass::float_e2m1_t*>(w.values), along,
         reinterpret_cast<const cutlass::float_e2m1_t*>(gemm.x.codes), along,
         reinterpret_cast<const Scale*>(w.scales), ScaleConfig::tile_atom_to_shape_SFA(shape),
         reinterpret_cast<const Scale*>(gemm.x.scales), ScaleConfig::tile_atom_to_shape_SFB(shape)},
        {finish(gemm, w), nullptr, across, y, across}};
    if constexpr (kOutput == Output::added || kOutput == Output::gated)
      arguments.epilogue.ptr_C = y;
    arguments.hw_info.sm_count = multiprocessors;
    return arguments;
  }

  static void run(const QuantizedGemm& gemm, const DeviceLinear& w, const Launcher& launcher) {
    const Arguments arguments = Linear::arguments(gemm, w, launcher.card.multiprocessors);
    CHECK(Kernel::can_implement(arguments) && Kernel::get_workspace_size(arguments) == 0, w.rows,
          " x ", w.cols, " for ", gemm.rows, " rows at ", gemm.y_stride);
    launch_product<Linear>(arguments, nullptr, launcher);
  }
};

template <int kTokens>
void run(const QuantizedGemm& gemm, const Launcher& launcher) {
  if (gemm.output == QuantizedOutput::add)
    return Linear<Output::added, kTokens>::run(gemm, gemm.weight, launcher);
  run_output<Linear, kTokens>(gemm, launcher);
}

}  // namespace

void prepare_linear_sm100(const Launcher& launcher) {
  prepare_outputs<Linear, kSm100FewTokens, Output::bf16, Output::f32, Output::added, Output::gated>(
      launcher);
  prepare_outputs<Linear, kSm100ManyTokens, Output::bf16, Output::f32, Output::added,
                  Output::gated>(launcher);
}

void linear_sm100(const QuantizedGemm& gemm, int tokens, const Launcher& launcher) {
  with_value<kSm100FewTokens, kSm100ManyTokens>(
      tokens, [&]<int kTokens>() { run<kTokens>(gemm, launcher); });
}

}  // namespace nibble::cuda
