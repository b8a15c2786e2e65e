// The products of blocks with their inputs as --activations has them. declared: as the checkpoint
// declares them, emulated; every input is rounded by a kernel of its own (round_inputs.h) and then
// meets the matrix in BF16; for measuring: slow. Where the card multiplies codes of 4 bits they
// stay codes, in prompts those of 8 bits too (quantized_products.h). f32: f32_products.h. Else
// these are the plain calls.
#pragma once

#include "backend/cuda/activations/f32_products.h"
#include "backend/cuda/activations/quantized_products.h"
#include "backend/cuda/context.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"

namespace nibble::cuda {

/// True if inputs are rounded as declared.
bool declares(const Context& context);
/// True if the inputs of this matrix are.
inline bool rounds(const DeviceLinear& weight) {
  return weight.activations != ActivationFormat::high;
}
/// True if a kernel may make its own inputs: they are neither declared ones nor F32.
bool makes_inputs(const Context& context);

// These are for generation arithmetic.
/// `codes`: the rows as the first of the outputs wants them, if they were made before.
void linear(const Context& context, const LinearArgs& args, const Launcher& launcher,
            const QuantizedInput& codes = {});
/// The matrices that gate and up make inputs for, and rows for the shared or dense ones if they
/// were made before.
struct GateUpWays {
  DeviceLinear routed_down, shared_down;
  QuantizedInput codes;
};
/// The inputs of down that they leave in args.act in place of BF16 rows, where they make them.
struct ActCodes {
  QuantizedInput routed, shared;
};
ActCodes experts_gate_up(const Context& context, const ExpertArgs& args, const GateUpWays& ways,
                         const Launcher& launcher);
/// Rounds rows of args.act in place where they are no codes.
void experts_down(const Context& context, const ExpertArgs& args, const ActCodes& act,
                  const Launcher& launcher);

/// A PromptInput is the input of a product of prompt rows.
struct PromptInput {
  const uint16_t* x = nullptr;  // [rows][stride], packed
  int64_t stride = 0;
  QuantizedInput codes;                    // in place of x where the product is made of codes
  const DeviceLinear* made_for = nullptr;  // then x is there too, and codes are what it rounds to
};
enum class PassRows : uint8_t { generated, prompt };
/// The matrix for which the norm that ends `half` of `layer` makes codes of its rows, the first
/// that reads them; null: it makes none.
const DeviceLinear* rounded_by_norm(const Context& context, int layer, Half half, PassRows rows);
/// The codes that it makes, `in` of prompt rows with them, and those of generated rows, if any.
QuantizeRows rows_by_norm(const Context& context, const AddNormArgs& norm,
                          const DeviceLinear& weight);
PromptInput with_codes(const Context& context, const PromptInput& in, int layer, Half half);
QuantizedInput codes_by_norm(const Context& context, int layer, Half half);

/// Returns the input rounded as `weight` declares; it is valid until the next call, or as long as
/// codes that a norm made, which are taken where they are the same.
PromptInput prompt_input(const Context& context, const PromptInput& in, const DeviceLinear& weight);
/// Does the same for experts, with a row for each assignment, as route_sort orders them.
PromptInput sorted_input(const Context& context, const PromptInput& in, const DeviceLinear& weight);
/// Rounds rows in that order where they lie, or makes codes of them, and returns them.
PromptInput round_sorted(const Context& context, uint16_t* act, int64_t stride,
                         const DeviceLinear& weight);
/// A product of prompt rows: of gemm.packed_x, or of `codes` where they are there.
struct PromptGemm {
  PrefillGemm gemm;
  QuantizedInput codes;
  QuantizedInput act = {};  // in place of gemm.y, as inputs of `next`
  DeviceLinear next = {};
};
void prompt_gemm(const Context& context, const PromptGemm& product, const Launcher& launcher);

/// Does what WeightStore::load() does. Errors also: those of check_declared for declared
/// activations.
Result<WeightStore> load_weights(const Weights& weights, const ModelConfig& config,
                                 const Launcher& launcher, const BackendOptions& options);

}  // namespace nibble::cuda
