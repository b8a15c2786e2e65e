// Card and driver -> subject -> what is remembered, or the comparison -> the rule.
#include "cli/card/card_products.h"

#include "cli/card/nvml.h"
#include "cli/options/folders.h"

namespace nibble {
namespace {

std::string driver_words(const CardIdentity& facts) {
  const std::string version = ask_driver().version;
  return concat(version.empty() ? "unknown" : version, ", CUDA ", facts.driver_cuda);
}

Error no_native_products(const std::string& found) {
  return make_error(ErrorCode::unsupported,
                    {.what = "--require-native",
                     .expected = "products of 4-bit codes by the card's own instruction",
                     .found = found,
                     .advice = "leave the flag out to run the weight-only kernels"});
}

bool may_be_codes(Activations mode) {
  return mode == Activations::declared || mode == Activations::automatic;
}

}  // namespace

std::filesystem::path proof_file(const ProofSubject& subject) {
  const std::filesystem::path folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() || subject.program.empty() ? "" : folder / "fp4-proof.json";
}

ProofSubject proof_subject(const CardIdentity& card, Fp4Products way) {
  return {.card = concat(card.name, ", ", card.uuid, ", ", card.code),
          .driver = driver_words(card),
          .program = running_program(),
          .way = way};
}

Result<void> check_native(const ProductsRequest& request, const BackendOptions& options,
                          const std::string& obstacle) {
  if (!request.require_native) return {};
  if (!obstacle.empty()) return no_native_products(obstacle);
  if (!may_be_codes(options.activations))
    return no_native_products(concat("--activations ", activations_name(options.activations)));
  return {};
}

Result<ProductsChoice> settle_card_products(const Weights& weights, const ProductsRequest& request,
                                            const BackendOptions& options, std::string& notice) {
  ProductsChoice settled{.activations = options.activations};
  if (!may_be_codes(options.activations)) return settled;
  const CardIdentity card = TRY(card_identity(options.card));
  const bool instruction = request.asked == Fp4Products::instruction;
  const bool by_receipt = instruction && card.has_tensor_memory;
  if (instruction && !card.has_fp4_instruction && !by_receipt) {
    if (!request.require_native) return settled;
    return no_native_products(
        concat(card.name, " (code for ", card.code, "), which has no instruction for them"));
  }
  const ProofSubject subject = proof_subject(card, request.asked);
  const bool planted = request.fault != cuda::Fp4Fault::none;
  const std::filesystem::path file = planted ? "" : proof_file(subject);
  // Inputs of 8 bits have no products by tensor memory.
  if (by_receipt && cuda::linears_in_fp4(weights) == 0 && !request.require_native) return settled;
  const ProofOutcome outcome =
      by_receipt ? receipt_proof(file, subject) : prove_products(file, subject, [&] {
        return run_fp4_harness(request.asked, request.fault);
      });
  notice += outcome.notice;
  settled = cuda::settle_products(weights, options.activations, request.asked, outcome.proof);
  if (!request.require_native) return settled;
  if (cuda::linears_in_fp4(weights) == 0)
    return no_native_products("a checkpoint in which no linear declares 4-bit inputs");
  if (settled.way != Fp4Products::widened) return settled;
  return no_native_products(settled.reason);
}

}  // namespace nibble
