// Rows for drafts of a plain head that is stored in more bits than BF16.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "model/weights/rounded_draft.h"
#include "testing/dequantized.h"
#include "testing/golden.h"

namespace nibble {
namespace {

/// A source of weights whose plain head is stored in F32, with more digits than BF16 has.
class WideHead final : public TensorSource {
 public:
  WideHead(const TensorSource& tensors, const std::string& name)
      : tensors_(tensors), narrow_(*tensors.find(name)), wide_(narrow_) {
    wide_.dtype = DType::f32;
    wide_.bytes = 2 * narrow_.bytes;
  }
  static float widened(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16 | 0x9000U);
  }
  const TensorEntry* find(std::string_view name) const override {
    return name == wide_.name ? &wide_ : tensors_.find(name);
  }
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override {
    if (entry.name != wide_.name) return tensors_.read_bytes(entry, begin, out);
    CHECK(begin % 4 == 0 && out.size() % 4 == 0, "whole numbers");
    std::vector<uint16_t> bits(out.size() / 4);
    TRY(tensors_.read_bytes(narrow_, begin / 2, std::as_writable_bytes(std::span(bits))));
    for (size_t i = 0; i < bits.size(); ++i) {
      const float value = widened(bits[i]);
      std::memcpy(&out[4 * i], &value, sizeof value);
    }
    return {};
  }

 private:
  const TensorSource& tensors_;
  TensorEntry narrow_, wide_;
};

/// Rows of a head that is stored wider become the nearest BF16 numbers.
TEST(RoundedWideHead, HasTheNearestNumbers) {
  const Golden pebble = load_pebble_that_drafts({});
  const std::string name = pebble.weights.head().values;
  ASSERT_EQ(pebble.checkpoint->find(name)->dtype, DType::bf16);
  const WideHead wide(*pebble.checkpoint, name);
  ModelConfig config = pebble.config;
  config.draft_tokens = {0, 3, 4, 2047};
  ThreadPool pool(2);
  const auto rounded = RoundedDraft::make(pebble.weights.over(wide), config, pool).value();
  const LinearSource head = rounded->weights().mtp()->head;
  EXPECT_EQ(rounded->find(head.values)->dtype, DType::bf16);
  const auto found = dequantized(rounded->weights().load(head).value());
  const LinearWeight whole = pebble.weights.load(pebble.weights.head()).value();
  std::vector<float> row(static_cast<size_t>(head.cols));
  for (size_t i = 0; i < config.draft_tokens.size(); ++i) {
    const int64_t token = config.draft_tokens[i];
    dequantize_rows(whole, token, token + 1, row.data());
    for (size_t k = 0; k < row.size(); ++k) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(row[k]) >> 16);
      // The digits beyond BF16 are more than half of a step.
      const float next = std::bit_cast<float>((uint32_t{bits} + 1U) << 16);
      ASSERT_EQ(found[i * row.size() + k], next) << token << ", " << k;
    }
  }
}

}  // namespace
}  // namespace nibble
