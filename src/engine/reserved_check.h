// Holds a backend to the memory plan: what it has reserved must be what was planned, to the byte.
#pragma once

#include "engine/engine_core.h"

namespace nibble {

/// After Backend::reserve() and after wake(). Where settings.planned is absent, caches and
/// workspace are held to the backend's own formulas. A backend without an account is not checked.
/// Errors: those of the other check_reserved.
Result<void> check_reserved(const Backend& backend, const EngineSettings& settings,
                            std::string_view when);

}  // namespace nibble
