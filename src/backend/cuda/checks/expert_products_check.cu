// Products of experts by tensor memory against double arithmetic, on a card of compute
// capability 10.
#include <string>

#include "backend/cuda/checks/block_operands.h"
#include "backend/cuda/checks/expert_lists.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

/// Experts whose rows lie in order; the choice of a tile by `matrices`, so that both are run.
struct ExpertProduct {
  QuantizedProduct p;
  Lists host;
  DeviceLists lists;
  BlockProduct product;

  ExpertProduct(const std::vector<int>& rows, const WeightShape& shape, QuantizedOutput output,
                Numbers numbers, const Launcher& launcher)
      : p(make(rows, shape, output, numbers)),
        host(rows, 128, 3, 0),
        lists(host, shape.matrices),
        product(p, shape.matrices, host.shifts, launcher) {
    group_rows(lists.rows, launcher);
  }
  static QuantizedProduct make(const std::vector<int>& rows, const WeightShape& shape,
                               QuantizedOutput output, Numbers numbers) {
    QuantizedProduct p{.name = concat("experts by tensor memory, ", rows.size(), " of ", shape.n,
                                      " x ", shape.k, ", output ", static_cast<int>(output)),
                       .numbers = numbers,
                       .output = output,
                       .w = random_weight({}, shape, numbers, 81),
                       .n = shape.n,
                       .y_stride = shape.n + 8};
    if (output == QuantizedOutput::swiglu) p.up = random_weight({}, shape, numbers, 91);
    for (size_t e = 0; e < rows.size(); ++e)
      for (int i = 0; i < rows[e]; ++i) {
        p.y_rows.push_back(static_cast<int32_t>(std::ssize(p.y_rows)));
        p.matrices.push_back(static_cast<int32_t>(e));
      }
    p.x_rows = p.y_rows;
    p.y_total = std::ssize(p.y_rows) + 3;
    p.x = random_rows({}, std::ssize(p.y_rows), shape.k, numbers, 71);
    return p;
  }
  QuantizedOutcome run(int64_t matrices, const Launcher& launcher) const {
    return product.run(p, [&](QuantizedGemm& gemm) {
      gemm.experts = lists.rows.lists;
      gemm.experts.groups = &lists.groups;
      quantized_gemm(gemm, launcher, matrices);
    });
  }
};

void check_products(Tally& tally, const std::vector<int>& rows, const WeightShape& shape,
                    const Launcher& launcher) {
  for (const auto output : {QuantizedOutput::bf16, QuantizedOutput::f32, QuantizedOutput::swiglu})
    for (const auto numbers : {Numbers::exact, Numbers::any}) {
      const ExpertProduct experts(rows, shape, output, numbers, launcher);
      const QuantizedOutcome few = experts.run(experts.host.total, launcher);
      const QuantizedOutcome many = experts.run(1, launcher);
      const QuantizedVerdict verdict = judge(experts.p, few);
      tally.check(
          verdict.fine(experts.p),
          concat(experts.p.name, ", wrong bits ", verdict.wrong_bits, ", strayed ", verdict.strayed)
              .c_str(),
          verdict.error);
      tally.check(few.bits == many.bits, (experts.p.name + ": both tiles, to the bit").c_str(), 0);
      free_sides(experts.p);
    }
}

}  // namespace

void check_expert_products(Tally& tally) {
  Launcher launcher = fp4_launcher();
  launcher.card.fp4 = by_tensor_memory(launcher.card);
  quantized_gemm_prepare(launcher);
  constexpr int kWidths[] = {256, 128, 384};
  int i = 0;
  for (const auto& rows : expert_rows())
    check_products(tally, rows, {static_cast<int>(rows.size()), kWidths[i++], 512}, launcher);
}

}  // namespace nibble::checks
