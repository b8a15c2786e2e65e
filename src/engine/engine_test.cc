// The engine's thread: many callers, bounded queues, shutdown.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "engine/testing/fake_backend.h"
#include "testing/gate.h"
#include "testing/soon.h"
#include "testing/test_files.h"

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

/// Asks; the answer comes.
std::future<Result<void>> ask_rest(Engine& engine, Engine::Rest wanted) {
  auto answer = std::make_shared<std::promise<Result<void>>>();
  engine.rest(wanted, [answer](Result<void> outcome) { answer->set_value(std::move(outcome)); });
  return answer->get_future();
}

Result<void> rest(Engine& engine, Engine::Rest wanted) { return ask_rest(engine, wanted).get(); }

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
  EXPECT_TRUE(testing::soon([&] {
    tally.take(*engine, std::chrono::milliseconds(100));
    return tally.ends.size() >= 40;
  }));
  EXPECT_EQ(tally.ends.size(), 40U);
  for (const auto& [id, reason] : tally.ends)
    EXPECT_TRUE(reason != FinishReason::length || tally.tokens[id] == 20U) << id;
}

/// Both lie in the inbox when the thread looks: the request must not outlive its cancel.
TEST(Engine, ACancelReachesARequestSubmittedJustBefore) {
  auto gate = std::make_shared<testing::Gate>();
  auto backend = std::make_unique<FakeBackend>();
  backend->on_pass = [gate](int pass) {
    if (pass == 2) gate->pass();
  };
  auto engine = Engine::start(std::move(backend), FakeBackend::config(), small_options()).value();
  ASSERT_TRUE(engine->submit(request(1, 20)).ok());
  gate->wait_for_one();
  ASSERT_TRUE(engine->submit(request(2, 20)).ok());
  engine->cancel(2);
  gate->open();
  Tally tally;
  while (tally.ends.size() < 2) tally.take(*engine, std::chrono::milliseconds(50));
  EXPECT_EQ(tally.ends[1], FinishReason::length);
  EXPECT_EQ(tally.ends[2], FinishReason::cancelled);
  EXPECT_EQ(tally.tokens[2], 0U);
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
  EXPECT_TRUE(testing::soon([&] { return engine->stopped(); }));
}

/// Everything ends with the device's error, then the thread; nothing is admitted after.
TEST(Engine, EndsEverythingWhenTheDeviceFails) {
  auto backend = std::make_unique<FakeBackend>();
  backend->passes_left = 5;
  auto gate = std::make_shared<testing::Gate>();  // so that no pass fails before all are submitted
  backend->on_pass = [shared = gate](int pass) {
    if (pass == 5) shared->pass();
  };
  std::atomic<int> told = 0;
  Engine::Options options = small_options();
  options.on_events = [&] { ++told; };
  auto engine =
      Engine::start(std::move(backend), FakeBackend::config(), std::move(options)).value();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->submit(request(engine->next_id(), 50)).ok());
  gate->open();
  std::map<uint64_t, std::string> errors;
  while (!engine->stopped() || errors.empty())
    for (const EngineEvent& event : engine->take_events(std::chrono::milliseconds(20)))
      if (const auto* end = std::get_if<Finished>(&event)) {
        EXPECT_EQ(end->reason, FinishReason::error);
        errors[end->id] = end->error;
      }
  EXPECT_EQ(errors.size(), 6U);
  for (const auto& [id, error] : errors) EXPECT_EQ(error, "the fake card failed");
  EXPECT_EQ(engine->failure().error().message, "the fake card failed");
  EXPECT_EQ(engine->submit(request(engine->next_id(), 1)).error().message, "the fake card failed");
  while (told < 2) std::this_thread::yield();  // of the first events and of the failure
}

/// Six sequences whose fifth pass stands at a gate, and a second that has passed.
struct Hung {
  std::shared_ptr<testing::Gate> gate = std::make_shared<testing::Gate>();
  std::atomic<int> told = 0;
  std::unique_ptr<Engine> engine;

  explicit Hung(std::chrono::milliseconds deadline) {
    auto backend = std::make_unique<FakeBackend>();
    backend->on_pass = [shared = gate](int pass) {
      if (pass == 5) shared->pass();
    };
    Engine::Options options = small_options();
    options.on_events = [this] { ++told; };
    options.step_deadline = deadline;
    engine = Engine::start(std::move(backend), FakeBackend::config(), std::move(options)).value();
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(engine->submit(request(engine->next_id(), 50)).ok());
    gate->wait_for_one();
  }
};

