// The cards that plans know: memory, bandwidth, architecture, and what a desktop or the driver
// holds of the memory. A table of published figures, each with its source; nothing here asks a
// card.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// The source of a figure of the table.
enum class FigureSource : uint8_t {
  nvidia_smi,  // what nvidia-smi prints as the total
  cuda,        // what CUDA gives a program as the total
  data_sheet,  // NVIDIA's data sheet
  measured,    // measured with this program
};
std::string_view figure_source_name(FigureSource source);

/// Whose memory it is: the card's own, or the machine's, which CPU and GPU share.
enum class CardMemoryKind : uint8_t { own, unified };
/// desktop: a graphical session runs on the card.
enum class CardUse : uint8_t { headless, desktop };

struct CardRow {
  std::string_view name;    // of --gpu and --card-limit: "rtx5090"
  std::string_view label;   // "GeForce RTX 5090"
  std::string_view device;  // words that the driver\'s name of it has: "rtx 5090"
  int32_t capability = 0;   // compute capability times ten: 120
  int32_t memory_mib = 0;
  int32_t headless_mib = 0;  // that the driver keeps from every program
  int32_t desktop_mib = 0;   // the same with a desktop's windows
  int32_t bandwidth_gbs = 0;
  int32_t shared_kib = 0;  // of one block
  FigureSource memory_source = FigureSource::nvidia_smi;
  FigureSource bandwidth_source = FigureSource::data_sheet;
  CardUse usual = CardUse::headless;
  CardMemoryKind memory = CardMemoryKind::own;
};
std::span<const CardRow> card_rows();

/// A part of a card that MIG makes a device of its own.
struct MigSlice {
  std::string_view card;
  std::string_view name;   // "3g.71gb"
  int32_t memory_mib = 0;  // what `nvidia-smi mig -lgip` prints
  int32_t eighths = 0;     // of the card's bandwidth
};
std::span<const MigSlice> mig_slices();

/// A card as somebody asked for it.
struct PlannedCard {
  std::string name;            // as written: "rtx5090:headless"
  std::string label;           // for people
  int32_t capability = 0;      // times ten; 0: only a number of bytes is known
  int64_t memory_bytes = 0;    // that programs can have
  int64_t reserved_bytes = 0;  // that they cannot, by the table
  double bandwidth_bytes = 0;  // a second; 0: not known
  int32_t shared_bytes = 0;    // of one block; 0: not known
  std::string memory_source;   // for people
  std::string bandwidth_source;
  CardMemoryKind memory = CardMemoryKind::own;
};

/// "rtx5090", "rtx5090:headless", "h100:desktop", "h200:3g.71gb"; in any case of letters. Errors:
/// invalid_argument, naming the known cards; unsupported for a known card that is too old, with the
/// reason.
Result<PlannedCard> find_card(std::string_view text);
/// The same, and a number of MiB ("24576"), or of bytes with a unit ("24G"). `flag` is for
/// messages.
Result<PlannedCard> find_card_or_size(std::string_view flag, std::string_view text);

/// A card as the driver's management library describes it.
struct GpuFacts {
  std::string name;          // "NVIDIA GeForce RTX 4090"
  int32_t capability = 0;    // compute capability times ten: 89
  int64_t memory_bytes = 0;  // 0: not told, as of unified memory
  int64_t free_bytes = 0;
};
/// Its row, by name, capability and memory; without one, what the driver says and no bandwidth.
PlannedCard card_of_device(const GpuFacts& gpu);

/// Names of the table with commas.
std::string known_cards();

/// The formats whose products tensor cores of this capability compute: "BF16, FP8".
std::string_view native_formats(int32_t capability);
/// "8.6" of 86.
std::string capability_text(int32_t capability);
/// Memory that the driver takes for a process before it allocates anything; an estimate.
int64_t card_context_bytes(int32_t capability);

}  // namespace nibble
