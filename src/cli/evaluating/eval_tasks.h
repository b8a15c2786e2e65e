// `nibble eval MODEL TASKS...`: asks every item, judges the answers, reports shares with intervals.
#pragma once

#include "cli/verb.h"

namespace nibble {

/// The exit code: 0 when every item was judged and, with --within, the loss is small enough; else
/// 1; 130 if interrupted.
Result<int> eval_tasks(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
