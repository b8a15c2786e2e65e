// Words to cards: names, parts of cards, sizes, and the names that a driver has for them.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "plan/card_table.h"

namespace nibble {
namespace {

/// Cards that people ask for and that no kernel of this program runs on.
struct OldCard {
  std::string_view name;
  int32_t capability;
};
constexpr auto kOldCards = std::to_array<OldCard>({
    {"v100", 70},
    {"titan-v", 70},
    {"t4", 75},
    {"rtx2080ti", 75},
    {"rtx-8000", 75},
    {"titan-rtx", 75},
    {"p100", 60},
    {"p40", 61},
    {"gtx1080ti", 61},
    {"m40", 52},
});

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

int shift_of(char unit) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t at = kUnits.find(unit);
  return at == std::string_view::npos ? -1 : static_cast<int>(10 * (at + 1));
}

/// Bytes of "24G" or, without a unit, of a number of MiB; 0 for other text.
int64_t read_bytes(std::string_view text) {
  constexpr int kMibShift = 20;
  if (text.empty()) return 0;
  const int unit = shift_of(text.back());
  const std::string_view digits = unit > 0 ? text.substr(0, text.size() - 1) : text;
  const int shift = unit > 0 ? unit : kMibShift;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  constexpr int64_t kMost = int64_t{1} << 50;
  return whole && count > 0 && count <= kMost >> shift ? count << shift : 0;
}

Error too_old(const OldCard& card) {
  return make_error(ErrorCode::unsupported,
                    {.what = concat("card ", card.name),
                     .expected = "compute capability 8.0 or higher (RTX 3090, A100 and newer), "
                                 "whose tensor cores multiply BF16",
                     .found = capability_text(card.capability),
                     .advice = "use a newer card, or --gpu cpu for this machine's CPU"});
}

Error unknown_part(const CardRow& card, std::string_view part) {
  std::string known = "headless, desktop";
  for (const MigSlice& slice : mig_slices())
    if (slice.card == card.name) known += concat(", ", slice.name);
  return make_error(ErrorCode::invalid_argument, {.what = concat("card ", card.name, ":", part),
                                                  .expected = concat("one of ", known),
                                                  .found = concat("\"", part, "\"")});
}

PlannedCard whole_card(const CardRow& card, CardUse use) {
  const int64_t kept = use == CardUse::desktop ? card.desktop_mib : card.headless_mib;
  return {.name = std::string(card.name),
          .label = std::string(card.label),
          .capability = card.capability,
          .memory_bytes = (card.memory_mib - kept) << 20,
          .reserved_bytes = kept << 20,
          .bandwidth_bytes = card.bandwidth_gbs * 1e9,
          .shared_bytes = card.shared_kib << 10,
          .memory_source = std::string(figure_source_name(card.memory_source)),
          .bandwidth_source = std::string(figure_source_name(card.bandwidth_source)),
          .memory = card.memory};
}

Result<PlannedCard> part_of(const CardRow& card, std::string_view part) {
  if (part == "headless") return whole_card(card, CardUse::headless);
  if (part == "desktop") return whole_card(card, CardUse::desktop);
  for (const MigSlice& slice : mig_slices()) {
    if (slice.card != card.name || slice.name != part) continue;
    PlannedCard planned = whole_card(card, CardUse::headless);
    planned.label += concat(", MIG ", slice.name);
    planned.memory_bytes = int64_t{slice.memory_mib} << 20;
    planned.reserved_bytes = 0;
    planned.bandwidth_bytes *= slice.eighths / 8.0;
    planned.memory_source = "nvidia-smi mig -lgip";
    return planned;
  }
  return unknown_part(card, part);
}

/// The words of a name, in small letters: "NVIDIA A100-SXM4-80GB" has nvidia, a100, sxm4, 80gb.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : lower_case(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

/// Counts the words of the row's `device`; 0 if the name lacks one of them.
size_t matching_words(const CardRow& card, const std::vector<std::string>& name) {
  size_t count = 0;
  for (const std::string& word : words_of(card.device)) {
    if (std::ranges::find(name, word) == name.end()) return 0;
    ++count;
  }
  return count;
}

bool like(int64_t bytes, const CardRow& card) {
  const double part = static_cast<double>(bytes) / (static_cast<double>(card.memory_mib) * 0x1p20);
  return bytes == 0 || (part > 0.93 && part < 1.07);
}

}  // namespace

PlannedCard card_of_device(const GpuFacts& gpu) {
  const std::vector<std::string> name = words_of(gpu.name);
  const CardRow* best = nullptr;
  size_t most = 0;
  for (const CardRow& card : card_rows()) {
    const size_t words = matching_words(card, name);
    if (words <= most || card.capability != gpu.capability || !like(gpu.memory_bytes, card))
      continue;
    best = &card;
    most = words;
  }
  if (best != nullptr) return whole_card(*best, best->usual);
  return {.name = gpu.name,
          .label = gpu.name,
          .capability = gpu.capability,
          .memory_bytes = gpu.memory_bytes,
          .memory_source = "the driver"};
}

std::string known_cards() {
  std::string known;
  for (const CardRow& card : card_rows()) known += concat(known.empty() ? "" : ", ", card.name);
  return known;
}

Result<PlannedCard> find_card(std::string_view text) {
  const std::string lower = lower_case(text);
  const size_t colon = lower.find(':');
  const std::string_view name = std::string_view(lower).substr(0, colon);
  for (const OldCard& card : kOldCards)
    if (card.name == name) return too_old(card);
  for (const CardRow& card : card_rows()) {
    if (card.name != name) continue;
    PlannedCard planned = whole_card(card, card.usual);
    if (colon != std::string::npos)
      planned = TRY(part_of(card, std::string_view(lower).substr(colon + 1)));
    planned.name = lower;
    return planned;
  }
  return make_error(ErrorCode::invalid_argument, {.what = "card",
                                                  .expected = concat("one of ", known_cards()),
                                                  .found = concat("\"", text, "\"")});
}

Result<PlannedCard> find_card_or_size(std::string_view flag, std::string_view text) {
  if (const int64_t bytes = read_bytes(text); bytes > 0)
    return PlannedCard{.name = std::string(text),
                       .label = concat("a card of ", bytes >> 20, " MiB"),
                       .memory_bytes = bytes,
                       .memory_source = "as asked"};
  const auto found = find_card(text);
  if (found.ok() || found.error().code != ErrorCode::invalid_argument ||
      text.find(':') != std::string_view::npos)
    return found;
  return make_error(ErrorCode::invalid_argument,
                    {.what = flag,
                     .expected = concat("one of ", known_cards(),
                                        ", a number of MiB, or bytes with a unit such as 24G"),
                     .found = concat("\"", text, "\"")});
}

}  // namespace nibble
