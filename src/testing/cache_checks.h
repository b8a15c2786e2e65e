// The checks of the store of cache bytes that every backend passes, as gtest expectations.
#pragma once

#include "model/backend.h"

namespace nibble {

/// Expects that one call of move_pages(), move_states() or zero_states() does for many ids what a
/// call for each would do, and nothing to others. Reserves the backend's pools.
void expect_cache_moves(Backend& backend);

}  // namespace nibble
