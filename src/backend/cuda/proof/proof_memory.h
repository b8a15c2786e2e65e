// The results of comparing cards' products of 4-bit codes, remembered between starts in a file of
// the user's cache folder. The file is trusted for exactly the card, driver and program that it
// names; whatever else it holds, a damaged file among that, is as if there were none.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/activations/activation_rule.h"
#include "backend/cuda/proof/fp4_harness.h"

namespace nibble {

/// A proof holds for nothing else.
struct ProofSubject {
  std::string card;     // its name and number
  std::string driver;   // its version
  std::string program;  // that is running
  Fp4Products way = Fp4Products::instruction;
  bool operator==(const ProofSubject&) const = default;
};

/// The result that the file has of `subject`; nothing if it has none, is absent or damaged.
std::optional<cuda::Fp4Proof> remembered_proof(const std::filesystem::path& file,
                                               const ProofSubject& subject);
/// Adds the result, in place of an older one of the same subject; the folder is made if it is
/// missing. Few of the newest are kept. Errors: io.
Result<void> remember_proof(const std::filesystem::path& file, const ProofSubject& subject,
                            cuda::Fp4Proof proof);

struct ProofOutcome {
  cuda::Fp4Proof proof = cuda::Fp4Proof::none;
  std::string notice;  // a line for people, or empty where there is nothing to tell
};
/// The remembered result of `subject`, or else that of `harness`, which is remembered then. Without
/// either (the harness has an error) there is no proof. `file`: empty to
/// remember nothing.
ProofOutcome prove_products(const std::filesystem::path& file, const ProofSubject& subject,
                            const std::function<Result<Fp4HarnessResult>()>& harness);

/// The result of a receipt of `subject`, and without one no proof: for products that are off until
/// `nibble doctor --receipt` has passed. Nothing is compared here.
ProofOutcome receipt_proof(const std::filesystem::path& file, const ProofSubject& subject);

/// This program among others: its build ID, or the size and time of its file; empty: not known.
std::string running_program();

}  // namespace nibble
