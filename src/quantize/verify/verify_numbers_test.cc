// Declarations that contradict the tensors or each other are told of: quantization_config of
// config.json, and hf_quant_config.json beside it.
#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/testing/written_modules.h"
#include "quantize/verify/verify_sense.h"

namespace nibble {
namespace {

struct Row {
  const char* declared;  // quantization_config; nullptr: there is none
  const char* side;      // hf_quant_config.json; nullptr: there is none
  const char* expected;
};

constexpr const char* kModelOpt = R"({"quant_method":"modelopt"})";

const Row kRows[] = {
    {nullptr, nullptr, ""},
    {R"({"config_groups":{"a":{"weights":{"num_bits":4,"group_size":16}}}})", nullptr, ""},
    {R"({"config_groups":{"a":{"weights":{"num_bits":4,"group_size":32}}}})", nullptr,
     "error config.json: quantization_config.config_groups.a.weights.group_size: expected 16, as "
     "the block scales of NVFP4 have it, found 32\n"},
    {R"({"config_groups":{"a":{"weights":{"num_bits":4,"group_size":null}}}})", nullptr, ""},
    {R"({"config_groups":{"a":{"weights":{"num_bits":8,"group_size":128}}}})", nullptr, ""},
    {R"({"x":[{"quant_algo":"FP8","group_size":1},{"quant_algo":"W4A16_NVFP4","group_size":8}]})",
     nullptr,
     "error config.json: quantization_config.x.group_size: expected 16, as the block scales of "
     "NVFP4 have it, found 8\n"},
    {R"({"quant_algo":4,"group_size":8})", nullptr, ""},
    {nullptr, "{", "error hf_quant_config.json: "},
    {nullptr, R"({"quantization":{"quant_algo":"NVFP4","group_size":8}})",
     "error hf_quant_config.json: hf_quant_config.quantization.group_size: expected 16, as the "
     "block scales of NVFP4 have it, found 8\n"},
    {R"({"quant_method":"compressed-tensors"})", "{}",
     "warning hf_quant_config.json: stands beside a config.json of another dialect, "
     "\"compressed-tensors\": engines disagree which one counts\n"},
    {"{}", "{}",
     "warning hf_quant_config.json: stands beside a config.json of another dialect, nothing: "
     "engines disagree which one counts\n"},
    {R"({"quant_method":4})", "{}",
     "warning hf_quant_config.json: stands beside a config.json of another dialect, 4: engines "
     "disagree which one counts\n"},
    {kModelOpt, "{}", ""},
    {R"({"quant_method":"modelopt_fp4","quant_algo":"NVFP4"})",
     R"({"quantization":{"quant_algo":"NVFP4"}})", ""},
    {R"({"quant_method":"modelopt","quant_algo":"NVFP4"})",
     R"({"quantization":{"quant_algo":"FP8"}})",
     "error hf_quant_config.json: quant_algo: expected \"NVFP4\" as in config.json, found "
     "\"FP8\"\n"},
    {kModelOpt, R"({"quantization":{"quant_algo":"FP8"}})", ""},
    {R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", R"({"quantization":{}})", ""},
    {R"({"quant_method":"modelopt","quantized_layers":{"a":1}})",
     R"({"quantization":{"quantized_layers":{"a":2}}})",
     "error hf_quant_config.json: quantized_layers: expected {\"a\":1} as in config.json, found "
     "{\"a\":2}\n"},
    {R"({"quant_method":"modelopt","ignore":["a","b"]})",
     R"({"quantization":{"exclude_modules":["b","a",4]}})", ""},
    {R"({"quant_method":"modelopt","ignore":["a"]})",
     R"({"quantization":{"exclude_modules":["b","a"]}})",
     "error hf_quant_config.json: exclude_modules has \"b\", which quantization_config.ignore of "
     "config.json lacks\n"},
    {R"({"quant_method":"modelopt","ignore":["a","c"]})",
     R"({"quantization":{"exclude_modules":["a"]}})",
     "error hf_quant_config.json: exclude_modules lacks \"c\", which quantization_config.ignore of "
     "config.json has\n"},
    {R"({"quant_method":"modelopt","ignore":["a"]})", R"({"quantization":{"exclude_modules":"a"}})",
     "error hf_quant_config.json: exclude_modules lacks \"a\", which quantization_config.ignore of "
     "config.json has\n"},
    {kModelOpt, R"({"quantization":{"exclude_modules":["a"]}})", ""},
    {R"({"quant_method":"modelopt","ignore":["a"]})", R"({"quantization":{}})", ""},
    {R"({"quant_method":"modelopt","kv_cache_scheme":{"num_bits":8}})",
     R"({"quantization":{"kv_cache_quant_algo":"FP8"}})", ""},
    {R"({"quant_method":"modelopt","kv_cache_scheme":null})",
     R"({"quantization":{"kv_cache_quant_algo":null}})", ""},
    {R"({"quant_method":"modelopt","kv_cache_scheme":null})",
     R"({"quantization":{"kv_cache_quant_algo":"FP8"}})",
     "error hf_quant_config.json: kv_cache_quant_algo is \"FP8\", but kv_cache_scheme of "
     "config.json is null\n"},
    {R"({"quant_method":"modelopt","kv_cache_scheme":{"num_bits":8}})",
     R"({"quantization":{"kv_cache_quant_algo":null}})",
     "error hf_quant_config.json: kv_cache_quant_algo is null, but kv_cache_scheme of config.json "
     "is {\"num_bits\":8}\n"},
    {R"({"quant_method":"modelopt","kv_cache_scheme":{"num_bits":8}})", R"({"quantization":{}})",
     ""},
    {kModelOpt, R"({"quantization":{"kv_cache_quant_algo":"FP8"}})", ""},
    {kModelOpt, R"({"quantization":{"quant_algo":"MIXED_PRECISION","group_size":16}})", ""},
    {kModelOpt, R"({"quantization":{"quant_algo":"MIXED_PRECISION","group_size":null}})", ""},
    {kModelOpt, R"({"quantization":{"quant_algo":"MIXED_PRECISION","group_size":8}})",
     "error hf_quant_config.json: quantization.group_size: expected 16, found 8\n"},
    {kModelOpt, R"({"quantization":{"quant_algo":"FP8","group_size":8}})", ""},
    {kModelOpt, R"({"quantization":{"group_size":8}})", ""},
};

TEST(VerifyNumbers, WhatDeclarationsContradictIsToldOf) {
  for (const Row& row : kRows) {
    test::WrittenModules written;
    written.add("layers.0.norm.weight", DType::f32, Shape{1}, {1.0F});
    const auto folder = written.subject().checkpoint.folder();
    Json config{Json::Object{}};
    if (row.declared != nullptr)
      config.set("quantization_config", parse_json(row.declared, "test").value());
    write_test_file(folder / "config.json", config.dump());
    if (row.side != nullptr) write_test_file(folder / "hf_quant_config.json", row.side);
    Findings findings;
    check_declared_numbers(Checkpoint::open(folder).value(), findings);
    const std::string found = test::listing(findings);
    const bool parsed = row.side == nullptr || std::string_view(row.side) != "{";
    if (parsed) {
      EXPECT_EQ(found, row.expected);
    } else {
      EXPECT_TRUE(found.starts_with(row.expected)) << found;
    }
  }
}

/// Only so much of a long value is shown.
TEST(VerifyNumbers, LongValuesAreCutShort) {
  test::WrittenModules written;
  written.add("layers.0.norm.weight", DType::f32, Shape{1}, {1.0F});
  const auto folder = written.subject().checkpoint.folder();
  const std::string longer(100, 'x');
  Json declared = parse_json(R"({"quant_method":"modelopt","num_bits":4})", "test").value();
  declared.set("quant_algo", longer);
  declared.set("group_size", longer);
  Json config{Json::Object{}};
  config.set("quantization_config", std::move(declared));
  write_test_file(folder / "config.json", config.dump());
  write_test_file(folder / "hf_quant_config.json", R"({"quantization":{"quant_algo":"a"}})");
  Findings findings;
  check_declared_numbers(Checkpoint::open(folder).value(), findings);
  EXPECT_EQ(test::listing(findings),
            "error config.json: quantization_config.group_size: expected 16, as the block scales "
            "of NVFP4 have it, found \"" +
                longer.substr(0, 39) + "\nerror hf_quant_config.json: quant_algo: expected \"" +
                longer.substr(0, 59) + " as in config.json, found \"a\"\n");
}

}  // namespace
}  // namespace nibble
