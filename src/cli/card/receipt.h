// The receipt of a card: what it is, what its kernels computed and how fast, as one small JSON
// document to attach to a report. Nothing here asks a card.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/proof/card_receipt.h"
#include "backend/cuda/proof/fp4_harness.h"
#include "base/json.h"

namespace nibble {

struct Receipt {
  std::string version;    // of this program
  std::string commit;     // that it was built from; empty: not known
  std::string program;    // its build
  std::string built_for;  // the targets and the version of CUDA
  CardIdentity card;
  std::string driver;  // "580.159.03"; empty: not known
  Fp4HarnessResult harness;
  std::vector<CheckedPart> checks;
  std::vector<CardFigure> figures;
  // The limits of the data sheet, per second; nothing: not known.
  std::optional<double> bandwidth_bytes;
  std::optional<double> bf16_flops;
  std::optional<double> fp8_flops;
  std::optional<double> fp4_flops;
};

/// The limits of the data sheet for this card, where they are known.
void add_data_sheet(Receipt& receipt);

/// True if every check passed and every sum of the harness was as computed.
bool is_sound(const Receipt& receipt);
/// "sound" or "not sound", and what that means for this card.
std::string verdict_text(const Receipt& receipt);

/// Version 1 of the document.
Json receipt_json(const Receipt& receipt);
/// The same in short, for people.
std::string receipt_text(const Receipt& receipt);

}  // namespace nibble
