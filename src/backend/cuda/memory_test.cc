// The card's memory: what is taken is what was said, nothing is taken after reserve(), a full card
// is an error at whatever step it shows, and a sleeping model gives its memory back and wakes the
// same.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/workspace.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"
#include "testing/source_dir.h"
#include "testing/test_session.h"

namespace nibble {
namespace {

class CudaMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    config_ = config_of("qwen3.5-4b");
  }
  static ModelConfig config_of(const std::string& name) {
    const std::string path = concat(NIBBLE_SOURCE_DIR "/tests/golden/configs/", name, ".json");
    const std::string text = read_text_file(path, uint64_t{1} << 20).value();
    return ModelConfig::parse(parse_json(text, path).value()).value();
  }
  /// Bytes that the driver takes beside what reserve() allocates, and what is planned for them.
  struct Recorded {
    double taken = 0.0;
    double planned = 0.0;
    double workspace = 0.0;
  };
  static Recorded record(const ModelConfig& config, const PoolSizes& sizes) {
    const auto backend =
        make_random_cuda_backend(config, formats_of(WeightLayout::mixed), {}).value();
    const auto workspace = static_cast<double>(backend->workspace_bytes(sizes));
    const DeviceMemory before = backend->device_memory().value();
    backend->reserve(sizes).value();
    const DeviceMemory ready = backend->device_memory().value();
    const int64_t pools =
        sizes.pages * backend->page_bytes() + sizes.state_slots * backend->state_slot_bytes();
    const int64_t caches_and_work = pools + backend->workspace_bytes(sizes);
    const int64_t beside = before.free - ready.free - caches_and_work;
    const Recorded recorded = {.taken = static_cast<double>(beside),
                               .planned = static_cast<double>(backend->recorded_bytes(sizes)),
                               .workspace = workspace};
    std::fprintf(stderr,
                 "driver %.1f MB (%.1f by the table), workspace %.1f, recorded passes %.1f, "
                 "planned for them %.1f\n",
                 1e-6 * static_cast<double>(ready.driver),
                 1e-6 * static_cast<double>(ready.context), 1e-6 * recorded.workspace,
                 1e-6 * recorded.taken, 1e-6 * recorded.planned);
    return recorded;
  }
  std::unique_ptr<Backend> make() {
    return make_random_cuda_backend(config_, formats_of(WeightLayout::mixed), {}).value();
  }
  /// Bits of the logits of a prompt and some generated rows.
  std::vector<uint32_t> run(TestSession& session, int sequence) {
    std::mt19937 engine(5);
    std::vector<int32_t> ids(100);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 100000);
    std::vector<uint32_t> bits;
    const auto feed = [&](size_t begin, size_t count, Arithmetic arithmetic) {
      const std::vector<float> logits =
          session.pass({{.sequence = sequence,
                         .tokens = std::span(ids).subspan(begin, count),
                         .arithmetic = arithmetic}});
      for (const float x : std::span(logits).last(1000)) bits.push_back(std::bit_cast<uint32_t>(x));
    };
    feed(0, 97, Arithmetic::prompt);
    for (size_t i = 97; i < 100; ++i) feed(i, 1, Arithmetic::generation);
    return bits;
  }
  ModelConfig config_;
};

TEST_F(CudaMemoryTest, TheLedgerIsTheCard) {
  const auto backend = make();
  const DeviceMemory loaded = backend->device_memory().value();
  EXPECT_GE(loaded.allocated, loaded.weights);
  PoolSizes sizes{.pages = 4096, .state_slots = 64, .rows_max = 512};
  const int64_t workspace = backend->workspace_bytes(sizes);
  backend->reserve(sizes).value();
  const DeviceMemory ready = backend->device_memory().value();
  const int64_t planned = ready.driver + backend->recorded_bytes(sizes) + loaded.weights +
                          workspace + sizes.pages * backend->page_bytes() +
                          sizes.state_slots * backend->state_slot_bytes();
  const int64_t taken = ready.card - ready.free;
  std::fprintf(stderr,
               "driver %.1f MB, weights %.1f, workspace %.1f, recorded at most %.1f; planned %.1f, "
               "taken %.1f\n",
               1e-6 * static_cast<double>(ready.driver), 1e-6 * static_cast<double>(loaded.weights),
               1e-6 * static_cast<double>(workspace),
               1e-6 * static_cast<double>(backend->recorded_bytes(sizes)),
               1e-6 * static_cast<double>(planned), 1e-6 * static_cast<double>(taken));
  EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(taken), 1.0, 0.01);
}

