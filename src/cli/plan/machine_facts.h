// The facts of this machine for `nibble doctor`: driver, cards, processor, memory, folders, a port.
// Questions alone; nothing is written or kept.
#pragma once

#include "plan/machine_report.h"

namespace nibble {

/// All facts but MachineFacts::expectations. `port`: of the server, on the loopback address.
MachineFacts machine_facts(int32_t port);

}  // namespace nibble
