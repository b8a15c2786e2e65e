// The plan is that of the settings, or follows from the formulas of the backend.
#include "engine/reserved_check.h"

namespace nibble {

Result<void> check_reserved(const Backend& backend, const EngineSettings& settings,
                            std::string_view when) {
  const std::optional<ReservedBytes> reserved = backend.reserved_bytes();
  if (!reserved) return {};
  const PoolSizes& pools = settings.pools;
  const int64_t slot = backend.state_slot_bytes() + pools.replay_rows * backend.replay_row_bytes();
  const ReservedBytes formulas = {.weights = reserved->weights,
                                  .tables = reserved->tables,
                                  .pages = pools.pages * backend.page_bytes(),
                                  .states = pools.state_slots * slot,
                                  .workspace = backend.workspace_bytes(pools),
                                  .media = backend.media_bytes(pools)};
  return check_reserved(settings.planned.value_or(formulas), *reserved, when);
}

}  // namespace nibble