/// Part by part and to the byte, awake, asleep and awake again; and the ledger has nothing else.
TEST_F(CudaMemoryTest, EveryPartIsWhatItsFormulaSays) {
  const PoolSizes all_sizes[] = {
      {.pages = 1, .state_slots = 1, .rows_max = 1},
      {.pages = 40, .state_slots = 9, .rows_max = 72, .sequences_max = 8, .logit_rows = 8},
      {.pages = 4096, .state_slots = 64, .rows_max = 512, .host_pages = 8, .sequences_max = 32},
      {.pages = 512, .state_slots = 16, .rows_max = 8192, .sequences_max = 16}};
  for (const BackendOptions& options :
       {BackendOptions{}, BackendOptions{.kv_cache = KvCache::fp8, .state = StateCache::bf16},
        BackendOptions{.activations = Activations::f32}})
    for (const PoolSizes& sizes : all_sizes) {
      if (options.activations == Activations::f32 && sizes.rows_max > 512) continue;
      const auto backend =
          make_random_cuda_backend(config_, formats_of(WeightLayout::mixed), options).value();
      const ReservedBytes formulas = {.weights = backend->device_memory()->weights,
                                      .tables = cuda::table_bytes(config_),
                                      .pages = sizes.pages * backend->page_bytes(),
                                      .states = sizes.state_slots * backend->state_slot_bytes(),
                                      .workspace = backend->workspace_bytes(sizes)};
      backend->reserve(sizes).value();
      const ReservedBytes held = backend->reserved_bytes().value();
      check_reserved(formulas, held, "at start").value();
      EXPECT_EQ(held.mapped, backend->device_memory()->allocated);
      // The bytes that mapping rounds up are within the estimate of the driver's part.
      EXPECT_LE(held.mapped - held.total(), backend->recorded_bytes(sizes));
      backend->sleep().value();
      EXPECT_EQ(backend->reserved_bytes()->weights, 0);
      EXPECT_EQ(backend->reserved_bytes()->mapped, backend->device_memory()->allocated);
      backend->wake().value();
      check_reserved(formulas, backend->reserved_bytes().value(), "after waking").value();
      EXPECT_EQ(backend->reserved_bytes()->mapped, held.mapped);
    }
}

/// A server with passes of 2,048 rows takes little beside weights, caches and the driver's context.
TEST_F(CudaMemoryTest, LittleBesideWeightsAndCaches) {
  constexpr double kBar = 400e6;
  const Recorded recorded =
      record(config_of("qwen3.6-35b-a3b"), {.pages = 4096, .state_slots = 48, .rows_max = 2048});
  EXPECT_LE(recorded.taken, recorded.planned);
  EXPECT_LE(recorded.workspace + recorded.planned, kBar);
}

/// The plan for them grows with a model's launches: the fewest and the most layers, dense ones too.
TEST_F(CudaMemoryTest, RecordedPassesTakeWhatIsPlanned) {
  for (const char* name : {"qwen3.5-4b", "qwen3-30b-a3b", "qwen3.6-27b"}) {
    const Recorded recorded =
        record(config_of(name), {.pages = 512, .state_slots = 16, .rows_max = 512});
    EXPECT_LE(recorded.taken, recorded.planned) << name;
  }
}

TEST_F(CudaMemoryTest, NothingIsTakenAfterReserve) {
  const auto backend = make();
  TestSession session(*backend, config_, {.sequences = 3, .tokens_max = 512, .rows_max = 256});
  const DeviceMemory before = backend->device_memory().value();
  std::vector<int32_t> ids(100, 7);
  const auto expect_unchanged = [&](int sequence, size_t tokens) {
    EXPECT_EQ(backend->device_memory()->allocations, before.allocations);
    EXPECT_EQ(before.free - backend->device_memory()->free, 0)
        << "sequence " << sequence << ", pass of " << tokens << " tokens";
  };
  for (int sequence = 0; sequence < 3; ++sequence) {
    session.pass({{.sequence = sequence, .tokens = std::span(ids).first(97)}});
    expect_unchanged(sequence, 97);
    for (size_t i = 97; i < 100; ++i) {
      session.pass({{.sequence = sequence,
                     .tokens = std::span(ids).subspan(i, 1),
                     .arithmetic = Arithmetic::generation}});
      expect_unchanged(sequence, 1);
    }
  }
}

TEST_F(CudaMemoryTest, SleepGivesTheMemoryBackAndWakeIsTheSame) {
  const auto backend = make();
  TestSession session(*backend, config_, {.sequences = 4, .tokens_max = 8192, .rows_max = 256});
  const std::vector<uint32_t> expected = run(session, 0);
  const DeviceMemory awake = backend->device_memory().value();
  for (int sequence = 1; sequence < 3; ++sequence) {
    backend->sleep().value();
    EXPECT_GE(backend->device_memory().value().free, awake.free + awake.weights);
    backend->wake().value();
    // The driver keeps a page or two of its own.
    EXPECT_NEAR(static_cast<double>(backend->device_memory().value().free),
                static_cast<double>(awake.free), 16.0 * (1 << 20));
    EXPECT_EQ(run(session, sequence), expected);
  }
}

/// Pebble, so that all allocations are small and many.
TEST_F(CudaMemoryTest, AFullCardIsAnErrorAtEveryStep) {
  const Checkpoint checkpoint = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  const Weights weights = Weights::bind(checkpoint, config).value();
  const PoolSizes sizes{.pages = 16, .state_slots = 4, .rows_max = 128};
  DeviceMemory all;
  {
    const auto backend = make_cuda_backend(weights, config, {}).value();
    backend->reserve(sizes).value();
    all = backend->device_memory().value();
  }
  const auto attempt = [&](int64_t bytes) -> Result<void> {
    const auto backend =
        TRY(make_cuda_backend(weights, config, {.card = {.memory_bytes = all.driver + bytes}}));
    return backend->reserve(sizes);
  };
  constexpr int kSteps = 60;
  for (int step = 1; step < kSteps; ++step) {
    const Result<void> outcome = attempt(all.allocated * step / kSteps);
    ASSERT_FALSE(outcome.ok()) << step;
    EXPECT_EQ(outcome.error().code, ErrorCode::no_memory);
    EXPECT_EQ(outcome.error().message.find('\n'), std::string::npos);
  }
  const auto backend = make_cuda_backend(weights, config, {}).value();
  backend->reserve(sizes).value();
  EXPECT_EQ(backend->device_memory().value().allocated, all.allocated)
      << "a failure kept something";
}

}  // namespace
}  // namespace nibble
