// --quantization against what a checkpoint declares: in config.json, in ModelOpt's file beside it,
// or nowhere.
#include "cli/serving/declared_quantization.h"

#include <gtest/gtest.h>

#include "testing/test_files.h"

namespace nibble {
namespace {

struct Case {
  const char* name;
  const char* config;
  const char* side;     // hf_quant_config.json; null: there is none
  const char* refused;  // a piece of the line; null: taken
};

constexpr const char* kTensors = R"({"quantization_config":{"quant_method":"compressed-tensors"}})";
constexpr const char* kMixed =
    R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION"}})";
constexpr const char* kSide = R"({"quantization":{"quant_algo":"NVFP4"}})";

constexpr Case kCases[] = {
    {"compressed-tensors", kTensors, nullptr, nullptr},
    {"modelopt", kMixed, nullptr, nullptr},
    {"modelopt_mixed", kMixed, nullptr, nullptr},
    {"modelopt", "{}", kSide, nullptr},
    {"modelopt_fp4", "{}", kSide, nullptr},
    {"modelopt", kTensors, nullptr, "found compressed-tensors"},
    {"modelopt", kTensors, kSide, "found compressed-tensors"},  // config.json comes first
    {"compressed-tensors", kMixed, nullptr, "found modelopt MIXED_PRECISION"},
    {"modelopt_fp4", kMixed, nullptr, "found modelopt MIXED_PRECISION"},
    {"modelopt_mixed", "{}", kSide, "found modelopt NVFP4"},
    {"modelopt", "{}", nullptr, "found a checkpoint that is not quantized"},
    {"compressed-tensors", "{}", nullptr, "found a checkpoint that is not quantized"},
    {"modelopt", R"({"quantization_config":7})", nullptr, "not quantized"},
    {"modelopt", "{}", R"({"quantization":[]})", nullptr},
    {"modelopt", "{", nullptr, "config.json"},
    {"modelopt", "{}", "[", "hf_quant_config.json"},
};

TEST(DeclaredQuantization, IsHeldAgainstTheWord) {
  for (const Case& c : kCases) {
    const TemporaryFolder folder;
    write_test_file(folder / "config.json", c.config);
    if (c.side != nullptr) write_test_file(folder / "hf_quant_config.json", c.side);
    const std::vector<std::string> words = {"DIR", "--quantization", c.name};
    const Arguments arguments =
        parse_arguments(kServeVerb, words, [](const std::string&) -> std::optional<std::string> {
          return {};
        }).value();
    const Result<void> checked = check_quantization(arguments, folder.path());
    EXPECT_EQ(checked.ok(), c.refused == nullptr) << c.name << " " << c.config;
    if (checked.ok() || c.refused == nullptr) continue;
    EXPECT_NE(checked.error().message.find(c.refused), std::string::npos)
        << checked.error().message;
  }
}

}  // namespace
}  // namespace nibble
