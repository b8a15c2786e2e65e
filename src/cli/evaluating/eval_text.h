// `nibble eval perplexity` and `nibble eval kl`: the scoring of `nibble score`, on text.
#pragma once

#include "cli/verb.h"

namespace nibble {

/// eval perplexity DIR TEXT...: plain files, or JSONL lines with "text".
Result<int> eval_perplexity(const Arguments& arguments, Terminal& terminal);

/// eval kl DIR TEXT... --against DIR2|LOGITS: also the divergence from another checkpoint, or from
/// stored logits.
Result<int> eval_kl(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
