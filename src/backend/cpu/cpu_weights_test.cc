// Loading as a whole: a model too large for memory is refused before it is read, and made-up
// weights give what the checkpoint gives that they would be written to.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/layout_fixture.h"
#include "backend/cpu/random_weights.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/synthetic/synthetic_numbers.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

constexpr uint64_t kSeed = 5;

class CpuWeightsOf : public cpu::LayoutFixture {
 protected:
  CpuWeightsOf() : LayoutFixture("cpu_weights", TinyCheckpoint::moe().config, kSeed) {
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder_).value());
    config_ = ModelConfig::parse(checkpoint_->config()).value();
    config_.draft_layers = config_.mtp_layers;
  }

  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(CpuWeightsOf, MadeUpOnesAreThoseThatSynthWrites) {
  const Weights stored = Weights::bind(*checkpoint_, config_).value();
  SyntheticWeights places = synthetic_weights(config_, formats_of(GetParam()));
  const SyntheticTensors tensors(places, config_, kSeed);
  const Weights made_up = Weights::made_up(tensors, std::move(places));
  const auto from_file = make_cpu_backend(stored, config_, {.threads = 2}).value();
  const auto from_nothing = make_cpu_backend(made_up, config_, {.threads = 2}).value();
  const std::vector<float> expected = logits(*from_file);
  EXPECT_GT(*std::ranges::max_element(expected), 0.0F);
  EXPECT_TRUE(cpu::same_bits(logits(*from_nothing), expected));
}

TEST_P(CpuWeightsOf, PartsOfMadeUpTensorsAreThoseOfTheFile) {
  const SyntheticTensors tensors(synthetic_weights(config_, formats_of(GetParam())), config_,
                                 kSeed);
  for (const TensorEntry& stored : checkpoint_->entries()) {
    const TensorEntry* made_up = tensors.find(stored.name);
    ASSERT_NE(made_up, nullptr) << stored.name;
    ASSERT_EQ(made_up->bytes, stored.bytes) << stored.name;
    for (const int64_t begin : {int64_t{0}, stored.bytes / 3, stored.bytes - 1}) {
      std::vector<std::byte> expected(static_cast<size_t>(stored.bytes - begin));
      std::vector<std::byte> found(expected.size());
      checkpoint_->read_bytes(stored, begin, expected).value();
      tensors.read_bytes(*made_up, begin, found).value();
      ASSERT_EQ(found, expected) << stored.name << " from " << begin;
    }
  }
}

TEST_P(CpuWeightsOf, TooLittleMemoryIsRefusedWithTheNumbers) {
  const Weights weights = Weights::bind(*checkpoint_, config_).value();
  int64_t reports = 0;
  BackendOptions options{.host_memory_bytes = 1000};
  options.loading = [&](int64_t, int64_t) { ++reports; };
  const auto refused = make_cpu_backend(weights, config_, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_NE(refused.error().message.find("at most the 0.0 GiB of memory that are free"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(reports, 0);
}

TEST_P(CpuWeightsOf, ReportsEveryByteOnce) {
  const Weights weights = Weights::bind(*checkpoint_, config_).value();
  int64_t last = 0;
  int64_t all = -1;
  BackendOptions options{.threads = 2};
  options.loading = [&](int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    last = std::max(last, done);
    all = total;
  };
  make_cpu_backend(weights, config_, options).value();
  EXPECT_EQ(last, all);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CpuWeightsOf, cpu::stored_layouts(), cpu::layout_name);

}  // namespace
}  // namespace nibble
