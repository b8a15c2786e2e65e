// The engine's thread: many callers, bounded queues, shutdown.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "engine/fake_backend.h"

namespace nibble {
namespace {

Engine::Options small_options() {
  return {.settings = {.pools = {.pages = 32, .state_slots = 4, .rows_max = 132},
                       .sequences_max = 4,
                       .context_max = 512,
                       .waiting_max = 8,
                       .integrity = IntegrityChecks::every_step},
          .sampleable = {},
          .on_events = {},
          .outbox_max = 65536};
}

std::unique_ptr<Engine> start(Engine::Options options = small_options()) {
  auto engine =
      Engine::start(std::make_unique<FakeBackend>(), FakeBackend::config(), std::move(options));
  EXPECT_TRUE(engine.ok());
  return std::move(engine).value();
}

SequenceRequest request(uint64_t id, int32_t max_tokens) {
  SequenceRequest made;
  made.id = id;
  made.prompt = {1, 2, static_cast<int32_t>(id % FakeBackend::kVocab)};
  made.max_tokens = max_tokens;
  made.sampling.temperature = 0.0;
  return made;
}

struct Tally {
  std::map<uint64_t, size_t> tokens;
  std::map<uint64_t, FinishReason> ends;

  void take(Engine& engine, std::chrono::milliseconds wait) {
    for (const EngineEvent& event : engine.take_events(wait)) {
      if (const auto* fresh = std::get_if<NewTokens>(&event))
        tokens[fresh->id] += fresh->tokens.size();
      else
        ends[std::get<Finished>(event).id] = std::get<Finished>(event).reason;
    }
  }
};

TEST(Engine, ServesManyCallers) {
  auto engine = start();
  std::atomic<int> refused = 0;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const uint64_t id = engine->next_id();
        while (!engine->submit(request(id, 20)).ok()) {
          ++refused;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (i % 3 == 2) engine->cancel(id);
      }
    });
  Tally tally;
  for (int i = 0; i < 1000 && tally.ends.size() < 40; ++i)
    tally.take(*engine, std::chrono::milliseconds(100));
  EXPECT_EQ(tally.ends.size(), 40U);
  for (const auto& [id, reason] : tally.ends)
    EXPECT_TRUE(reason != FinishReason::length || tally.tokens[id] == 20U) << id;
}

TEST(Engine, RefusesWhenTheQueueIsFull) {
  Engine::Options options = small_options();
  options.outbox_max = 1;  // nobody reads: the engine stands still
  auto engine = start(std::move(options));
  int accepted = 0;
  for (int i = 0; i < 40; ++i) {
    const auto result = engine->submit(request(engine->next_id(), 200));
    EXPECT_TRUE(result.ok() || result.error().code == ErrorCode::no_space);
    accepted += result.ok() ? 1 : 0;
  }
  EXPECT_EQ(accepted, 12);
}

TEST(Engine, DrainsOnShutdown) {
  auto engine = start();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->submit(request(engine->next_id(), 50)).ok());
  engine->shutdown(Shutdown::finish_running);
  EXPECT_EQ(engine->submit(request(engine->next_id(), 1)).error().code, ErrorCode::cancelled);
  Tally tally;
  while (tally.ends.size() < 6) tally.take(*engine, std::chrono::milliseconds(100));
  for (const auto& [id, reason] : tally.ends) EXPECT_EQ(reason, FinishReason::length);
  for (int i = 0; i < 1000 && !engine->stopped(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(engine->stopped());
}

TEST(Engine, CancelsOnAbortEvenWhenNobodyReads) {
  Engine::Options options = small_options();
  options.outbox_max = 1;
  auto engine = start(std::move(options));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->submit(request(engine->next_id(), 200)).ok());
  engine->shutdown(Shutdown::cancel_running);
  Tally tally;
  for (int i = 0; i < 100 && tally.ends.size() < 6; ++i)
    tally.take(*engine, std::chrono::milliseconds(100));
  EXPECT_EQ(tally.ends.size(), 6U);
}

TEST(Engine, TellsTheConsumerOncePerBatch) {
  std::atomic<int> calls = 0;
  Engine::Options options = small_options();
  options.on_events = [&] { ++calls; };
  auto engine = start(std::move(options));
  ASSERT_TRUE(engine->submit(request(1, 30)).ok());
  for (int i = 0; i < 2000 && calls == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(calls, 1);  // the outbox was never emptied
}

TEST(Engine, RefusesImpossibleRequestsAtOnce) {
  auto engine = start();
  EXPECT_EQ(engine->submit(request(1, 600)).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace nibble
