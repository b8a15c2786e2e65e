// The conditions under which each kernel of a feed-forward runs.
#include "backend/cuda/ops/experts/experts_select.h"

#include <cmath>

#include "base/concat.h"

namespace nibble::cuda {
namespace {

constexpr int kSplitRowsMax = 2;  // rows of `split`; more rows have a tile for every warp

/// True for NVFP4, or FP8 without block factors, of up to 8 slices; routed and shared experts must
/// be alike.
bool fits_resident(const DeviceLinear& w) {
  return !w.present() || (w.rows % kRowTile == 0 && w.format != Format::bf16 &&
                          w.layout != FactorLayout::block128 && slice_count(w) <= kResidentWarps);
}
bool alike(const ExpertArgs& args) {
  const DeviceLinear& routed = args.routed_low;
  const DeviceLinear& shared = args.shared_low;
  return !routed.present() || !shared.present() ||
         (routed.format == shared.format && routed.cols == shared.cols);
}
bool inputs_fit(const ExpertArgs& args) {
  return fits_resident(args.routed_low) && fits_resident(args.routed_high) &&
         fits_resident(args.shared_low) && fits_resident(args.shared_high) && alike(args);
}

const DeviceLinear& first_of(const ExpertArgs& args, ExpertStacks stacks) {
  return stacks != ExpertStacks::shared && args.routed_low.present() ? args.routed_low
                                                                     : args.shared_low;
}

/// Returns the number of experts to which `rows` rows of evenly spread choices are expected to go.
double experts_expected(const ExpertArgs& args) {
  if (args.experts == 0) return 0.0;
  const double missed = 1.0 - static_cast<double>(args.top_k) / args.experts;
  return args.experts * (1.0 - std::pow(missed, args.rows));
}

int64_t bytes_of(ExpertPart part, const ExpertArgs& args, ExpertStacks stacks) {
  const auto of = [&](const DeviceLinear& low, const DeviceLinear& high) {
    if (!low.present()) return int64_t{0};
    return weight_bytes(low) + (part == ExpertPart::gate_up ? weight_bytes(high) : 0);
  };
  int64_t bytes = 0;
  if (stacks != ExpertStacks::routed) bytes += of(args.shared_low, args.shared_high);
  if (stacks != ExpertStacks::shared)
    bytes += static_cast<int64_t>(experts_expected(args) *
                                  static_cast<double>(of(args.routed_low, args.routed_high)));
  return bytes;
}

ExpertsPlan plan_of(ExpertPart part, const ExpertArgs& args, ExpertStacks stacks) {
  return {.stacks = stacks,
          .format = first_of(args, stacks).format,
          .warps = kResidentWarps,
          .weight_bytes = bytes_of(part, args, stacks)};
}

constexpr std::string_view kKernelNames[] = {"row", "resident", "split", "chain", "stream"};
constexpr std::string_view kStackNames[] = {"", " of experts", " of the shared expert"};

}  // namespace

bool experts_take_a_row(const ExpertArgs& gate_up, const ExpertArgs& down,
                        const Architecture& card) {
  if (!gate_up.routed_low.present() || !inputs_fit(gate_up) || !inputs_fit(down)) return false;
  const int warps =
      slice_count(down.routed_low) * (down.top_k + (down.shared_low.present() ? 1 : 0));
  return warps <= kSumWarpsMax && sum_bytes(warps) + kSumStaticBytes <= card.shared_bytes &&
         down.routed_low.rows % 4 == 0 && gate_up.routed_low.cols <= kResidentColumnsMax;
}

ExpertsPlans select_experts(ExpertPart part, const ExpertArgs& args, const Architecture& card) {
  ExpertsPlan whole = plan_of(part, args, ExpertStacks::both);
  const bool alone = part == ExpertPart::gate_up ? args.norm.h != nullptr : args.h != nullptr;
  if (alone) {
    whole.kernel = ExpertKernel::row;
    if (part == ExpertPart::down) {
      whole.warps =
          slice_count(args.routed_low) * (args.top_k + (args.shared_low.present() ? 1 : 0));
      whole.shared_bytes = sum_bytes(whole.warps);
    }
    return {.plans = {whole}, .count = 1};
  }
  if (part == ExpertPart::gate_up) {
    const LinearPlans streamed = select_gate_up(args, card);
    if (streamed.count > 0) {
      whole.kernel = ExpertKernel::stream;
      whole.streamed = streamed.plans[0];
      whole.warps = whole.streamed.warps;
      whole.shared_bytes = whole.streamed.shared_bytes;
      return {.plans = {whole}, .count = 1};
    }
  }
  if (inputs_fit(args)) {
    whole.kernel = ExpertKernel::resident;
    whole.warps = args.rows >= kResidentManyRows ? kResidentManyWarps : kResidentFewWarps;
    whole.shared_bytes =
        resident_expert_bytes(whole.format, slice_count(first_of(args, ExpertStacks::both)));
    return {.plans = {whole}, .count = 1};
  }
  whole.kernel = args.rows > kSplitRowsMax ? ExpertKernel::chain : ExpertKernel::split;
  if (alike(args)) return {.plans = {whole}, .count = 1};
  ExpertsPlans plans{.plans = {plan_of(part, args, ExpertStacks::routed),
                               plan_of(part, args, ExpertStacks::shared)},
                     .count = 2};
  for (ExpertsPlan& plan : plans.plans) plan.kernel = whole.kernel;
  return plans;
}

std::string ExpertsPlan::text() const {
  if (kernel == ExpertKernel::stream) return streamed.text();
  return concat(kKernelNames[static_cast<int>(kernel)], " ", format_name(format),
                kStackNames[static_cast<int>(stacks)], ", ", warps, " warps",
                shared_bytes > 0 ? concat(", ", shared_bytes, " bytes shared") : "");
}

}  // namespace nibble::cuda
