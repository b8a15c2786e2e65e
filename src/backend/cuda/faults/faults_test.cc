// The promises for a card that does not do its part: an allocation of the start that fails, a
// kernel that stops the card or does not end, NaN out of a block. Pebble through the engine; needs
// a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "backend/cuda/bench_access.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/faults/fatal_kernels.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/device_memory.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

using cuda::Fatal;

constexpr PoolSizes kPools{
    .pages = 64, .state_slots = 12, .rows_max = 512, .host_pages = 4, .host_slots = 4};

struct Pebble {
  Checkpoint checkpoint = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  Weights weights = Weights::bind(checkpoint, config).value();

  EngineSettings settings() const {
    return {.pools = kPools, .sequences_max = 4, .context_max = 512};
  }
};

class DeviceFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own for each
  }
};

/// Each allocation of a start in turn, of the card or of page-locked host memory. The device
/// context CHECKs that what was allocated before goes back.
TEST_F(DeviceFaults, AnAllocationThatFailsIsAnErrorWhicheverItIs) {
  const Pebble pebble;
  const auto start = [&](int64_t fails) -> Result<void> {
    cuda::fail_allocation(-1);
    auto backend = TRY([&] {
      cuda::fail_allocation(fails);
      return make_cuda_backend(pebble.weights, pebble.config, {});
    }());
    return backend->reserve(kPools);
  };
  int64_t failures = 0;
  for (Result<void> outcome = start(0); !outcome.ok(); outcome = start(++failures)) {
    EXPECT_EQ(outcome.error().code, ErrorCode::no_memory) << failures;
    EXPECT_EQ(outcome.error().message.find('\n'), std::string::npos) << outcome.error().message;
    ASSERT_LT(failures, 10000);
  }
  cuda::fail_allocation(-1);
  std::fprintf(stderr, "%lld allocations\n", static_cast<long long>(failures));
  EXPECT_GT(failures, 30);
}

/// A stream that waits for nobody writes to the end of memory whose zeroing takes longer.
TEST_F(DeviceFaults, MemoryIsZeroedBeforeItIsHandedOut) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  constexpr size_t kTail = 1 << 20;
  const auto device = cuda::DeviceContext::open({}).value();
  std::vector<uint8_t> found(kTail);
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto memory = cuda::DeviceBuffer::allocate(*device, kBytes, "a test").value();
    for (const bool woken : {false, true}) {
      if (woken) {
        memory.sleep();
        memory.wake("a test").value();
      }
      uint8_t* tail = memory.as<uint8_t>() + kBytes - kTail;
      ASSERT_EQ(cudaMemsetAsync(tail, 1, kTail, device->stream()), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(found.data(), tail, kTail, cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_TRUE(std::ranges::all_of(found, [](uint8_t x) { return x == 1; }));
    }
  }
}

struct Ending {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::cancelled;
  std::string error;
};
using Endings = std::map<uint64_t, Ending>;

void take(const std::vector<EngineEvent>& events, Endings& endings) {
  for (const EngineEvent& event : events) {
    if (const auto* fresh = std::get_if<NewTokens>(&event)) {
      auto& tokens = endings[fresh->id].tokens;
      tokens.insert(tokens.end(), fresh->tokens.begin(), fresh->tokens.end());
    } else if (const auto* end = std::get_if<Finished>(&event)) {
      endings[end->id].reason = end->reason;
      endings[end->id].error = end->error;
    }
  }
}

constexpr int32_t kMark = 7;  // begins the prompt of the sequence that meets the fault

/// Sequences 1 to 3; `round` keeps their ids apart.
std::vector<SequenceRequest> requests(uint64_t round, int32_t max_tokens) {
  std::mt19937 random(3);
  std::vector<SequenceRequest> made;
  for (const size_t size : {70U, 90U, 130U}) {
    SequenceRequest request;
    request.id = 10 * round + made.size() + 1;
    request.prompt = {made.size() == 1 ? kMark : kMark + 1};
    while (request.prompt.size() < size)
      request.prompt.push_back(static_cast<int32_t>(kMark + 1 + random() % 1900));
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0.0;
    made.push_back(std::move(request));
  }
  return made;
}

/// Puts NaN into the last row of the marked sequence, after one block, in rows of one arithmetic.
struct NanInjection {
  Backend& backend;
  Arithmetic arithmetic;
  int block = 0;
  int32_t first_page = -1;  // of the marked sequence
  int injected = 0;

  void operator()(const Batch& batch, int at) {
    for (const BatchSequence& s : batch.sequences) {
      const int32_t page = batch.pages[static_cast<size_t>(s.page_begin)];
      if (batch.tokens[static_cast<size_t>(s.row_begin)] == kMark && s.kv_begin == 0)
        first_page = page;
      const bool last = s.arithmetic == Arithmetic::generation || s.kv_begin + s.row_count == 90;
      if (at != block || page != first_page || s.arithmetic != arithmetic || !last) continue;
      cuda::spoil_row(backend, s.row_begin + s.row_count - 1);
      ++injected;
    }
  }
};

