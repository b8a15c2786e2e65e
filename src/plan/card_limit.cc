// Memory as nvidia-smi names it, in MiB; on a desktop card 1 GiB of it is the desktop's.
#include "plan/card_limit.h"

#include <array>
#include <charconv>

namespace nibble {
namespace {

struct Card {
  std::string_view name;
  int32_t memory_mib;
  int32_t desktop_mib;
  int32_t shared_kib;  // of one block
};
constexpr std::array kCards = {
    Card{"rtx3090", 24576, 1024, 99}, Card{"rtx4090", 24564, 1024, 99},
    Card{"rtx5090", 32607, 1024, 99}, Card{"rtx-pro-6000", 97887, 1024, 99},
    Card{"l4", 23034, 0, 99},         Card{"l40s", 46068, 0, 99},
    Card{"a100-40gb", 40960, 0, 163}, Card{"a100-80gb", 81920, 0, 163},
    Card{"h100", 81559, 0, 227},      Card{"h200", 143771, 0, 227},
};

int shift_of(char unit) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t at = kUnits.find(unit);
  return at == std::string_view::npos ? -1 : static_cast<int>(10 * (at + 1));
}

}  // namespace

Result<CardLimit> card_limit(std::string_view text) {
  if (text.empty()) return CardLimit{};
  for (const Card& card : kCards)
    if (card.name == text)
      return CardLimit{.memory_bytes = int64_t{card.memory_mib - card.desktop_mib} << 20,
                       .shared_bytes = card.shared_kib << 10,
                       .portable_kernels = card.shared_kib < 227};
  const int shift = shift_of(text.back());
  const std::string_view digits = shift > 0 ? text.substr(0, text.size() - 1) : text;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  const int64_t most = INT64_MAX >> std::max(shift, 0);
  if (error == std::errc() && end == digits.data() + digits.size() && bytes > 0 && bytes <= most)
    return CardLimit{.memory_bytes = bytes << std::max(shift, 0)};
  std::string known;
  for (const Card& card : kCards) known += concat(known.empty() ? "" : ", ", card.name);
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--card-limit", .expected = concat(known, " or bytes"), .found = text});
}

}  // namespace nibble
