// Products of experts' generated rows, and of a dense MLP's, as sequences of launches.
#include <algorithm>

#include "backend/cuda/activations/quantized_products.h"

namespace nibble::cuda {
namespace {

/// The lists of routing: up to 8 assignments of one expert in each entry. Inputs and results are
/// those of assignments.
QuantizedExperts lists_of(const Routing& routing) {
  return {.list = reinterpret_cast<const int32_t*>(routing.items),
          .stride = 4,
          .rows_max = 8,
          .count = routing.item_count,
          .gather = routing.assignments,
          .scatter = routing.assignments};
}

/// A Part has the matrices of routed experts or of the shared one, and the rows of args.act and
/// args.y that are theirs.
struct Part {
  const DeviceLinear& low;
  const DeviceLinear& high;
  int32_t count = 0;                // rows
  int64_t begin = 0;                // the first
  int32_t share = 1;                // adjacent rows made of one row of args.x
  const int32_t* matrix = nullptr;  // [count], the expert of each row
  QuantizedExperts lists;
  int64_t matrices = 1;  // that are read
  /// They are of matrices in blocks, whose rows lie in their order, not in that of assignments.
  ExpertGroups groups;

  const int32_t* position() const { return groups.position; }
  QuantizedExperts experts() const {
    QuantizedExperts all = lists;
    if (groups.experts > 0) {
      all.gather = all.scatter = nullptr;
      all.groups = &groups;
    }
    return all;
  }
};
Part part_of(const Context& context, const ExpertArgs& args, ExpertMatrices which) {
  if (which == ExpertMatrices::shared)
    return {.low = args.shared_low,
            .high = args.shared_high,
            .count = args.rows,
            .begin = args.shared_begin};
  const int32_t assignments = args.rows * args.top_k;
  return {.low = args.routed_low,
          .high = args.routed_high,
          .count = assignments,
          .share = args.top_k,
          .matrix = args.routing.experts,
          .lists = lists_of(args.routing),
          // Evenly spread choices reach as many experts as there are assignments.
          .matrices = std::min(assignments, args.experts),
          .groups = in_blocks(args.routed_low) ? groups_of(context) : ExpertGroups()};
}

/// Puts the rows of experts whose matrices are in blocks into the order of their groups.
void order_rows(const Part& part, const Routing& routing, const Launcher& launcher) {
  if (part.groups.experts == 0) return;
  group_rows({.lists = part.lists,
              .assignments = routing.assignments,
              .assignment_count = part.count,
              .groups = part.groups},
             launcher);
}

}  // namespace

QuantizedInput gate_up_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
                           const Launcher& launcher) {
  const Part part = part_of(context, args, how.which);
  order_rows(part, args.routing, launcher);
  const RoundInputs rows{.weight = part.low,
                         .count = part.count,
                         .x = args.x,
                         .x_stride = args.x_stride,
                         .share = part.share,
                         .to = part.position(),
                         .matrix = part.matrix};
  uint16_t* act = args.act + part.begin * args.act_stride;
  const QuantizedInput codes =
      makes_codes(context, {.gate = part.low, .up = part.high, .down = how.down})
          ? codes_in(act, part.count, args.act_stride, how.down)
          : QuantizedInput{};
  quantized_gemm(
      {.x = how.codes.present() ? how.codes : make_quantized_rows(context, rows, launcher),
       .rows = part.count,
       .weight = part.low,
       .up = part.high,
       .output = codes.present() ? QuantizedOutput::swiglu_codes : QuantizedOutput::swiglu,
       .order = column_order(part.low),
       .y = act,
       .y_stride = args.act_stride,
       .codes = codes,
       .next = how.down,
       .experts = part.experts()},
      launcher, part.matrices);
  return codes;
}

void down_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
              const Launcher& launcher) {
  const Part part = part_of(context, args, how.which);
  const bool grouped = part.groups.experts > 0;
  const QuantizedInput x = how.codes.present()
                               ? how.codes
                               : make_quantized_rows(context,
                                                     {.weight = part.low,
                                                      .count = part.count,
                                                      .x = args.act + part.begin * args.act_stride,
                                                      .x_stride = args.act_stride,
                                                      .from = part.position(),
                                                      .to = part.position(),
                                                      .matrix = part.matrix,
                                                      .order = column_order(part.low)},
                                                     launcher);
  float* y = args.y + part.begin * args.y_stride;
  auto* ordered = context.work.ordered.as<float>();
  quantized_gemm({.x = x,
                  .rows = part.count,
                  .weight = part.low,
                  .output = QuantizedOutput::f32,
                  .y = grouped ? ordered : y,
                  .y_stride = grouped ? part.low.rows : args.y_stride,
                  .experts = part.experts()},
                 launcher, part.matrices);
  if (grouped)
    return_rows({.from = ordered,
                 .position = part.position(),
                 .count = part.count,
                 .columns = part.low.rows,
                 .to = y,
                 .to_stride = args.y_stride},
                launcher);
}

}  // namespace nibble::cuda
