// `nibble eval kv DIR TASKS...`: what each format of keys and values costs beside BF16 pages.
#pragma once

#include "cli/verb.h"

namespace nibble {

/// The exit code: 1 if a format is not harmless, else 0.
Result<int> eval_kv(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
