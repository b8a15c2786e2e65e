// Draws of sizes and modes.
#include "engine/testing/simulation_settings.h"

#include <array>

namespace nibble {

namespace {

constexpr int kPagesMost = 28;

}  // namespace

EngineSettings random_settings(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  EngineSettings settings;
  settings.sequences_max = pick(1, 6);
  settings.pools.pages = pick(10, kPagesMost);
  settings.pools.state_slots = settings.sequences_max + pick(0, 5);
  settings.pools.host_pages = pick(0, 2) == 0 ? 0 : pick(1, 30);
  settings.pools.host_slots = pick(0, 2) == 0 ? 0 : pick(1, 8);
  settings.pools.rows_max = settings.sequences_max + 64 * pick(1, 5);
  settings.context_max = 64 * settings.pools.pages;
  settings.chunk_tokens_max = 64 * pick(0, 2);
  settings.step_ms = pick(5, 60);
  settings.pools.replay_rows = pick(0, 1) == 0 ? 0 : pick(2, 6);
  if (settings.pools.replay_rows > 0 && pick(0, 1) == 0)
    settings.model_drafts = pick(1, settings.pools.replay_rows - 1);
  if (settings.model_drafts > 0) settings.repeat_match = pick(0, 3);
  if (pick(0, 1) == 0) {
    settings.pools.media_rows = pick(16, 60);
    settings.pools.host_media_rows = pick(0, 2) == 0 ? 0 : pick(4, 80);
    settings.pools.vision_rows = kVisionPage * pick(1, 3);
  }
  const int mode = pick(0, 9);
  settings.cache = mode < 7 ? CacheMode::exact : mode < 9 ? CacheMode::fast : CacheMode::off;
  settings.mask_patience_ms = pick(0, 1) == 0 ? 0.0 : 1000.0;
  settings.integrity = IntegrityChecks::every_step;
  return settings;
}

FakeBackend::Model random_model(const EngineSettings& settings, std::mt19937_64& random) {
  const bool with_nan = random() % 8 == 0;
  constexpr std::array<uint64_t, 4> kWrongDrafts = {0, 9, 4, 2};
  std::optional<uint64_t> drafts;
  if (settings.model_drafts > 0) drafts = kWrongDrafts[random() % kWrongDrafts.size()];
  return {.nan_every = with_nan ? uint64_t{2000} : 0,
          .two_arithmetics = settings.cache != CacheMode::fast,
          .chooses = random() % 2 == 0,
          .overlaps = random() % 4 != 0,
          .drafts = drafts};
}

}  // namespace nibble
