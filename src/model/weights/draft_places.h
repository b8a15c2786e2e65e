// The layer that drafts as it is loaded, by shapes and formats alone: its plain linears in fewer
// bits, and a head of its own. Drafts decide nothing but speed, so this costs acceptance at most.
// rounded_draft.h makes the numbers.
#pragma once

#include "base/result.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

/// The module name of a head that is no module of the checkpoint.
inline constexpr const char* kDraftHead = "mtp.draft_head";

/// `mtp` as ModelConfig::draft_format and draft_tokens want it, where synthetic_weights.h puts
/// tensors. Plain projections and "mtp.fc" become that format; the router and the gate of the
/// shared expert, which are small, and what is not plain stay. With draft_tokens, or where the
/// model's `head` is plain and the format is not, there is a head for drafts: rows of the model's
/// as they are stored, plain ones in draft_format.
MtpSources draft_places(MtpSources mtp, const LinearSource& head, const ModelConfig& config);

/// True if something of the layer `mtp` is stored otherwise in `placed`, or the head that it drafts
/// with is not in the format of the model's.
bool rounds_some(const MtpSources& mtp, const LinearSource& head, const MtpSources& placed);

/// Errors: unsupported for columns that are not in groups of 16, and for draft_tokens beside a head
/// in FP8 blocks, which hold no single rows.
Result<void> check_draft_places(const MtpSources& placed, const LinearSource& head);

}  // namespace nibble
