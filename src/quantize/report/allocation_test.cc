// The allocation in words: the table, the JSON, the picture.
#include "quantize/report/allocation.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

Allocation small() {
  const auto group = [](std::string name, size_t chosen) {
    return AllocationGroup{.name = std::move(name),
                           .choices = {{AllocatedFormat::nvfp4, 1'000'000, 1e-3},
                                       {AllocatedFormat::fp8, 2'000'000, 1e-4},
                                       {AllocatedFormat::unquantized, 4'000'000, 0}},
                           .chosen = chosen};
  };
  Allocation out{.recipe = "mixed", .target = "--target-bytes 9000000", .data_hash = "abc"};
  out.tokens = 7;
  out.groups = {group("model.layers.0.mlp.experts", 0), group("model.layers.1.mlp.experts", 1),
                group("lm_head", 2)};
  out.total = {.bytes = 8'000'000, .loss = 1.1e-3};
  out.curve = {{.bytes = 4'000'000, .loss = 3e-3},
               {.bytes = 8'000'000, .loss = 1.1e-3},
               {.bytes = 13'000'000, .loss = 0}};
  return out;
}

TEST(AllocationWords, TheTableCountsFormatsByKind) {
  EXPECT_EQ(small().table(),
            "linears      NVFP4    FP8  as it was          MB  predicted KL\n"
            "lm_head          0      0          1        4.00     0.000e+00\n"
            "mlp.experts      1      1          0        3.00     1.100e-03\n"
            "--target-bytes 9000000: 8.00 MB, predicted KL 1.100e-03 (all in NVFP4: 4.00 MB, "
            "predicted KL 3.000e-03; all as they were: 13.00 MB, predicted KL 0.000e+00)\n");
}

TEST(AllocationWords, TheReportHasChoicesAndTheCurve) {
  const Json json = small().json();
  EXPECT_EQ(json.find("recipe")->as_string(), "mixed");
  EXPECT_EQ(json.find("groups")->as_array().size(), 3U);
  EXPECT_EQ(json.find("groups")->as_array()[1].dump(),
            R"({"group":"model.layers.1.mlp.experts","format":"FP8","choices":[)"
            R"({"format":"NVFP4","bytes":1000000,"predicted_kl":0.001},)"
            R"({"format":"FP8","bytes":2000000,"predicted_kl":0.0001},)"
            R"({"format":"as it was","bytes":4000000,"predicted_kl":0.0}]})");
  EXPECT_EQ(json.find("curve")->as_array().size(), 3U);
}

TEST(AllocationWords, ThePictureStaysInItsFrame) {
  const std::string picture = small().chart();
  EXPECT_NE(picture.find("<polyline fill='none' stroke='#1b6ca8' points='80.0,"), std::string::npos)
      << picture;
  EXPECT_NE(picture.find("chosen: 8.00 MB, 1.10e-03"), std::string::npos);
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_EQ(picture.find("inf"), std::string::npos);
  Allocation none = small();
  for (AllocationPoint& point : none.curve) point = {.bytes = 5, .loss = 0};
  EXPECT_EQ(none.chart().find("nan"), std::string::npos);
  EXPECT_EQ(none.chart().find("-inf"), std::string::npos);
}

}  // namespace
}  // namespace nibble