/// Behaves like a device that fails; nobody waits for the pass, and its later result is nothing.
TEST(Engine, EndsEverythingWhenAStepDoesNotEnd) {
  Hung hung(std::chrono::milliseconds(1500));
  Engine& engine = *hung.engine;
  auto slept = ask_rest(engine, Engine::Rest::sleeping);
  engine.wait_stopped();
  EXPECT_TRUE(engine.stopped());
  const std::string why = engine.failure().error().message;
  EXPECT_EQ(why,
            "a pass of the fake backend has not ended: expected an end within 1.5 s; "
            "start again; --step-deadline allows more time");
  EXPECT_EQ(slept.get().error().message, why);
  EXPECT_EQ(rest(engine, Engine::Rest::sleeping).error().message, why);
  EXPECT_EQ(engine.submit(request(engine.next_id(), 1)).error().message, why);
  std::map<uint64_t, Finished> ends;
  std::map<uint64_t, int32_t> tokens;
  for (const EngineEvent& event : engine.take_events()) {
    if (const auto* fresh = std::get_if<NewTokens>(&event))
      tokens[fresh->id] += static_cast<int32_t>(fresh->tokens.size());
    if (const auto* end = std::get_if<Finished>(&event)) ends[end->id] = *end;
  }
  EXPECT_EQ(ends.size(), 6U);
  for (const auto& [id, end] : ends) {
    EXPECT_EQ(end.reason, FinishReason::error);
    EXPECT_EQ(end.error, why);
    EXPECT_EQ(end.prompt_tokens, 3);
    EXPECT_EQ(end.completion_tokens, tokens[id]);
  }
  while (hung.told < 2) std::this_thread::yield();  // of the first events and of the failure
  hung.gate->open();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(engine.take_events().empty());
  hung.engine.reset();
  EXPECT_EQ(hung.told, 2);
  testing::Gate::dismiss(hung.gate);
}

/// A second signal to a server whose card hangs.
TEST(Engine, LeavesAStepThatDoesNotEnd) {
  Hung hung(std::chrono::milliseconds(1500));
  hung.engine.reset();
  testing::Gate::dismiss(hung.gate);
}

TEST(Engine, WaitsForALongStepWithinItsDeadline) {
  Hung hung(std::chrono::seconds(60));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  hung.gate->open();
  Tally tally;
  while (tally.ends.size() < 6) tally.take(*hung.engine, std::chrono::milliseconds(100));
  for (const auto& [id, reason] : tally.ends) EXPECT_EQ(reason, FinishReason::length);
  EXPECT_TRUE(hung.engine->failure().ok());
}

TEST(Engine, CancelsOnAbortEvenWhenNobodyReads) {
  Engine::Options options = small_options();
  options.outbox_max = 1;
  auto engine = start(std::move(options));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->submit(request(engine->next_id(), 200)).ok());
  engine->shutdown(Shutdown::cancel_running);
  Tally tally;
  EXPECT_TRUE(testing::soon([&] {
    tally.take(*engine, std::chrono::milliseconds(100));
    return tally.ends.size() == 6;
  }));
}

