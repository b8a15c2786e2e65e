// The products of blocks whose weights and inputs are both multiplied as codes of 4 bits or, in
// prompts, of 8 (ops/quantized): what declared.h calls where the card does that. Inputs are rounded
// as there, and stay codes.
#pragma once

#include "backend/cuda/activations/products_choice.h"
#include "backend/cuda/context.h"
#include "backend/cuda/ops/linear/round_inputs.h"
#include "backend/cuda/ops/quantized/expert_groups.h"
#include "backend/cuda/ops/quantized/quantized_select.h"
#include "base/result.h"

namespace nibble::cuda {

/// Lets `launcher` make products of 4-bit codes in that way, and puts the weights into the order
/// for it. Errors: unsupported for activations other than declared, for the instruction on a card
/// that lacks it, and for software on one that has it; no_memory.
Result<void> take_fp4_products(Activations activations, Fp4Products way, const ModelConfig& config,
                               WeightStore& weights, Launcher& launcher);

/// True if the products of `weight` are made of 4-bit codes.
bool in_fp4(const Context& context, const DeviceLinear& weight);
/// The same of gate and up, whose results are joined.
bool in_fp4(const Context& context, const DeviceLinear& gate, const DeviceLinear& up);

/// True if gate and up can make the inputs of down, in 4-bit codes.
bool makes_codes(const Context& context, const MlpWeights& mlp);

/// True if products of prompt rows with `weight` are made of FP8 codes.
bool in_fp8(const Context& context, const DeviceLinear& weight);

/// Cuts `count` rows of codes out of memory, as inputs of `weight` are rounded. `parts`: groups of
/// rows whose scales begin a block.
QuantizedInput cut_rows(const DeviceSlice& memory, int64_t count, const DeviceLinear& weight,
                        int64_t parts = 1);
/// The same out of the memory of `count` BF16 rows, which they replace.
QuantizedInput codes_in(uint16_t* act, int64_t count, int64_t stride, const DeviceLinear& weight);
/// The groups of experts whose matrices are multiplied by tensor memory.
ExpertGroups groups_of(const Context& context);
/// True for such matrices.
inline bool in_blocks(const DeviceLinear& weight) { return weight.order != CodeOrder::words; }
/// Makes the rows that round_inputs(args) makes, as codes in the workspace instead of args.out;
/// they are valid until the next call of anything that rounds. Rows of experts in blocks are
/// grouped already (group_rows).
QuantizedInput make_quantized_rows(const Context& context, const RoundInputs& args,
                                   const Launcher& launcher);

/// The order of the columns of rows that a matrix reads or, of gate and up, makes.
ColumnOrder column_order(const DeviceLinear& weight);
// These are for generation arithmetic. They round their inputs where no codes are given.
/// args.count is 1.
void linear_fp4(const Context& context, const LinearArgs& args, const QuantizedInput& codes,
                const Launcher& launcher);
enum class ExpertMatrices : uint8_t { routed, shared };  // shared: also those of a dense MLP
struct ExpertCodes {
  ExpertMatrices which = ExpertMatrices::routed;
  DeviceLinear down = {};     // gate and up: what reads their results
  QuantizedInput codes = {};  // in place of args.x, with down of args.act
};
/// Returns the inputs of down in place of rows of args.act, if it makes them.
QuantizedInput gate_up_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
                           const Launcher& launcher);
void down_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
              const Launcher& launcher);

}  // namespace nibble::cuda
