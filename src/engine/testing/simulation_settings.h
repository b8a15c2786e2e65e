// The engine and the model of a random life, drawn from its seed.
#pragma once

#include <random>

#include "engine/engine_core.h"
#include "engine/testing/fake_backend.h"

namespace nibble {

EngineSettings random_settings(std::mt19937_64& random);
/// With settings.model_drafts it drafts.
FakeBackend::Model random_model(const EngineSettings& settings, std::mt19937_64& random);

}  // namespace nibble
