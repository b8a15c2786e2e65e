// The engine starts and wakes only with a backend that holds what was planned, to the byte.
#include "engine/reserved_check.h"

#include <gtest/gtest.h>

#include <future>

#include "engine/engine.h"
#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

EngineSettings small_settings() {
  return {.pools = {.pages = 32, .state_slots = 4, .rows_max = 132, .replay_rows = 3},
          .sequences_max = 4,
          .context_max = 512};
}

Result<std::unique_ptr<Engine>> start(const EngineSettings& settings,
                                      std::unique_ptr<FakeBackend> backend) {
  return Engine::start(std::move(backend), FakeBackend::config(), {.settings = settings});
}

/// The bytes that a FakeBackend holds of small_settings().
ReservedBytes right_plan() { return {.pages = 32 * kPageTokens * 8, .states = 4 * (1 + 3) * 8}; }

TEST(ReservedCheck, StartsOnARightPlan) {
  EngineSettings settings = small_settings();
  EXPECT_TRUE(start(settings, std::make_unique<FakeBackend>()).ok());  // by its formulas
  settings.planned = right_plan();
  EXPECT_TRUE(start(settings, std::make_unique<FakeBackend>()).ok());
}

TEST(ReservedCheck, OneByteOffInAnyPartEndsTheStart) {
  struct Part {
    std::string name;
    int64_t ReservedBytes::*bytes;
  };
  for (const Part& part : {Part{"weights", &ReservedBytes::weights},
                           {"rotary tables", &ReservedBytes::tables},
                           {"KV pages", &ReservedBytes::pages},
                           {"states", &ReservedBytes::states},
                           {"workspace", &ReservedBytes::workspace}}) {
    for (const int64_t off : {-1, 1}) {
      EngineSettings settings = small_settings();
      settings.planned = right_plan();
      const int64_t held = (*settings.planned).*part.bytes;
      (*settings.planned).*part.bytes += off;
      const auto refused = start(settings, std::make_unique<FakeBackend>());
      ASSERT_FALSE(refused.ok()) << part.name;
      EXPECT_EQ(refused.error().code, ErrorCode::internal);
      const std::string& said = refused.error().message;
      for (const std::string& word : {concat("at start: ", part.name), concat(held + off, " bytes"),
                                      concat(held, " reserved")})
        EXPECT_NE(said.find(word), std::string::npos) << word << " in: " << said;
      EXPECT_EQ(said.find('\n'), std::string::npos);
    }
  }
}

TEST(ReservedCheck, ABackendIsHeldToItsOwnFormulas) {
  auto backend = std::make_unique<FakeBackend>();
  backend->missing_bytes = 1;
  EXPECT_EQ(start(small_settings(), std::move(backend)).error().code, ErrorCode::internal);
}

TEST(ReservedCheck, WakingChecksAgain) {
  auto backend = std::make_unique<FakeBackend>();
  FakeBackend* fake = backend.get();
  const auto engine = start(small_settings(), std::move(backend)).value();
  const auto rest = [&](Engine::Rest wanted) {
    std::promise<Result<void>> answer;
    engine->rest(wanted, [&](Result<void> outcome) { answer.set_value(std::move(outcome)); });
    return answer.get_future().get();
  };
  ASSERT_TRUE(rest(Engine::Rest::sleeping).ok());
  ASSERT_TRUE(rest(Engine::Rest::awake).ok());
  ASSERT_TRUE(rest(Engine::Rest::sleeping).ok());
  fake->missing_bytes = 1;
  const Result<void> refused = rest(Engine::Rest::awake);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::internal);
  EXPECT_NE(refused.error().message.find("after waking: KV pages"), std::string::npos);
  EXPECT_EQ(engine->resting(), Engine::Rest::sleeping);
}

}  // namespace
}  // namespace nibble
