// Asks a card for its receipt.
#pragma once

#include "cli/card/receipt.h"
#include "cli/terminal.h"

namespace nibble {

/// Checks the first card and measures it for `seconds` (0: not at all), with a line on standard
/// error for each part. A card that fails is a failed check, the last. Errors: as card_identity;
/// no_memory.
Result<Receipt> take_receipt(double seconds, Terminal& terminal);
/// Turns products by tensor memory on for this card, driver and program, if the receipt is sound,
/// or else off, and says so. Nothing on a card without tensor memory.
void remember_receipt(const Receipt& receipt, Terminal& terminal);

}  // namespace nibble
