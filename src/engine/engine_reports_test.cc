// An engine tells who runs it why it cannot wake, and tells nothing once it is gone.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>

#include "engine/engine.h"
#include "engine/testing/fake_backend.h"
#include "testing/gate.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

Engine::Options small_options() {
  return {.settings = {.pools = {.pages = 32,
                                 .state_slots = 6,
                                 .rows_max = 132,
                                 .host_pages = 16,
                                 .host_slots = 4},
                       .sequences_max = 4,
                       .context_max = 512},
          .sampleable = {},
          .on_events = {}};
}

SequenceRequest request(uint64_t id, int32_t prompt, int32_t max_tokens) {
  SequenceRequest made;
  made.id = id;
  for (int32_t i = 0; i < prompt; ++i) made.prompt.push_back(i % FakeBackend::kVocab);
  made.max_tokens = max_tokens;
  made.sampling.temperature = 0.0;
  return made;
}

FinishReason end_of_next(Engine& engine) {
  while (true)
    for (const EngineEvent& event : engine.take_events(std::chrono::milliseconds(50)))
      if (const auto* end = std::get_if<Finished>(&event)) return end->reason;
}

/// The request ends, and a line says why; the next one tries again.
TEST(EngineReports, ARequestWakesItOnceAndEndsIfThatFails) {
  auto backend = std::make_unique<FakeBackend>();
  backend->wakes_failing = 1;
  std::vector<std::string> reports;
  Engine::Options options = small_options();
  options.report = [&](const std::string& line) { reports.push_back(line); };
  auto engine =
      Engine::start(std::move(backend), FakeBackend::config(), std::move(options)).value();
  std::promise<bool> slept;
  engine->rest(Engine::Rest::sleeping, [&](const auto& outcome) { slept.set_value(outcome.ok()); });
  ASSERT_TRUE(slept.get_future().get());
  ASSERT_TRUE(engine->submit(request(1, 3, 5)).ok());
  EXPECT_EQ(end_of_next(*engine), FinishReason::cancelled);
  EXPECT_EQ(reports, std::vector<std::string>{"the fake card does not wake"});
  EXPECT_EQ(engine->resting(), Engine::Rest::sleeping);
  ASSERT_TRUE(engine->submit(request(2, 3, 5)).ok());
  EXPECT_EQ(end_of_next(*engine), FinishReason::length);
  EXPECT_EQ(reports.size(), 1U);
}

/// A step hangs and is given up while the line about a prefix is still being told: what the line is
/// told to may go as soon as the engine has gone.
TEST(EngineReports, AnEngineThatLeavesAStepAwaitsTheEndOfALine) {
  auto step = std::make_shared<testing::Gate>();
  testing::Gate line;
  std::atomic<bool> told = false;
  auto backend = std::make_unique<FakeBackend>();
  backend->on_pass = [step](int pass) {
    if (pass == 5) step->pass();
  };
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() / "prefixes";
  auto store = PrefixStore::open(folder, {.fingerprint = {1, 2, 3, 4},
                                          .page_bytes = backend->page_bytes(),
                                          .state_slot_bytes = backend->state_slot_bytes(),
                                          .bytes_max = 1 << 20});
  Engine::Options options = small_options();
  options.store = std::make_shared<PrefixStore>(std::move(store).value());
  options.step_deadline = std::chrono::milliseconds(1500);
  options.report = [&](const std::string&) {
    line.pass();
    told = true;
  };
  auto engine =
      Engine::start(std::move(backend), FakeBackend::config(), std::move(options)).value();
  std::filesystem::remove_all(folder);  // nothing can be saved
  SequenceRequest pinning = request(1, 250, 50);
  pinning.cache.pinned_tokens = 200;
  ASSERT_TRUE(engine->submit(std::move(pinning)).ok());
  line.wait_for_one();
  engine->wait_stopped();
  auto was_told = std::async(std::launch::async, [&] {
    engine.reset();
    return told.load();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  line.open();
  EXPECT_TRUE(was_told.get());
  testing::Gate::dismiss(step);
}

}  // namespace
}  // namespace nibble