Endings run(EngineCore& core, uint64_t round) {
  for (SequenceRequest& request : requests(round, 6)) core.submit(std::move(request));
  Endings endings;
  for (int step = 0; step < 200 && !core.idle(); ++step) take(core.step(), endings);
  Endings renamed;
  for (auto& [id, ending] : endings) renamed[id % 10] = std::move(ending);
  return renamed;
}

TEST_F(DeviceFaults, NanOutOfABlockEndsItsSequenceAlone) {
  const Pebble pebble;
  const auto backend = make_cuda_backend(pebble.weights, pebble.config, {}).value();
  backend->reserve(kPools).value();
  EngineCore core(
      *backend, pebble.config,
      Sampler(pebble.config.vocab_rows, Sampler::all_sampleable(pebble.config.vocab_rows)),
      pebble.settings());
  uint64_t round = 0;
  const Endings sound = run(core, ++round);
  ASSERT_EQ(sound.size(), 3U);
  int64_t failed = 0;
  for (const Arithmetic arithmetic : {Arithmetic::prompt, Arithmetic::generation})
    for (int block = 0; block <= 2 * pebble.config.layer_count(); ++block) {
      SCOPED_TRACE(
          concat(arithmetic == Arithmetic::prompt ? "prompt" : "generated", ", block ", block));
      core.memory().cache().clear();  // else the prompt of the round before is found there
      NanInjection injection{.backend = *backend, .arithmetic = arithmetic, .block = block};
      cuda::watch_blocks(*backend, std::ref(injection));
      const Endings endings = run(core, ++round);
      EXPECT_EQ(injection.injected, 1);
      EXPECT_EQ(endings.at(2).reason, FinishReason::error);
      EXPECT_TRUE(endings.at(2).error.starts_with("the model computed a ")) << endings.at(2).error;
      EXPECT_EQ(core.counters().not_finite, ++failed);
      for (const uint64_t other : {1, 3}) {
        EXPECT_EQ(endings.at(other).reason, FinishReason::length);
        EXPECT_EQ(endings.at(other).tokens, sound.at(other).tokens);
      }
      cuda::watch_blocks(*backend, {});
      const Endings after = run(core, ++round);  // with whatever the caches kept
      for (const auto& [id, ending] : sound) EXPECT_EQ(after.at(id).tokens, ending.tokens) << id;
    }
}

constexpr std::chrono::seconds kStepDeadline{2};

/// In a process whose card is stopped while three sequences run: all of them end with the error,
/// the engine ends, nothing is admitted. Exits 0 if so.
[[noreturn]] void lose_the_card(Fatal kind) {
  const Pebble pebble;
  auto engine =
      Engine::start(make_cuda_backend(pebble.weights, pebble.config, {}).value(), pebble.config,
                    {.settings = pebble.settings(), .step_deadline = kStepDeadline})
          .value();
  for (SequenceRequest& request : requests(0, 380)) engine->submit(std::move(request)).value();
  Endings endings;
  const auto wait = std::chrono::milliseconds(100);
  while (endings.size() < 3) take(engine->take_events(wait), endings);
  CUDA_CHECK(cuda::run_fatal_kernel(kind));
  for (int i = 0; i < 100 && !engine->stopped(); ++i) take(engine->take_events(wait), endings);
  take(engine->take_events(), endings);
  const Result<void> failure = engine->failure();
  const std::string message = failure.ok() ? "none" : failure.error().message;
  std::fprintf(stderr, "%s\n", message.c_str());
  const bool ended = std::ranges::all_of(endings, [&](const auto& entry) {
    return entry.second.reason == FinishReason::error && entry.second.error == message;
  });
  const bool refused = !engine->submit(std::move(requests(1, 1).front())).ok();
  engine.reset();
  const bool kept = engine == nullptr && ended && refused && !failure.ok();
  std::_Exit(kept ? 0 : 1);
}

TEST_F(DeviceFaults, AStoppedCardEndsEverySequenceAndTheEngine) {
  EXPECT_EXIT(lose_the_card(Fatal::trap), testing::ExitedWithCode(0),
              "card 0, .*failed and is lost to this process.*found");
  EXPECT_EXIT(lose_the_card(Fatal::illegal_address), testing::ExitedWithCode(0), "illegal");
}

/// The engine goes, and the process, while its kernels wait for one that runs for a minute.
TEST_F(DeviceFaults, AKernelThatDoesNotEndEndsEverySequenceAndTheEngine) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(lose_the_card(Fatal::spin), testing::ExitedWithCode(0),
              "a pass of the cuda backend has not ended: expected an end within 2 s");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

/// The process ends at the first call if nobody asked to outlive the device, as in a calibration.
TEST_F(DeviceFaults, WithoutAnEngineTheProcessEnds) {
  EXPECT_DEATH(
      {
        const Pebble pebble;
        const auto backend = make_cuda_backend(pebble.weights, pebble.config, {}).value();
        backend->reserve(kPools).value();
        CUDA_CHECK(cuda::run_fatal_kernel(Fatal::trap));
        for (int i = 0; i < 1000; ++i) backend->finite_state(0);
      },
      "CHECK");
}

}  // namespace
}  // namespace nibble
