// Products of NVFP4 matrices for compute capability 10, put together of CUTLASS's collectives: W is
// the left operand (128 rows of a tile), rows of x the right one, sums stay in tensor memory over
// all of K, and the epilogue writes y row after row of x. Compiled for that compute capability
// alone.
//
// Operands are those of CodeOrder::blocks; both sides have the nibbles of eight columns in the
// order of e2m1_nibbles, so products meet. The epilogue is the one of quantized_gemm.h: sums times
// the factor of W, then that of the row of x.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "backend/cuda/ops/quantized/quantized_gemm.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "base/check.h"

namespace nibble::cuda::sm100 {

namespace fusion = cutlass::epilogue::fusion;
using Code = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
using Scale = cutlass::float_ue4m3_t;
using Rows = cutlass::layout::ColumnMajor;  // of y as W x^T: a row of x is a column

/// added: y += sums in F32. gated: y = bf16(silu(sums) * y), the second product of swiglu.
enum class Output : uint8_t { bf16, f32, added, gated };
/// one: a linear. each: a matrix for every group of rows, whose places are known on the device
/// alone.
enum class Matrices : uint8_t { one, each };

// ---- the epilogue ----

template <typename T>
struct Silu {
  CUTLASS_DEVICE T operator()(const T& x) const { return silu(x); }
};
template <typename T, int kCount>
struct Silu<cutlass::Array<T, kCount>> {
  CUTLASS_DEVICE cutlass::Array<T, kCount> operator()(const cutlass::Array<T, kCount>& x) const {
    cutlass::Array<T, kCount> y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) y[i] = silu(x[i]);
    return y;
  }
};

/// An operation in F32, whose result is of type Result.
template <template <class> class Operation, class Result, class... Inputs>
using Compute = fusion::Sm90EVT<
    fusion::Sm90Compute<Operation, Result, float, cutlass::FloatRoundStyle::round_to_nearest>,
    Inputs...>;

/// Sums times factors: of a linear also those of its rows of x, which lie along the tokens of a
/// tile.
template <Matrices kMatrices, class Tile>
struct Scaled {
  using Factor = fusion::Sm90ScalarBroadcast<float>;
  template <class Result>
  using Tree = Compute<cutlass::multiplies, Result,
                       Compute<cutlass::multiplies, float, fusion::Sm90AccFetch, Factor>,
                       fusion::Sm90RowBroadcast<0, Tile, float>>;
};
template <class Tile>
struct Scaled<Matrices::each, Tile> {
  using Factor =
      fusion::Sm90ScalarBroadcastPtrArray<float, cute::Stride<cute::_0, cute::_0, int64_t>>;
  template <class Result>
  using Tree = Compute<cutlass::multiplies, Result, fusion::Sm90AccFetch, Factor>;
};

/// The numbers of y and of what the epilogue reads there, and its tree.
template <Output kOutput, class Scaled>
struct Finish {  // bf16 and f32
  using Read = void;
  using Number = cute::conditional_t<kOutput == Output::f32, float, cutlass::bfloat16_t>;
  using Sums = typename Scaled::template Tree<Number>;
  using Tree = Sums;
};
template <class Scaled>
struct Finish<Output::added, Scaled> {
  using Read = float;
  using Number = float;
  using Sums = typename Scaled::template Tree<float>;
  using Tree = Compute<cutlass::plus, Number, fusion::Sm90SrcFetch<Read>, Sums>;
};
template <class Scaled>
struct Finish<Output::gated, Scaled> {
  using Read = cutlass::bfloat16_t;
  using Number = cutlass::bfloat16_t;
  using Sums = typename Scaled::template Tree<float>;
  using Tree =
      Compute<cutlass::multiplies, Number, Compute<Silu, float, Sums>, fusion::Sm90SrcFetch<Read>>;
};

// ---- the kernel ----

/// With groups everything has an array of pointers.
template <Matrices kMatrices, class Layout>
using LayoutOf = cute::conditional_t<kMatrices == Matrices::each, Layout*, Layout>;

template <Matrices kMatrices>
struct Schedule {
  using Problem = cute::Shape<int, int, int, int>;
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecialized1SmNvf4Sm100;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized1Sm;
};
template <>
struct Schedule<Matrices::each> {
  using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmNvf4Sm100;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecialized1Sm;
};

