// Scales that may not be, in every place in which a checkpoint has them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quantize/testing/written_modules.h"

namespace nibble {
namespace {

using test::WrittenModules;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  const char* tensor;
  DType dtype;
  std::vector<float> values;
  const char* expected;  // after the severity and the name
};

TEST(VerifyScales, AreFiniteAndPositiveWhereverTheyStand) {
  const Row kRows[] = {
      {"a.weight_scale", DType::f32, {0.5F}, ""},
      {"a.weight_scale", DType::f32, {0.0F}, "expected a positive finite scale, found 0"},
      {"a.weight_scale",
       DType::f32,
       {1, 2, -3, 4},
       "expected a positive finite scale, found -3 at 2"},
      {"a.weight_scale",
       DType::f32,
       {1, kInfinity, 0, 4},
       "expected a positive finite scale, found inf at 1"},
      {"a.weight_scale", DType::i32, {0.5F}, "expected a scale in F32 or BF16, found I32"},
      {"a.input_scale", DType::f32, {-1}, "expected a positive finite scale, found -1"},
      {"a.weight_scale_2", DType::f32, {-1}, "expected a positive finite scale, found -1"},
      {"a.k_scale", DType::f32, {-1}, "expected a positive finite scale, found -1"},
      {"a.v_scale", DType::f32, {-1}, "expected a positive finite scale, found -1"},
      {"a.bias", DType::f32, {-1}, ""},
      {"b.k_scale", DType::f32, {0}, "expected a positive finite scale, found 0"},
      {"b.weight_scale", DType::f32, {0}, ""},  // a scale without its weight is told of elsewhere
  };
  for (const Row& row : kRows) {
    WrittenModules written;
    written.add_bytes("a.weight", DType::f8_e4m3, Shape{4, 8}, std::string(32, 0x31));
    written.add(row.tensor, row.dtype, Shape{std::ssize(row.values)}, row.values);
    Findings findings;
    ASSERT_TRUE(check_scales(written.subject(), findings).ok());
    const std::string expected =
        *row.expected == 0 ? "" : concat("error ", row.tensor, ": ", row.expected, "\n");
    EXPECT_EQ(test::listing(findings), expected);
  }
}

/// Facts of the block scales of a linear and its global scale: the largest weight is six times
/// their product.
TEST(VerifyScales, AGlobalScaleIsPlausibleWithItsBlockScales) {
  struct Global {
    uint8_t largest_code;
    float value;  // that weights are divided by
    const char* expected;
  };
  constexpr uint8_t kOne = 0x38;
  const Global kRows[] = {
      {kOne, 6.0F, ""},
      {kOne, 6e6F * 0.99F, ""},
      {kOne, 6e6F * 1.01F, "implausible: expected weights between 1e-06 and 10000, found up to "},
      {kOne, 6e-4F * 1.01F, ""},
      {kOne, 6e-4F * 0.99F, "implausible: expected weights between 1e-06 and 10000, found up to "},
  };
  for (const Global& row : kRows) {
    WrittenModules written;
    written.add_nvfp4("a", {1, 8});
    written.add("a.weight_global_scale", DType::f32, Shape{1}, {row.value});
    const VerifySubject subject = written.subject();
    std::map<const TensorEntry*, ValueFacts> facts;
    const auto check = [&] {
      Findings findings;
      EXPECT_TRUE(
          check_scales({subject.checkpoint, subject.declared, subject.modules, facts}, findings)
              .ok());
      return test::listing(findings);
    };
    EXPECT_EQ(check(), "") << "block scales were not looked at";
    ValueFacts& seen = facts[subject.checkpoint.find("a.weight_scale")];
    seen = {.all_zero = false, .largest_code = row.largest_code};
    const std::string found = check();
    EXPECT_EQ(found.empty(), *row.expected == 0) << row.value << found;
    EXPECT_NE(found.find(row.expected), std::string::npos) << found;
    seen.all_zero = true;
    EXPECT_EQ(check(), "") << "a matrix of zeros has any scale";
    seen.bad = 2;
    seen.first_bad = 7;
    EXPECT_EQ(check(), "error a.weight_scale: 2 block scales are negative or NaN, first at 7\n");
  }
}

TEST(VerifyScales, TheDecoderOfThisProgramIsRight) {
  Findings findings;
  check_decoder(findings);
  EXPECT_EQ(test::listing(findings), "");
}

/// Values that are no numbers and matrices of zeros, by the kind of module.
TEST(VerifyFinite, ZerosAndWhatIsNoNumberAreToldOfByKind) {
  const std::string expert = "model.layers.0.mlp.experts.0.up_proj.weight",
                    stack = "model.layers.0.mlp.experts.down_proj", norm = "model.norm.weight",
                    linear = "model.layers.0.self_attn.q_proj.weight";
  WrittenModules written;
  for (const std::string& name : {expert, linear})
    written.add(name, DType::f32, Shape{2, 2}, {1, 1, 1, 1});
  written.add(stack, DType::f32, Shape{2, 2, 1}, {1, 1, 1, 1});
  written.add(norm, DType::f32, Shape{2}, {1, 1});
  const VerifySubject subject = written.subject();
  struct Case {
    std::string name;
    ValueFacts facts;
    std::string expected;
  };
  const Case kCases[] = {
      {expert, {.all_zero = false}, ""},
      {expert, {}, "warning " + expert + ": a dead expert: all zero\n"},
      {linear, {}, "error " + linear + ": all values are zero\n"},
      {norm, {}, ""},
      {norm,
       {.bad = 1, .first_bad = 1, .all_zero = false},
       "error " + norm + ": 1 of 2 values are NaN or infinite, first at 1\n"},
      {stack,
       {.all_zero = false, .zero_slices = {1}},
       "warning " + stack + ": 1 dead experts (all zero), first expert 1\n"},
      {stack,
       {.all_zero = true, .zero_slices = {0, 1}},
       "warning " + stack + ": 2 dead experts (all zero), first expert 0\n"},
  };
  for (const Case& one : kCases) {
    const std::map<const TensorEntry*, ValueFacts> facts = {
        {subject.checkpoint.find(one.name), one.facts}};
    Findings findings;
    check_values({subject.checkpoint, subject.declared, subject.modules, facts}, findings);
    EXPECT_EQ(test::listing(findings), one.expected);
  }
}

}  // namespace
}  // namespace nibble
