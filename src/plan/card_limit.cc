// A row of the card table, or bytes, as a limit.
#include "plan/card_limit.h"

#include <algorithm>
#include <charconv>

#include "plan/card_table.h"

namespace nibble {
namespace {

int shift_of(char unit) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t at = kUnits.find(unit);
  return at == std::string_view::npos ? -1 : static_cast<int>(10 * (at + 1));
}

/// Bytes; 0 for other text.
int64_t read_bytes(std::string_view text) {
  const int shift = shift_of(text.back());
  const std::string_view digits = shift > 0 ? text.substr(0, text.size() - 1) : text;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  const int64_t most = INT64_MAX >> std::max(shift, 0);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && bytes > 0 && bytes <= most ? bytes << std::max(shift, 0) : 0;
}

}  // namespace

Result<CardLimit> card_limit(std::string_view text) {
  constexpr int32_t kHopper = 90;
  if (text.empty()) return CardLimit{};
  if (const int64_t bytes = read_bytes(text); bytes > 0) return CardLimit{.memory_bytes = bytes};
  const auto card = find_card(text);
  if (card.ok())
    return CardLimit{.memory_bytes = card.value().memory_bytes,
                     .shared_bytes = card.value().shared_bytes,
                     .portable_kernels = card.value().capability != kHopper};
  if (card.error().code != ErrorCode::invalid_argument || text.find(':') != text.npos)
    return make_error(card.error().code, {.what = concat("--card-limit: ", card.error().message)});
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--card-limit", .expected = concat(known_cards(), " or bytes"), .found = text});
}

}  // namespace nibble
