// The files that describe a checkpoint to people, corrected for one that was converted:
// quantize_report.json, its picture, recipe.yaml and the model card. Knows nothing of tensors.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "quantize/report/content_hashes.h"
#include "quantize/report/quantize_report.h"

namespace nibble {

struct Conversion {
  std::string command;                            // "nibble convert SRC DST --format modelopt"
  Dialect dialect = Dialect::compressed_tensors;  // of the output
  const QuantDeclaration& declaration;            // of the output
  int64_t tensor_bytes = 0;                       // of the output
  /// A head that was made anew, its rule for the recipe beside it. None: the weights are the same.
  std::optional<KindReport> head = {};
  std::string head_rule = {};
  /// same: every weight decodes to the bits it had, so what was measured still holds.
  enum class Weights : uint8_t { same, other } weights = Weights::same;
  /// Those of every tensor of the output; nothing: they are not known, and none are written.
  std::optional<Hashes> hashes = {};
};

/// The hashes of tensors in files that the output links, as the folder of `from` says them, added
/// to those of `written` tensors; nothing if it does not say all.
std::optional<Hashes> with_linked(const Checkpoint& from, std::span<const LinkedFile> linked,
                                  Hashes written);

/// Copies what else belongs to the folder of `from`. A report, picture or recipe of which this
/// program cannot tell what would be true now is left out, and a card is kept as README.base.md.
/// Then writes the declaration and the hashes, and finishes the output. Errors: io, no_space.
Result<void> finish_converted(const Checkpoint& from, const Conversion& conversion,
                              CheckpointWriter& writer);

}  // namespace nibble
