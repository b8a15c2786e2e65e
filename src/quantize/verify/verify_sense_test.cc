// Scales and codes that may be, but make no sense beside the others of their checkpoint, are told
// of from exactly the limits on.
#include "quantize/verify/verify_sense.h"

#include <gtest/gtest.h>

#include <limits>

#include "quantize/testing/written_modules.h"

namespace nibble {
namespace {

using test::listing;
using test::WrittenModules;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Eight or more scales make a habit; each is a tensor of a layer of its own.
struct ScaleRow {
  const char* tensor;  // its name in a layer
  std::vector<float> values;
  const char* expected;
};

std::vector<float> ones_and(size_t ones, const std::vector<float>& others) {
  std::vector<float> all(ones, 1.0F);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

constexpr const char* kGlobal = "self_attn.o_proj.weight_global_scale";
constexpr const char* kInput = "self_attn.o_proj.input_global_scale";
constexpr const char* kKey = "self_attn.k_scale";
constexpr const char* kValue = "self_attn.v_scale";

const ScaleRow kScales[] = {
    {kGlobal, ones_and(9, {0.25F}), ""},
    {kGlobal, ones_and(9, {3.0F}),
     "error layers.9.self_attn.o_proj.weight_global_scale: expected a power of two, as 9 of 10 "
     "global scales of this checkpoint are, found 3\n"},
    {kGlobal, ones_and(8, {3.0F, 5.0F}), ""},
    {kGlobal, ones_and(17, {3.0F, 5.0F}), ""},
    {kGlobal, ones_and(18, {3.0F, 5.0F}),
     "error layers.18.self_attn.o_proj.weight_global_scale: expected a power of two, as 18 of 20 "
     "global scales of this checkpoint are, found 3\n"
     "error layers.19.self_attn.o_proj.weight_global_scale: expected a power of two, as 18 of 20 "
     "global scales of this checkpoint are, found 5\n"},
    // Numbers that other checks refuse count for nothing.
    {kGlobal, ones_and(9, {3.0F, 0.0F, -2.0F, kNan}),
     "error layers.9.self_attn.o_proj.weight_global_scale: expected a power of two, as 9 of 10 "
     "global scales of this checkpoint are, found 3\n"},
    {kInput, ones_and(6, {300.0F}), ""},
    {kInput, ones_and(7, {256.0F}), ""},
    {kInput, ones_and(7, {1.0F / 256}), ""},
    {kInput, ones_and(7, {257.0F}),
     "warning layers.7.self_attn.o_proj.input_global_scale: an absurd input scale: 257, where the "
     "median of its 8 like is 1\n"},
    {kInput, ones_and(7, {0.001953125F}),
     "warning layers.7.self_attn.o_proj.input_global_scale: an absurd input scale: 0.001953125, "
     "where the median of its 8 like is 1\n"},
    {kInput, ones_and(9, {512.0F}),
     "error layers.9.self_attn.o_proj.input_global_scale: an absurd input scale: 512, where the "
     "median of its 10 like is 1\n"},
    {kInput,
     {1, 2, 3, 4, 5, 6, 7, 8, 2000},
     "warning layers.8.self_attn.o_proj.input_global_scale: an absurd input scale: 2000, where the "
     "median of its 9 like is 5\n"},
    {kKey, {1e-6F, 1e3F}, ""},
    {kKey,
     {0.5e-6F, 2e3F},
     "error layers.0.self_attn.k_scale: expected a cache scale between 1e-06 and 1000, found "
     "5e-07\n"
     "error layers.1.self_attn.k_scale: expected a cache scale between 1e-06 and 1000, found "
     "2000\n"},
    {kValue,
     {2e3F},
     "error layers.0.self_attn.v_scale: expected a cache scale between 1e-06 and 1000, found "
     "2000\n"},
    {kKey, ones_and(7, {300.0F}),
     "warning layers.7.self_attn.k_scale: an absurd cache scale: 300, where the median of its 8 "
     "like is 1\n"},
    {kValue, ones_and(9, {300.0F}),
     "error layers.9.self_attn.v_scale: an absurd cache scale: 300, where the median of its 10 "
     "like is 1\n"},
};

/// The scales as tensors of layers 0, 1 and so on; where they are of a linear, NVFP4 codes too.
void add_scales(const ScaleRow& row, WrittenModules& written) {
  const std::string_view tensor = row.tensor;
  const bool linear = tensor.find("_proj.") != std::string_view::npos;
  for (size_t i = 0; i < row.values.size(); ++i) {
    written.add(concat("layers.", i, ".", tensor), DType::f32, Shape{1}, {row.values[i]});
    const auto module = concat("layers.", i, ".", tensor.substr(0, tensor.rfind('.')));
    if (linear) written.add_nvfp4(module, {1, 8});
  }
}

std::string scale_findings(WrittenModules& written) {
  Findings findings;
  const auto done = check_scale_agreement(written.subject(), findings);
  return done.ok() ? listing(findings) : done.error().message;
}

TEST(VerifySense, ScalesThatStandApartAreToldOf) {
  for (const ScaleRow& row : kScales) {
    WrittenModules written;
    add_scales(row, written);
    EXPECT_EQ(scale_findings(written), row.expected);
  }
}

/// Four scales of keys and four of values, or of two kinds of linears, are no eight of one kind.
TEST(VerifySense, ScalesAreComparedWithThoseOfTheirKind) {
  for (const auto& [one, other] :
       {std::pair(kKey, kValue), std::pair(kInput, "self_attn.q_proj.input_global_scale")}) {
    WrittenModules written;
    add_scales({one, ones_and(3, {300.0F}), ""}, written);
    add_scales({other, ones_and(4, {}), ""}, written);
    EXPECT_EQ(scale_findings(written), "") << one;
  }
}

/// Only the global scales of NVFP4 linears have the habit, and only scalars of a plain type count.
TEST(VerifySense, OtherTensorsAreNoScales) {
  WrittenModules written;
  add_scales({kGlobal, ones_and(9, {}), ""}, written);
  written.add("layers.9.self_attn.o_proj.weight_global_scale", DType::f32, Shape{1}, {3.0F});
  written.add("layers.9.self_attn.o_proj.weight", DType::f32, Shape{1, 1}, {1.0F});
  written.add_nvfp4("layers.10.self_attn.o_proj", {1, 8});
  written.add("layers.10.self_attn.o_proj.weight_global_scale", DType::f32, Shape{2}, {3, 3});
  written.add("layers.0.self_attn.k_scale", DType::u8, Shape{4}, {0.0F});
  EXPECT_EQ(scale_findings(written), "");
}

struct CodeRow {
  int64_t bytes;      // of codes, two of them in each
  ValueFacts values;  // of the codes
  int64_t zero_scales;
  const char* expected;
};

TEST(VerifySense, CodesAtTheEndOfTheirRange) {
  constexpr const char* kNone =
      "warning layers.0.self_attn.o_proj.weight_packed: no code is at the end of its range: block "
      "scales are too large\n";
  const CodeRow kRows[] = {
      {2048, {.all_zero = false, .top_codes = 1}, 0, ""},
      {2048, {.all_zero = false, .top_codes = 1638}, 0, ""},
      {2048,
       {.all_zero = false, .top_codes = 1639},
       0,
       "warning layers.0.self_attn.o_proj.weight_packed: 40 % of its codes are at the end of their "
       "range: block scales that are too small have clipped it\n"},
      {2048,
       {.all_zero = false, .top_codes = 3092},
       0,
       "warning layers.0.self_attn.o_proj.weight_packed: 75 % of its codes are at the end of their "
       "range: block scales that are too small have clipped it\n"},
      {2048, {.all_zero = false}, 0, kNone},
      {2048, {.all_zero = true}, 0, ""},
      {2040, {.all_zero = false}, 0, ""},
      {8, {.all_zero = false}, 0, ""},
      {8,
       {.all_zero = false, .top_codes = 3},
       2,
       "warning layers.0.self_attn.o_proj.weight_scale: 2 block scales are zero, and their weights "
       "with them\n"},
  };
  for (const CodeRow& row : kRows) {
    WrittenModules written;
    written.add_nvfp4("layers.0.self_attn.o_proj", {1, row.bytes});
    written.add("layers.0.mlp.gate.weight", DType::f32, Shape{1}, {1.0F});
    const VerifySubject subject = written.subject();
    std::map<const TensorEntry*, ValueFacts> facts;
    const auto check = [&] {
      Findings findings;
      check_code_ranges({subject.checkpoint, subject.declared, subject.modules, facts}, findings);
      return listing(findings);
    };
    facts[subject.checkpoint.find("layers.0.mlp.gate.weight")] = {.all_zero = false};
    facts[subject.checkpoint.find("layers.0.self_attn.o_proj.weight_packed")] = row.values;
    EXPECT_EQ(check(), "") << "without the facts of its scales nothing is said";
    facts[subject.checkpoint.find("layers.0.self_attn.o_proj.weight_scale")] = {
        .zero_codes = row.zero_scales};
    EXPECT_EQ(check(), row.expected) << row.bytes << " " << row.values.top_codes;
  }
}

}  // namespace
}  // namespace nibble
