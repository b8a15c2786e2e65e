// The layer that drafts in fewer bits: as near to its weights as each format is, the same in any
// pieces, and a head with rows of the model's own.
#include "model/weights/rounded_draft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "model/synthetic/synthetic_numbers.h"
#include "model/weights/draft_places.h"
#include "model/weights/fused_linears.h"
#include "testing/dequantized.h"
#include "testing/golden.h"

namespace nibble {
namespace {

/// Shares of the root mean square of a matrix that rounding normal numbers costs: about 0.095 with
/// 16 E2M1 codes to a scale, 0.026 with E4M3 codes.
TEST(RoundedDraft, IsAsNearAsItsFormat) {
  const struct {
    WeightFormat format;
    double least, most;
  } cases[] = {{WeightFormat::nvfp4, 0.08, 0.11}, {WeightFormat::fp8_tensor, 0.02, 0.03}};
  for (const auto& [format, least, most] : cases) {
    const Golden plain = load_pebble_that_drafts({});
    const Golden pebble = load_pebble_that_drafts({.format = format});
    const auto before = fused_linears(*plain.weights.mtp());
    const auto after = fused_linears(*pebble.weights.mtp());
    ASSERT_EQ(before.size(), after.size());
    int changed = 0;
    for (size_t group = 0; group < before.size(); ++group)
      for (size_t i = 0; i < before[group].size(); ++i) {
        const LinearSource& from = *before[group][i];
        const LinearSource& to = *after[group][i];
        const auto expected = dequantized(plain.weights.load(from).value());
        const auto found = dequantized(pebble.weights.load(to).value());
        const bool gate = from.module.ends_with(".gate") || from.module.ends_with("expert_gate");
        ASSERT_EQ(to.scheme.weights, gate ? WeightFormat::plain : format) << from.module;
        if (gate) {
          EXPECT_EQ(found, expected) << from.module;
          continue;
        }
        ++changed;
        const double error = relative_error(found, expected);
        EXPECT_GT(error, least) << from.module;
        EXPECT_LT(error, most) << from.module;
      }
    EXPECT_EQ(changed, 1 + 4 + 3 * (16 + 1));
  }
}

/// Engines that fuse take one global scale for all; that of the quantizer is shared likewise.
TEST(RoundedDraft, FusedLinearsShareTheirScale) {
  const Golden own = load_pebble_that_drafts({});
  const Golden pebble = load_pebble_that_drafts({.format = WeightFormat::nvfp4});
  const Weights& rounded = pebble.weights;
  for (const FusedLinears& group : fused_linears(*rounded.mtp())) {
    if (group.front()->scheme.weights == WeightFormat::plain) continue;
    float amax = 0.0F;
    const float first = rounded.load_factors(*group.front()).value().global_scale.value;
    for (const LinearSource* linear : group) {
      EXPECT_EQ(rounded.load_factors(*linear).value().global_scale.value, first) << linear->module;
      const LinearSource plain{.module = linear->module,
                               .rows = linear->rows,
                               .cols = linear->cols,
                               .scheme = {},
                               .values = linear->module + ".weight"};
      if (pebble.checkpoint->find(plain.values) == nullptr) continue;  // fused experts
      for (const float value : dequantized(own.weights.load(plain).value()))
        amax = std::max(amax, std::fabs(value));
    }
    if (amax == 0.0F) continue;
    EXPECT_NEAR(first * amax / 2688.0F, 1.0F, 0.01F) << group.front()->module;
  }
}

/// Loaders read in the order of places, and a rounded tensor is made of what stands at its
/// source's.
TEST(RoundedDraft, TensorsStandWhereTheirSourcesStand) {
  const Golden pebble = load_pebble_that_drafts({.format = WeightFormat::nvfp4});
  const MtpSources& mtp = *pebble.weights.mtp();
  int last_file = 0;
  for (const LinearSource* linear : {&mtp.joined, &mtp.layer.attention.k}) {
    const TensorEntry* source = pebble.checkpoint->find(linear->module + ".weight");
    ASSERT_NE(source, nullptr) << linear->module;
    for (const std::string& name : {linear->values, linear->scales}) {
      const TensorEntry* entry = pebble.rounded->find(name);
      ASSERT_NE(entry, nullptr) << name;
      EXPECT_EQ(entry->file, source->file) << name;
      EXPECT_EQ(entry->offset, source->offset) << name;
    }
    last_file = std::max(last_file, source->file);
  }
  EXPECT_GT(last_file, 0);
}

TEST(RoundedDraft, AnyPieceIsThatOfTheWhole) {
  for (const WeightFormat format : {WeightFormat::nvfp4, WeightFormat::fp8_tensor}) {
    const Golden pebble =
        load_pebble_that_drafts({.format = format, .tokens = {3, 4, 5, 900, 2047}});
    const Weights& rounded = pebble.weights;
    for (const LinearSource* linear :
         {&rounded.mtp()->joined, &rounded.mtp()->layer.attention.k, &rounded.mtp()->head}) {
      const LinearWeight whole = rounded.load(*linear).value();
      std::vector<std::string> names = {linear->values};
      if (format == WeightFormat::nvfp4) names.push_back(linear->scales);
      for (const std::string& name : names) {
        const TensorEntry* entry = pebble.rounded->find(name);
        ASSERT_NE(entry, nullptr);
        const Tensor& all = name == linear->values ? whole.values : whole.scales;
        const std::byte* bytes = all.view().data;
        for (const int64_t step : {1, 7, 1000}) {
          std::vector<std::byte> piece;
          const int64_t end = std::min<int64_t>(entry->bytes, 20 * step);
          for (int64_t at = 0; at < end; at += step) {
            piece.resize(static_cast<size_t>(std::min(step, end - at)));
            pebble.rounded->read_bytes(*entry, at, piece).value();
            ASSERT_TRUE(std::ranges::equal(piece, std::span(bytes + at, piece.size())))
                << name << " at " << at;
          }
        }
      }
    }
  }
}

/// Rows of a plain head as they are; of codes the same codes under the same scales.
TEST(RoundedDraft, AHeadHasTheRowsOfItsTokens) {
  const std::vector<int32_t> tokens = {0, 1, 2, 5, 77, 78, 1000, 2047};
  const Golden pebble = load_pebble_that_drafts({.tokens = tokens});
  for (const WeightFormat format : {WeightFormat::plain, WeightFormat::nvfp4,
                                    WeightFormat::fp8_tensor, WeightFormat::fp8_channel}) {
    SyntheticWeights places = synthetic_weights(pebble.config, [&](std::string_view module) {
      return module == "lm_head" ? format : WeightFormat::plain;
    });
    ModelConfig config = pebble.config;
    config.draft_tokens.clear();
    places.mtp = synthetic_weights(config, formats_of(WeightLayout::bf16)).mtp;
    const SyntheticTensors tensors(places, config, 1);
    const Weights weights = Weights::made_up(tensors, places);
    config.draft_tokens = tokens;
    ThreadPool pool(2);
    const auto rounded = RoundedDraft::make(weights, config, pool).value();
    const LinearSource head = rounded->weights().mtp()->head;
    EXPECT_EQ(head.scheme.weights, format);
    EXPECT_EQ(head.rows, std::ssize(tokens));
    const auto found = dequantized(rounded->weights().load(head).value());
    const LinearWeight whole = weights.load(weights.head()).value();
    std::vector<float> row(static_cast<size_t>(head.cols));
    for (size_t i = 0; i < tokens.size(); ++i) {
      dequantize_rows(whole, tokens[i], tokens[i] + 1, row.data());
      const auto at = static_cast<std::ptrdiff_t>(i) * head.cols;
      EXPECT_TRUE(std::equal(row.begin(), row.end(), found.begin() + at)) << tokens[i];
    }
  }
}

/// A head in full is for drafts alone where the model's own has more bits.
TEST(RoundedDraft, APlainHeadHasACopyInFewerBits) {
  const Golden plain = load_pebble_that_drafts({});
  EXPECT_FALSE(plain.weights.mtp()->head.present());
  const Golden pebble = load_pebble_that_drafts({.format = WeightFormat::nvfp4});
  const Weights& rounded = pebble.weights;
  const LinearSource head = rounded.mtp()->head;
  ASSERT_TRUE(head.present());
  EXPECT_EQ(head.rows, pebble.config.vocab_rows);
  EXPECT_EQ(rounded.head().scheme.weights, WeightFormat::plain);
  EXPECT_LT(relative_error(dequantized(rounded.load(head).value()),
                           dequantized(plain.weights.load(plain.weights.head()).value())),
            0.11);
}

TEST(RoundedDraft, RefusesWhatItCannotRound) {
  Golden golden = load_golden("model-mtp/moe-fused");  // experts of 20 columns
  golden.config.draft_format = WeightFormat::nvfp4;
  ThreadPool pool(1);
  const auto odd = RoundedDraft::make(golden.weights, golden.config, pool);
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("20 columns"), std::string::npos) << odd.error().message;
  EXPECT_NE(odd.error().message.find("--draft-quantization"), std::string::npos);
  golden.config.draft_format = WeightFormat::fp8_tensor;
  EXPECT_TRUE(RoundedDraft::make(golden.weights, golden.config, pool).ok());

