// Runs groups of checks one after the other, until a card fails. Nothing here asks a card.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include "backend/cuda/checks/tally.h"
#include "backend/cuda/proof/card_receipt.h"

namespace nibble::checks {

/// A call that the card did not answer as it must. What a check would compute from it means
/// nothing, so it ends the group.
class CardFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Part {
  std::string name;
  std::string ran;
  std::function<void(Tally& tally)> run;
};

/// `report` is told of each part when it is done. `alive` is asked after each. Errors: that of
/// alive(), or io for a CardFailure; the part has one failed check more then, the first that it
/// names, and none follows it.
Result<void> run_parts(std::span<const Part> parts, const std::function<Result<void>()>& alive,
                       const std::function<void(const CheckedPart&)>& report);

}  // namespace nibble::checks
