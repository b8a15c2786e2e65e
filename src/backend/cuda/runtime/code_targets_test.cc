// Tables of cards and drivers: the code that runs there, and the words where none does. No card
// takes part.
#include "backend/cuda/runtime/code_targets.h"

#include <gtest/gtest.h>

namespace nibble::cuda {
namespace {

constexpr const char* kRelease = "80-real,86-real,89-real,90a-real,100f-real,120f-real,80-virtual";

struct Case {
  const char* targets;
  int major, minor, driver;
  const char* code;  // or a part of the refusal
};

constexpr int kToolkit = 13000;

TEST(CodeTargets, EveryCardRunsItsCodeOrOneLineSaysWhyNot) {
  const Case cases[] = {
      {kRelease, 8, 0, 13000, "sm_80"},
      {kRelease, 8, 6, 13000, "sm_86"},
      {kRelease, 8, 7, 13000, "sm_86"},  // Orin
      {kRelease, 8, 9, 13000, "sm_89"},
      {kRelease, 9, 0, 13000, "sm_90a"},
      {kRelease, 10, 0, 13000, "sm_100f"},
      {kRelease, 10, 3, 13000, "sm_100f"},
      {kRelease, 12, 0, 13000, "sm_120f"},
      {kRelease, 12, 1, 14020, "sm_120f"},
      {kRelease, 11, 0, 13000, "PTX compute_80"},  // Thor
      {kRelease, 13, 0, 13010, "PTX compute_80"},  // unknown, newer
      {kRelease, 7, 5, 13000, "found Card with compute capability 7.5"},
      // A card without its target.
      {"90a-real", 8, 0, 13000, "a card that this program has code for (sm_90a)"},
      {"90a-real", 12, 0, 13000, "compute capability 12.0"},
      {"80-real,120f-real", 8, 9, 13000, "sm_80"},
      {"89-real", 8, 6, 13000, "compute capability 8.6"},
      {"100f-real", 12, 0, 13000, "compute capability 12.0"},
      {"103f-real", 10, 0, 13000, "compute capability 10.0"},
      {"120a-real", 12, 1, 13000, "compute capability 12.1"},
      {"120a-real,80-virtual", 12, 1, 13000, "PTX compute_80"},
      {"120f-virtual", 12, 1, 13000, "PTX compute_120f"},
      {"120f-virtual", 13, 0, 13000, "compute capability 13.0"},
      {"90-virtual,80-virtual", 12, 0, 13000, "PTX compute_90"},
      {"90-virtual,80-virtual", 8, 9, 13000, "PTX compute_80"},
      {"90-virtual", 8, 9, 13000, "compute capability 8.9"},
      {"80-real,90-real,80-virtual", 9, 0, 13000, "compute capability 9.0"},
      // Drivers.
      {kRelease, 9, 0, 0, "expected an NVIDIA driver, found none"},
      {kRelease, 9, 0, 12080, "expected a driver for CUDA 13.0 or newer, found one for CUDA 12.8"},
      {kRelease, 9, 0, 12090, "update the driver"},
  };
  for (const Case& c : cases) {
    const auto targets = parse_code_targets(c.targets).value();
    const auto code =
        code_for({.name = "Card", .major = c.major, .minor = c.minor, .driver = c.driver}, targets,
                 kToolkit);
    const std::string found = code.ok() ? code.value().name() : code.error().message;
    EXPECT_NE(found.find(c.code), std::string::npos)
        << c.targets << " on " << c.major << "." << c.minor << ": " << found;
    if (code.ok()) {
      EXPECT_EQ(found, c.code);
      continue;
    }
    EXPECT_EQ(code.error().code, ErrorCode::unsupported);
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
    EXPECT_NE(found.find("--backend cpu"), std::string::npos) << found;
  }
}

TEST(CodeTargets, OnlyPtxNeedsADriverAsNewAsTheToolkit) {
  const auto targets = parse_code_targets(kRelease).value();
  const auto at = [&](int major, int driver) {
    return code_for({.name = "Card", .major = major, .minor = 0, .driver = driver}, targets, 13020);
  };
  EXPECT_TRUE(at(12, 13000).ok());
  EXPECT_TRUE(at(13, 13020).ok());
  const auto refused = at(13, 13010);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("a driver for CUDA 13.2 or newer"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("CUDA 13.1"), std::string::npos)
      << refused.error().message;
}

TEST(CodeTargets, AreReadAsCMakePassesThem) {
  EXPECT_EQ(code_targets_text(parse_code_targets(kRelease).value()),
            "sm_80, sm_86, sm_89, sm_90a, sm_100f, sm_120f, PTX compute_80");
  EXPECT_TRUE(parse_code_targets("").value().empty());
  for (const char* bad : {"80", "sm_80", "8-real", "80x-real", "80-", "80-real;90-real", ",80-real",
                          "80-real,,90-real", "99999999999-real", "80a -real"})
    EXPECT_FALSE(parse_code_targets(bad).ok()) << bad;
}

}  // namespace
}  // namespace nibble::cuda