template <Matrices kMatrices, Output kOutput, int kTokens>
struct Product {
  using Tile = cute::Shape<cute::_128, cute::Int<kTokens>, cute::_256>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Arch = cutlass::arch::Sm100;
  using Operator = cutlass::arch::OpClassBlockScaledTensorOp;
  using End = Finish<kOutput, Scaled<kMatrices, Tile>>;
  using YLayout = LayoutOf<kMatrices, Rows>;
  static constexpr int kAlignment = 16 / static_cast<int>(sizeof(typename End::Number));

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, Operator, Tile, Cluster, cute::Shape<cute::_128, cute::_32>, float, float,
      typename End::Read, YLayout, kAlignment, typename End::Number, YLayout, kAlignment,
      typename Schedule<kMatrices>::Epilogue, typename End::Tree>::CollectiveOp;
  using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
      sizeof(typename Epilogue::SharedStorage))>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, Operator, Code, LayoutOf<kMatrices, cutlass::layout::RowMajor>, 32, Code,
      LayoutOf<kMatrices, cutlass::layout::ColumnMajor>, 32, float, Tile, Cluster, Stages,
      typename Schedule<kMatrices>::Mainloop>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<typename Schedule<kMatrices>::Problem,
                                                      Mainloop, Epilogue, void>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

// ---- what linears and experts do alike; Products is Linear or Experts ----

/// Launches the product of one matrix by an operation on its operands.
template <class Product>
void launch_product(const typename Product::Arguments& arguments, void* workspace,
                    const Launcher& launcher) {
  using Kernel = typename Product::Kernel;
  const auto parameters = Kernel::to_underlying_arguments(arguments, workspace);
  launch(&cutlass::device_kernel<Kernel>, launcher, Product::Gemm::get_grid_shape(parameters),
         Kernel::get_block_shape(), size_t{Kernel::SharedStorageSize}, parameters);
}

template <template <Output, int> class Products, int kTokens, Output... kOutputs>
void prepare_outputs(const Launcher& launcher) {
  (launcher.device->allow_shared(
       &cutlass::device_kernel<typename Products<kOutputs, kTokens>::Kernel>,
       Products<kOutputs, kTokens>::Kernel::SharedStorageSize),
   ...);
}

/// Makes gemm.output; `add` is the caller's. SwiGLU is two products.
template <template <Output, int> class Products, int kTokens>
void run_output(const QuantizedGemm& gemm, const Launcher& launcher) {
  switch (gemm.output) {
    case QuantizedOutput::bf16:
      return Products<Output::bf16, kTokens>::run(gemm, gemm.weight, launcher);
    case QuantizedOutput::f32:
      return Products<Output::f32, kTokens>::run(gemm, gemm.weight, launcher);
    case QuantizedOutput::swiglu:
      Products<Output::bf16, kTokens>::run(gemm, gemm.up, launcher);
      return Products<Output::gated, kTokens>::run(gemm, gemm.weight, launcher);
    default:
      CHECK(false, "output ", static_cast<int>(gemm.output), " by tensor memory");
  }
}

// ---- the order of scales is the one of scale_blocks.h ----

using ScaleConfig = cutlass::detail::Sm1xxBlockScaledConfig<16>;
/// Compares all scales of 32 rows x 128 columns of a matrix of 384 x 256, as either operand.
constexpr bool scales_agree(int first_row, int first_column) {
  constexpr int kRows = 384;
  constexpr int kColumns = 256;
  const auto left = ScaleConfig::tile_atom_to_shape_SFA(cute::make_shape(kRows, 64, kColumns, 1));
  const auto right = ScaleConfig::tile_atom_to_shape_SFB(cute::make_shape(64, kRows, kColumns, 1));
  for (int row = first_row; row < first_row + 32; ++row)
    for (int column = first_column; column < first_column + 128; column += 16) {
      const auto place = scale_place(row, column / 16, kColumns / 16);
      if (left(row, column, 0) != place || right(row, column, 0) != place) return false;
    }
  return true;
}
template <int... kPart>
constexpr bool all_scales_agree(std::integer_sequence<int, kPart...>) {
  static_assert((std::bool_constant<scales_agree(kPart / 2 * 32, kPart % 2 * 128)>::value && ...));
  return true;
}
static_assert(all_scales_agree(std::make_integer_sequence<int, 24>()));

}  // namespace nibble::cuda::sm100