  LinearSource blocks = golden.weights.head();
  blocks.scheme.weights = WeightFormat::fp8_block;
  golden.config.draft_tokens = {1, 2};
  const auto refused =
      check_draft_places(draft_places(*golden.weights.mtp(), blocks, golden.config), blocks);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--speculative-token-map"), std::string::npos);
  golden.config.draft_tokens.clear();
  EXPECT_TRUE(
      check_draft_places(draft_places(*golden.weights.mtp(), blocks, golden.config), blocks).ok());
}

/// A source of weights that counts what is read of each.
class Counted final : public TensorSource {
 public:
  explicit Counted(const TensorSource& tensors) : tensors_(tensors) {}
  const TensorEntry* find(std::string_view name) const override { return tensors_.find(name); }
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override {
    const std::lock_guard lock(mutex_);
    bytes_[entry.name] += std::ssize(out);
    return tensors_.read_bytes(entry, begin, out);
  }
  int64_t bytes(const std::string& name) const { return bytes_[name]; }

 private:
  const TensorSource& tensors_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int64_t> bytes_;
};

/// Once for the scales and once for the codes; rows of a plain head are not rounded, so that
/// nothing of them is read before they are loaded.
TEST(RoundedDraft, ReadsNothingMoreThanTwice) {
  const Golden plain = load_pebble_that_drafts({});
  for (const WeightFormat format :
       {WeightFormat::nvfp4, WeightFormat::fp8_tensor, WeightFormat::plain}) {
    const Counted counted(*plain.checkpoint);
    ModelConfig config = plain.config;
    config.draft_format = format;
    config.draft_tokens = {1, 2, 1000};
    ThreadPool pool(2);
    const auto rounded = RoundedDraft::make(plain.weights.over(counted), config, pool).value();
    const Weights weights = rounded->weights();
    const LinearSource& fc = weights.mtp()->joined;
    const int64_t fc_bytes = plain.checkpoint->find("mtp.fc.weight")->bytes;
    const int64_t head_bytes = 3 * 2 * weights.mtp()->head.cols;
    const int64_t before = format == WeightFormat::plain ? 0 : 1;
    EXPECT_EQ(counted.bytes("mtp.fc.weight"), before * fc_bytes);
    EXPECT_EQ(counted.bytes(plain.weights.head().values), before * head_bytes);
    ASSERT_TRUE(weights.load(fc).ok() && weights.load(weights.mtp()->head).ok());
    EXPECT_EQ(counted.bytes("mtp.fc.weight"), (before + 1) * fc_bytes);
    EXPECT_EQ(counted.bytes(plain.weights.head().values), (before + 1) * head_bytes);
  }
}

/// A source of weights with one number spoilt.
class Spoilt final : public TensorSource {
 public:
  explicit Spoilt(const TensorSource& tensors) : tensors_(tensors) {}
  const TensorEntry* find(std::string_view name) const override { return tensors_.find(name); }
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override {
    TRY(tensors_.read_bytes(entry, begin, out));
    if (entry.name == "mtp.fc.weight" && begin == 0)
      out[0] = std::byte{0xC0}, out[1] = std::byte{0x7F};
    return {};
  }

 private:
  const TensorSource& tensors_;
};

TEST(RoundedDraft, RefusesWhatIsNoNumber) {
  Golden golden = load_golden("model-mtp/moe-separate");
  const Spoilt spoilt(*golden.checkpoint);
  golden.config.draft_format = WeightFormat::fp8_tensor;
  ThreadPool pool(2);
  const auto refused = RoundedDraft::make(golden.weights.over(spoilt), golden.config, pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
  EXPECT_NE(refused.error().message.find("mtp.fc"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace nibble
