// This file launches the products of experts: one kernel for all, whose groups have as many rows as
// the device says.
#include <array>
#include <bit>

#include "backend/cuda/ops/quantized/expert_groups.h"
#include "backend/cuda/ops/quantized/quantized_select.h"
#include "backend/cuda/ops/quantized/sm100/collectives.cuh"
#include "backend/cuda/ops/quantized/sm100/products_sm100.h"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

using namespace sm100;

// ---- what expert_groups.cu writes is what CUTLASS reads ----

using Sizes = cute::Shape<int, int, int>;
using ScaleLayout = decltype(ScaleConfig::tile_atom_to_shape_SFB(cute::make_shape(1, 1, 1, 1)));
static_assert(std::bit_cast<std::array<int, 3>>(Sizes(128, 3, 512)) ==
              std::bit_cast<std::array<int, 3>>(GroupSizes{128, 3, 512}));
static_assert(std::bit_cast<std::array<int, 5>>(
                  ScaleConfig::tile_atom_to_shape_SFB(cute::make_shape(128, 300, 512, 1))) ==
              std::bit_cast<std::array<int, 5>>(GroupScales{3, 8, 1, 4096, 12288}));
static_assert(std::is_same_v<ScaleLayout, decltype(ScaleConfig::tile_atom_to_shape_SFA(
                                              cute::make_shape(1, 1, 1, 1)))>);

template <typename To, typename From>
To* as(From* array) {
  static_assert(sizeof(To) == sizeof(From));
  return std::bit_cast<To*>(array);
}

template <Output kOutput, int kTokens>
struct Experts : Product<Matrices::each, kOutput, kTokens> {
  using Base = Product<Matrices::each, kOutput, kTokens>;
  using typename Base::Gemm;
  using typename Base::Kernel;
  using Number = typename Base::End::Number;
  using Read = typename Base::End::Read;
  using Arguments = typename Gemm::Arguments;
  using StrideX = typename Kernel::InternalStrideB;
  using StrideY = typename Kernel::InternalStrideD;
  static_assert(std::is_same_v<StrideX, typename Kernel::InternalStrideA> &&
                std::is_same_v<ScaleLayout, typename Base::Mainloop::InternalLayoutSFA> &&
                std::is_same_v<ScaleLayout, typename Base::Mainloop::InternalLayoutSFB>);

  static typename Base::End::Tree::Arguments finish(const DeviceLinear& w) {
    typename Base::End::Sums::Arguments sums{
        {}, {.scalar_ptrs = {w.factors}, .dScalar = {{{}, {}, w.factor_stride}}}, {}};
    if constexpr (kOutput == Output::gated)
      return {{sums, {}}, {}, {}};
    else
      return sums;
  }

  static Arguments arguments(const DeviceLinear& w, const ExpertGroups& groups,
                             int multiprocessors) {
    Arguments arguments{cutlass::gemm::GemmUniversalMode::kGrouped,
                        {groups.experts, as<Sizes>(groups.sizes), nullptr},
                        {as<const cutlass::float_e2m1_t*>(groups.w), as<StrideX>(groups.x_stride),
                         as<const cutlass::float_e2m1_t*>(groups.x), as<StrideX>(groups.x_stride),
                         as<const Scale*>(groups.w_scales), as<ScaleLayout>(groups.w_layout),
                         as<const Scale*>(groups.x_scales), as<ScaleLayout>(groups.x_layout)},
                        {finish(w), nullptr, as<StrideY>(groups.y_stride), as<Number*>(groups.y),
                         as<StrideY>(groups.y_stride)}};
    if constexpr (kOutput == Output::gated) arguments.epilogue.ptr_C = as<const Read*>(groups.y);
    arguments.hw_info.sm_count = multiprocessors;
    return arguments;
  }

  static void run(const QuantizedGemm& gemm, const DeviceLinear& w, const Launcher& launcher) {
    const ExpertGroups& groups = *gemm.experts.groups;
    describe_groups(gemm, w, sizeof(Number), groups, launcher);
    const Arguments arguments = Experts::arguments(w, groups, launcher.card.multiprocessors);
    CHECK(Kernel::can_implement(arguments) &&
              Kernel::get_workspace_size(arguments) <= size_t{kGroupMapBytes},
          w.rows, " x ", w.cols, " for ", groups.experts, " experts on ",
          launcher.card.multiprocessors, " multiprocessors");
    launch_product<Experts>(arguments, groups.maps, launcher);
  }
};

}  // namespace

void prepare_experts_sm100(const Launcher& launcher) {
  prepare_outputs<Experts, kSm100FewTokens, Output::bf16, Output::f32, Output::gated>(launcher);
  prepare_outputs<Experts, kSm100ExpertTokens, Output::bf16, Output::f32, Output::gated>(launcher);
}

void experts_sm100(const QuantizedGemm& gemm, int tokens, const Launcher& launcher) {
  CHECK(gemm.x.factors == nullptr, "factors of rows of experts");
  with_value<kSm100FewTokens, kSm100ExpertTokens>(
      tokens, [&]<int kTokens>() { run_output<Experts, kTokens>(gemm, launcher); });
}

}  // namespace nibble::cuda
