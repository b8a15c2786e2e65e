// Tensors that no linear is made from are compared byte for byte, in pieces; what differs, is
// missing or was added is named.
#include <gtest/gtest.h>

#include <cmath>

#include "quantize/verify/compare.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

constexpr const char* kLarge = "model.visual.large.weight";
constexpr int64_t kLargeBytes = (int64_t{4} << 20) + 100;  // more than one piece

TinyCheckpoint with_large() {
  TinyCheckpoint tiny = TinyCheckpoint::moe();
  tiny.tensors[kLarge] = {DType::u8, Shape{kLargeBytes},
                          std::string(static_cast<size_t>(kLargeBytes), 7)};
  return tiny;
}

class CompareTensors : public testing::Test {
 protected:
  CompareTensors() {
    with_large().write(root_ / "source");
    source_.emplace(Checkpoint::open(root_ / "source").value());
  }
  Result<Comparison> compared(const TinyCheckpoint& tiny, const CompareOptions& options = {}) {
    std::filesystem::remove_all(root_ / "now");
    tiny.write(root_ / "now");
    const Checkpoint now = TRY(Checkpoint::open(root_ / "now"));
    return compare_checkpoints(now, *source_, options);
  }
  /// Names after "changed", "missing" and "added", and the number of those that are alike.
  std::string said(const TinyCheckpoint& tiny) {
    const Comparison found = compared(tiny).value();
    std::string out;
    for (const auto& [word, names] :
         {std::pair("changed", &found.changed), std::pair("missing", &found.missing),
          std::pair("added", &found.added)})
      for (const std::string& name : *names) out += concat(word, " ", name, ", ");
    return concat(out, found.identical, " alike");
  }

  TemporaryFolder root_;
  std::optional<Checkpoint> source_;
};

TEST_F(CompareTensors, EachDifferenceIsNamed) {
  TinyCheckpoint tiny = with_large();
  const auto count = std::ssize(tiny.tensors);
  EXPECT_EQ(said(tiny), concat(count, " alike"));
  tiny.at(kLarge).bytes.back() = 8;
  EXPECT_EQ(said(tiny), concat("changed ", kLarge, ", ", count - 1, " alike"));
  tiny.at(kLarge).bytes.back() = 7;
  tiny.at(kLarge).bytes.front() = 8;
  EXPECT_EQ(said(tiny), concat("changed ", kLarge, ", ", count - 1, " alike"));
  tiny.at(kLarge).bytes.front() = 7;
  tiny.at(kLarge).dtype = DType::i8;
  EXPECT_EQ(said(tiny), concat("changed ", kLarge, ", ", count - 1, " alike"));
  tiny.at(kLarge).dtype = DType::u8;
  tiny.at(kLarge).shape = Shape{2, kLargeBytes / 2};
  EXPECT_EQ(said(tiny), concat("changed ", kLarge, ", ", count - 1, " alike"));
  tiny.rename(kLarge, "model.visual.other.weight");
  EXPECT_EQ(said(tiny),
            concat("missing ", kLarge, ", added model.visual.other.weight, ", count - 1, " alike"));
}

TEST_F(CompareTensors, TellsOfAllBytesOfTheSourceAndStopsWhenAsked) {
  const TinyCheckpoint tiny = with_large();
  int64_t bytes = 0, last = 0, calls = 0;
  for (const auto& [name, tensor] : tiny.tensors) bytes += std::ssize(tensor.bytes);
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, bytes);
    EXPECT_GT(done, last);
    last = done;
    ++calls;
  };
  ASSERT_TRUE(compared(tiny, {.progress = progress}).ok());
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(calls, std::ssize(tiny.tensors) + 1) << "the large tensor is read in two pieces";
  const auto stopped = compared(tiny, {.cancelled = [] { return true; }});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(compared(tiny, {.cancelled = [] { return false; }}).ok());
}

TEST_F(CompareTensors, LinearsOfOtherShapesAndQuantizedSourcesAreRefused) {
  TinyCheckpoint wide = with_large();
  wide.config.find("text_config")->set("moe_intermediate_size", 32);
  for (const char* layer : {"0", "1"})
    for (const char* expert : {"0", "1"}) {
      const std::string at = concat(TinyCheckpoint::kLayers, layer, ".mlp.experts.", expert);
      wide.add(at + ".gate_proj.weight", {32, 32});
      wide.add(at + ".up_proj.weight", {32, 32});
      wide.add(at + ".down_proj.weight", {32, 32});
    }
  const auto refused = compared(wide);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
  EXPECT_NE(
      refused.error().message.find("mlp.experts.0.gate_proj: expected [16, 32], found [32, 32]"),
      std::string::npos)
      << refused.error().message;
  TinyCheckpoint::nvfp4().write(root_ / "quantized");
  const Checkpoint quantized = Checkpoint::open(root_ / "quantized").value();
  const auto twice = compare_checkpoints(quantized, quantized);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, ErrorCode::unsupported);
}

TEST(CompareSums, TheErrorOfAllIsThatOfTheSums) {
  Comparison comparison;
  EXPECT_EQ(comparison.worst(), nullptr);
  EXPECT_EQ(comparison.relative_error(), 0.0);
  const auto add = [&](std::string module, double weights, double errors) {
    comparison.linears.push_back({.module = std::move(module),
                                  .relative_error = std::sqrt(errors / weights),
                                  .weight_squares = weights,
                                  .error_squares = errors});
  };
  add("a", 4, 1);
  add("b", 2, 1);
  add("c", 10, 2);
  EXPECT_EQ(comparison.worst()->module, "b");
  EXPECT_EQ(comparison.relative_error(), std::sqrt(4.0 / 16));
}

}  // namespace
}  // namespace nibble