TEST(Engine, TellsTheConsumerOncePerBatch) {
  std::atomic<int> calls = 0;
  Engine::Options options = small_options();
  options.on_events = [&] { ++calls; };
  auto engine = start(std::move(options));
  ASSERT_TRUE(engine->submit(request(1, 30)).ok());
  EXPECT_TRUE(testing::soon([&] { return calls > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(calls, 1);  // the outbox was never emptied
}

TEST(Engine, RefusesImpossibleRequestsAtOnce) {
  auto engine = start();
  EXPECT_EQ(engine->submit(request(1, 600)).error().code, ErrorCode::invalid_argument);
}

TEST(Engine, RefusesWhatCannotMeetItsOwnDeadline) {
  Engine::Options options = small_options();
  options.settings.sequences_max = 1;
  double now_ms = 1000.0;
  options.settings.clock_ms = [&] { return now_ms; };  // costs stay those assumed: 4.6 ms a pass
  options.outbox_max = 1;                              // nobody reads: the first never ends
  auto engine = start(std::move(options));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->submit(request(engine->next_id(), 200)).ok());
  EXPECT_TRUE(testing::soon([&] { return engine->retry_after_ms() >= 1000.0; }));
  SequenceRequest hurried = request(engine->next_id(), 200);
  hurried.urgency.deadline_ms = now_ms + 100.0;  // two answers are ahead, 0.6 s each
  const auto refused = engine->submit(std::move(hurried));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_space);
  EXPECT_NE(refused.error().message.find("own time limit"), std::string::npos);
  SequenceRequest patient = request(engine->next_id(), 200);
  patient.urgency.deadline_ms = now_ms + 60000.0;
  EXPECT_TRUE(engine->submit(std::move(patient)).ok());
  engine->shutdown(Shutdown::cancel_running);
}

TEST(Engine, RefusesPromptsBeyondTheQueuedTokens) {
  constexpr int64_t kBound = 400;
  for (const int64_t waiting : {kBound - 1, kBound, kBound + 1}) {
    Engine::Options options = small_options();
    options.settings.waiting_tokens_max = kBound;
    options.settings.sequences_max = 1;
    options.outbox_max = 1;  // read once: the first never ends
    auto engine = start(std::move(options));
    const auto submit = [&](uint64_t id, int64_t prompt) {
      SequenceRequest made = request(id, 200);
      made.prompt.assign(static_cast<size_t>(prompt), 1);
      return engine->submit(std::move(made));
    };
    ASSERT_TRUE(submit(1, 290).ok());
    while (engine->take_events(std::chrono::milliseconds(50)).empty()) {
    }
    ASSERT_TRUE(submit(2, 200).ok());
    const auto last = submit(3, waiting - 200);
    EXPECT_EQ(last.ok(), waiting <= kBound) << waiting;
    if (last.ok()) continue;
    EXPECT_EQ(last.error().code, ErrorCode::no_space);
    EXPECT_NE(last.error().message.find("at most 400 prompt tokens"), std::string::npos);
  }
}

/// One process with a folder of pinned prefixes: it answers a prompt that pins 192 tokens and ends.
struct PinningLife {
  std::vector<int32_t> said;
  int32_t cached = -1;
  std::vector<std::string> reports;

  PinningLife(const std::filesystem::path& folder, int32_t host_pages) {
    Engine::Options options = small_options();
    options.settings.pools.host_pages = host_pages;
    options.settings.pools.host_slots = 4;
    options.settings.pools.state_slots = 6;
    options.report = [this](const std::string& line) { reports.push_back(line); };
    const FakeBackend backend;
    auto store = PrefixStore::open(folder, {.fingerprint = {1, 2, 3, 4},
                                            .page_bytes = backend.page_bytes(),
                                            .state_slot_bytes = backend.state_slot_bytes(),
                                            .bytes_max = 1 << 20});
    options.store = std::make_shared<PrefixStore>(std::move(store).value());
    auto engine = start(std::move(options));
    SequenceRequest made = request(1, 8);
    for (int32_t i = 0; i < 250; ++i) made.prompt.push_back(i % FakeBackend::kVocab);
    made.cache.pinned_tokens = 200;
    EXPECT_TRUE(engine->submit(std::move(made)).ok());
    while (cached < 0)
      for (const EngineEvent& event : engine->take_events(std::chrono::milliseconds(50))) {
        if (const auto* fresh = std::get_if<NewTokens>(&event))
          said.insert(said.end(), fresh->tokens.begin(), fresh->tokens.end());
        if (const auto* end = std::get_if<Finished>(&event)) cached = end->cached_tokens;
      }
  }
};

TEST(Engine, PinnedPrefixesSurviveARestart) {
  const TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  const PinningLife first(folder, 16);
  EXPECT_EQ(first.cached, 0);
  EXPECT_EQ(first.said.size(), 8U);
  const auto life = [&](int32_t host_pages, int32_t cached, const std::string& report) {
    const PinningLife next(folder, host_pages);
    EXPECT_EQ(next.said, first.said);
    EXPECT_EQ(next.cached, cached);
    EXPECT_EQ(next.reports.size(), report.empty() ? 0U : 1U);
    for (const std::string& line : next.reports)
      EXPECT_NE(line.find(report), std::string::npos) << line;
  };
  life(16, 192, "");
  life(2, 0, "no host memory for its 192 tokens; raise --host-cache-memory-bytes");
  const auto file = std::filesystem::directory_iterator(folder)->path();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-9, std::ios::end)
      << "!";
  life(16, 0, "damaged: expected its checksum");  // a damaged one is left out, and saved anew
  life(16, 192, "");
}

