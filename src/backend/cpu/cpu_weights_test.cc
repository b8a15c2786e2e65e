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

/// Numbers that a reader can check: 8 GiB of a made-up embedding and as many of a head, of which no
/// byte is read; all else is small.
TEST(CpuWeightsTooLarge, AreSaidInGiB) {
  Json json = TinyCheckpoint::moe().config;
  Json text = *json.find("text_config");
  text.set("vocab_size", Json(1 << 19));
  text.set("hidden_size", Json(1 << 13));
  json.set("text_config", text);
  const ModelConfig config = ModelConfig::parse(json).value();
  SyntheticWeights places = synthetic_weights(config, formats_of(WeightLayout::bf16));
  const SyntheticTensors tensors(places, config, kSeed);
  const Weights weights = Weights::made_up(tensors, std::move(places));
  constexpr int64_t kGiB = int64_t{1} << 30;
  const auto refused = make_cpu_backend(weights, config, {.host_memory_bytes = 10 * kGiB});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_EQ(refused.error().message,
            "weights of 16.0 GiB: expected at most the 10.0 GiB of memory that are free, found "
            "6.0 GiB too many; free memory, or quantize the model further (nibble plan)");
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
