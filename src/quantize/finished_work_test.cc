// The facts of finished work that a run reads of its journal when it goes on, and the embeddings
// that its calibration begins with.
#include <gtest/gtest.h>

#include "quantize/calibrate/embedded_samples.h"
#include "quantize/finished_unit.h"
#include "quantize/testing/calibration_runs.h"

namespace nibble {
namespace {

TEST(FinishedUnit, IsReadAsItWasWrittenOrRefused) {
  const std::string one(64, '1'), two(64, '2'), three(64, '3');
  const FinishedUnit unit{.outcomes = Json(7), .source_hash = one, .tensor_hashes = {two, three}};
  const std::string text = unit.json().dump();
  EXPECT_EQ(text, concat(R"({"outcomes":7,"source":")", one, R"(","tensors":[")", two, R"(",")",
                         three, R"("]})"));
  const auto parse = [](std::string_view json, size_t tensors) {
    return FinishedUnit::parse(parse_json(json, "test").value(), tensors);
  };
  EXPECT_EQ(parse(text, 2).value().json().dump(), text);
  for (const size_t count : {size_t{1}, size_t{3}}) {
    const auto refused = parse(text, count);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::corrupt);
    EXPECT_NE(refused.error().message.find(
                  concat("the journal of an unfinished output: expected outcomes, and hashes of "
                         "the source and of ",
                         count, " tensors, found ", text.substr(0, 60))),
              std::string::npos)
        << refused.error().message;
  }
  const std::string source = concat(R"("source":")", one, "\""),
                    tensors = concat(R"("tensors":[")", two, "\"]");
  EXPECT_TRUE(parse(concat(R"({"outcomes":null,)", source, ",", tensors, "}"), 1).ok());
  for (const std::string& wrong :
       {concat("{", source, ",", tensors, "}"), concat(R"({"outcomes":1,)", tensors, "}"),
        concat(R"({"outcomes":1,)", source, "}"),
        concat(R"({"outcomes":1,"source":"1",)", tensors, "}"),
        concat(R"({"outcomes":1,"source":1,)", tensors, "}"),
        concat(R"({"outcomes":1,)", source, R"(,"tensors":["2"]})"),
        concat(R"({"outcomes":1,)", source, R"(,"tensors":[2]})"),
        concat(R"({"outcomes":1,)", source, R"(,"tensors":{"a":1}})")})
    EXPECT_FALSE(parse(wrong, 1).ok()) << wrong;
}

TEST(EmbeddedSamples, AreTheRowsOfTheirTokensInOrder) {
  const test::Model model(test::Layout::dense);
  const auto samples_of = [&](const std::vector<std::vector<int32_t>>& all) {
    CalibrationData data;
    for (const auto& ids : all) data.samples.push_back({.ids = ids});
    return embedded_samples(*model.checkpoint, model.weights, model.config, data);
  };
  const int32_t last = model.config.vocab_rows - 1;
  const auto found = samples_of({{3, last}, {0, 3, 3}});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().lengths, (std::vector<int64_t>{2, 3}));
  const Tensor table =
      model.checkpoint->read(*model.checkpoint->find(model.weights.embedding().values)).value();
  std::vector<uint16_t> expected;
  for (const int32_t id : {3, last, 0, 3, 3})
    for (int i = 0; i < test::kHidden; ++i)
      expected.push_back(table.as<uint16_t>()[id * test::kHidden + i]);
  EXPECT_EQ(found.value().hidden, expected);
  for (const int32_t wrong : {-1, last + 1}) {
    const auto refused = samples_of({{0, wrong}});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, concat("token id in calibration data: expected below ",
                                              test::kVocab, ", found ", wrong));
  }
}

}  // namespace
}  // namespace nibble
