// A report is read within limits, and the key that breaks one is named with its row.
#include <gtest/gtest.h>

#include "quantize/report/quantize_report.h"

namespace nibble {
namespace {

/// A report with a row of each kind.
Json sound_report() {
  QuantizeReport report{.base = "a/b", .recipe = "mixed", .about = "words"};
  report.kinds = {{.kind = "lm_head",
                   .scheme = "FP8",
                   .tensors = 1,
                   .weights = 8,
                   .bytes_in = 16,
                   .bytes_out = 8,
                   .rounding = {.weight_squares = 4,
                                .error_squares = 1,
                                .amax_error_squares = 2,
                                .zero_blocks = 3,
                                .flushed_blocks = 5}}};
  report.bytes_in = 20;
  report.bytes_out = 12;
  report.add_rest({.kind = std::string(kRest), .scheme = "as it was", .rounding = {}});
  report.layers = {{.kind = "lm_head", .layer = -1, .rounding = {.weight_squares = 4}}};
  report.fallbacks = {{"lm_head", "no data"}};
  report.warnings = {"a warning"};
  report.commands = {"a command"};
  report.data_hash = "d";
  report.hashes_file = "h";
  report.allocation = Json(1);
  report.calibration = Json(2);
  return report.json();
}

/// Sets "key" or, in the first row of a list, "list.key"; null removes nothing and is a wrong type.
Json with(std::string_view key, const Json& value) {
  Json json = sound_report();
  const size_t dot = key.find('.');
  if (dot == key.npos) {
    json.set(key, value);
  } else {
    json.find(key.substr(0, dot))->as_array()[0].set(key.substr(dot + 1), value);
  }
  return json;
}

std::string error_of(std::string_view key, std::string_view value) {
  const auto read = parse_report(with(key, parse_json(value, "test").value()));
  return read.ok() ? "" : read.error().message;
}

TEST(ReportReader, EveryMemberComesBack) {
  const Json json = sound_report();
  EXPECT_EQ(parse_report(json).value().json().dump(), json.dump());
  for (const char* status : {"production", "free-text", "lab"}) {
    const Json other = with("recipe_status", Json(status));
    EXPECT_EQ(parse_report(other).value().json().dump(), other.dump());
  }
}

TEST(ReportReader, NumbersWithinTheirLimitsAreRead) {
  const std::string most = concat(int64_t{1} << 42), more = concat((int64_t{1} << 42) + 1);
  for (const char* key :
       {"kinds.tensors", "kinds.weights", "kinds.bytes_in", "kinds.bytes_out", "kinds.zero_blocks",
        "kinds.flushed_blocks", "tensor_bytes_in", "tensor_bytes_out"}) {
    EXPECT_EQ(error_of(key, "0"), "") << key;
    EXPECT_EQ(error_of(key, most), "") << key;
    for (const std::string& wrong : {more, std::string("-1"), std::string("\"1\"")}) {
      const std::string message = error_of(key, wrong);
      const std::string_view name =
          std::string_view(key).substr(std::string_view(key).find('.') + 1);
      EXPECT_NE(message.find(name), std::string::npos) << key << " " << wrong << message;
    }
  }
  EXPECT_EQ(error_of("layers.layer", "-1"), "");
  EXPECT_EQ(error_of("layers.layer", "100000"), "");
  EXPECT_NE(error_of("layers.layer", "-2"), "");
  EXPECT_NE(error_of("layers.layer", "100001"), "");
  for (const char* key :
       {"kinds.weight_squares", "kinds.error_squares", "kinds.amax_error_squares"}) {
    EXPECT_EQ(error_of(key, "1e100"), "") << key;
    EXPECT_NE(error_of(key, "1.1e100"), "") << key;
    EXPECT_NE(error_of(key, "-1"), "") << key;
    EXPECT_EQ(error_of(key, "0"), "") << key;
  }
  EXPECT_EQ(error_of("kinds.weight_squares", "1e-100"), "");
  EXPECT_NE(error_of("kinds.weight_squares", "1e-101").find("expected 0, or at least 1e-100"),
            std::string::npos);
}

/// Without weights there is nothing that an error could be a part of.
TEST(ReportReader, ErrorsOfNoWeightsAreNone) {
  Json json = with("kinds.weight_squares", Json(0.0));
  json.find("kinds")->as_array()[0].set("error_squares", 3.0);
  const QuantizeReport report = parse_report(json).value();
  EXPECT_EQ(report.kinds[0].rounding.error_squares, 0.0);
  EXPECT_EQ(report.kinds[0].rounding.amax_error_squares, 0.0);
  EXPECT_EQ(report.kinds[0].rounding.zero_blocks, 3);
}

TEST(ReportReader, WhatIsMissingOrOfAnotherTypeIsNamed) {
  for (const char* key :
       {"kinds.kind", "kinds.scheme", "layers.kind", "rounded_without_data.linear",
        "rounded_without_data.reason", "base", "recipe", "format", "algorithm"}) {
    const std::string message = error_of(key, "3");
    const std::string_view name = std::string_view(key).substr(std::string_view(key).find('.') + 1);
    EXPECT_NE(message.find(name), std::string::npos) << key << message;
    EXPECT_TRUE(message.starts_with("quantize_report.json: ")) << message;
  }
  for (const char* list : {"kinds", "layers", "rounded_without_data"}) {
    EXPECT_NE(error_of(list, "3").find(concat(list, ": expected a list of objects, found 3")),
              std::string::npos)
        << error_of(list, "3");
    EXPECT_NE(error_of(list, "[3]").find(concat(list, ": expected a list of objects, found 3")),
              std::string::npos)
        << error_of(list, "[3]");
  }
  for (const char* list : {"commands", "warnings"})
    for (const char* wrong : {"3", "[3]"})
      EXPECT_NE(error_of(list, wrong).find(concat(list, ": expected a list of texts, found ")),
                std::string::npos)
          << error_of(list, wrong);
  EXPECT_NE(error_of("recipe_status", R"("best")")
                .find("recipe_status: expected production, free-text or lab, found \"best\""),
            std::string::npos);
  EXPECT_NE(error_of("kinds", "[]").find("kinds: expected a last row \"everything else\""),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
