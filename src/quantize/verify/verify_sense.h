// Checks of what may be, but makes no sense: scales that disagree with all others of the
// checkpoint, codes that are clipped, declarations that contradict each other. Values that may not
// be at all are found by verify_checks.h.
#pragma once

#include "quantize/verify/verify_checks.h"

namespace nibble {

/// Global scales that are no power of two where nearly all others are; input scales and cache
/// scales far from those of their kind. Errors: io.
Result<void> check_scale_agreement(const VerifySubject& subject, Findings& findings);
/// Matrices of which too many codes are at the end of their range, or none is near it; block scales
/// that are zero.
void check_code_ranges(const VerifySubject& subject, Findings& findings);
/// Sizes of groups and blocks in the declarations against those of the tensors, and
/// hf_quant_config.json against config.json.
void check_declared_numbers(const Checkpoint& checkpoint, Findings& findings);

}  // namespace nibble