/// While the third pass runs, the counts say how everybody stands after the second.
TEST(Engine, CountsSequencesByTheirPhase) {
  std::map<int, std::shared_ptr<testing::Gate>> gates;
  for (const int pass : {1, 3}) gates[pass] = std::make_shared<testing::Gate>();
  auto backend = std::make_unique<FakeBackend>();
  backend->on_pass = [&](int pass) {
    if (gates.contains(pass)) gates[pass]->pass();
  };
  Engine::Options options = small_options();
  options.settings.sequences_max = 2;
  options.settings.pools.host_pages = 7;
  options.settings.pools.host_slots = 3;
  auto engine =
      Engine::start(std::move(backend), FakeBackend::config(), std::move(options)).value();
  ASSERT_TRUE(engine->submit(request(1, 50)).ok());
  gates[1]->wait_for_one();
  SequenceRequest lengthy = request(2, 20);
  lengthy.prompt.assign(400, 1);
  ASSERT_TRUE(engine->submit(std::move(lengthy)).ok());
  for (uint64_t id = 3; id < 6; ++id) ASSERT_TRUE(engine->submit(request(id, 50)).ok());
  gates[1]->open();
  gates[3]->wait_for_one();
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.waiting, 3);
  EXPECT_EQ(stats.prefill, 1);
  EXPECT_EQ(stats.decode, 1);
  EXPECT_EQ(stats.swapped, 0);
  using Pool = std::pair<int64_t, int64_t>;  // used, total
  const auto pool = [](const EngineStats::Pool& p) { return Pool(p.used, p.total); };
  EXPECT_EQ(pool(stats.pages), Pool(8, 32));  // of 53 tokens and 420
  EXPECT_EQ(pool(stats.slots), Pool(2, 4));
  EXPECT_EQ(pool(stats.host_pages), Pool(0, 7));
  EXPECT_EQ(pool(stats.host_slots), Pool(0, 3));
  EXPECT_EQ(stats.engine.passes, 2);
  EXPECT_EQ(stats.prefix.lookups, 2);
  EXPECT_GT(stats.first_token_ms, 0.0);
  gates[3]->open();
}

TEST(Engine, SleepsWhenAskedAndRequestsWakeIt) {
  auto engine = start();
  const auto& fake = static_cast<const FakeBackend&>(engine->backend());
  Tally tally;
  const auto run = [&](uint64_t id) {
    ASSERT_TRUE(engine->submit(request(id, 5)).ok());
    while (!tally.ends.contains(id)) tally.take(*engine, std::chrono::milliseconds(10));
    EXPECT_EQ(tally.ends[id], FinishReason::length);
  };
  run(1);
  EXPECT_TRUE(rest(*engine, Engine::Rest::sleeping).ok());
  EXPECT_TRUE(rest(*engine, Engine::Rest::sleeping).ok());
  EXPECT_EQ(engine->resting(), Engine::Rest::sleeping);
  EXPECT_EQ(fake.sleeps, 1);
  run(1 + FakeBackend::kVocab);  // the same prompt: nothing cached before may be found
  EXPECT_EQ(engine->resting(), Engine::Rest::awake);
  EXPECT_TRUE(rest(*engine, Engine::Rest::sleeping).ok());
  EXPECT_TRUE(rest(*engine, Engine::Rest::awake).ok());
  EXPECT_EQ(engine->resting(), Engine::Rest::awake);
  run(2);
}

TEST(Engine, DoesNotSleepOverLiveRequests) {
  Engine::Options options = small_options();
  options.outbox_max = 1;  // until somebody reads the request cannot end
  auto engine = start(std::move(options));
  ASSERT_TRUE(engine->submit(request(1, 400)).ok());
  auto answer = ask_rest(*engine, Engine::Rest::sleeping);
  Tally tally;
  while (!tally.ends.contains(1)) tally.take(*engine, std::chrono::milliseconds(10));
  EXPECT_EQ(tally.tokens[1], 400U);
  EXPECT_FALSE(answer.get().ok());
}

TEST(Engine, SleepsByItselfWhenIdle) {
  Engine::Options options = small_options();
  options.sleep_idle_ms = 20.0;
  auto engine = start(std::move(options));
  const auto until = [&](Engine::Rest wanted) {
    EXPECT_TRUE(testing::soon([&] { return engine->resting() == wanted; }));
  };
  until(Engine::Rest::sleeping);
  ASSERT_TRUE(engine->submit(request(1, 5)).ok());
  Tally tally;
  while (!tally.ends.contains(1)) tally.take(*engine, std::chrono::milliseconds(10));
  EXPECT_EQ(tally.tokens[1], 5U);
  until(Engine::Rest::sleeping);
}

}  // namespace
}  // namespace nibble
