// Where `nibble plan` plans: every card of the table, one card, or this machine's own memory.
#pragma once

#include <optional>

#include "cli/serving/model_loader.h"
#include "plan/card_table.h"

namespace nibble {

inline constexpr Option kGpuOption = {
    "gpu", "CARD|MIB", "",
    "the card: rtx5090, rtx5090:headless, h200, h200:3g.71gb, dgx-spark ..., a number of MiB, or "
    "cpu for this machine's memory; default: a line for each card"};

struct Place {
  enum class Kind : uint8_t { all_cards, card, host };
  Kind kind = Kind::all_cards;
  std::optional<PlannedCard> card;
};

/// --gpu, --card-limit and --backend. Errors: invalid_argument; unsupported for a card that is too
/// old.
Result<Place> read_place(const Arguments& arguments);

}  // namespace nibble
