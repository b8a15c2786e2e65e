// The formats of 4 bits against numpy (tools/oracle/kv_centroids.py and kv_lines_golden.py), and
// what their definitions promise: norms that are kept, queries that meet rotated keys, errors.
#include "model/kv_four_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

constexpr KvFormat kTurboquant = KvFormat::turboquant_4bit_nc;

Json golden(const std::string& name) {
  const std::string path = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/kv/" + name;
  return parse_json(read_text_file(path, 1 << 20).value(), path).value();
}
std::vector<float> numbers(const Json& list) {
  std::vector<float> out;
  for (const Json& x : list.as_array()) out.push_back(static_cast<float>(x.as_double()));
  return out;
}

TEST(KvFourBitsTest, CentroidsAreThoseOfTheirDefinition) {
  const Json all = golden("centroids.json");
  const std::vector<float> kept = numbers(*all.find("bf16"));
  ASSERT_EQ(kept.size(), 16U);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(kKvCentroids[i], kept[i]);
    EXPECT_EQ(kKvCentroids[15 - i], -kKvCentroids[i]);
  }
  EXPECT_LT(all.find("distortion_bf16")->as_double(),
            1.0003 * all.find("distortion_exact")->as_double());
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[static_cast<int>(b) >> shift & 15];
  return out;
}

void expect_line(const Json& entry, const char* kind, KvFormat format, KvSide side) {
  const std::vector<float> line = numbers(*entry.find("line"));
  const Json& wanted = *entry.find(kind);
  const auto size = static_cast<int64_t>(line.size());
  std::vector<std::byte> bytes(static_cast<size_t>(kv_line_bytes(format, side, size)));
  const auto codes = static_cast<size_t>(kv_code_bytes(format, size));
  kv_store(format, side, line, {.codes = bytes.data(), .scales = bytes.data() + codes});
  const std::string name = entry.find("name")->as_string() + ", " + kind;
  EXPECT_EQ(hex(std::span(bytes).first(codes)), wanted.find("codes")->as_string()) << name;
  EXPECT_EQ(hex(std::span(bytes).subspan(codes)), wanted.find("scales")->as_string()) << name;
  std::vector<float> read(line.size());
  kv_keep(format, side, line, read.data());
  const std::vector<float> read_wanted = numbers(*wanted.find("read"));
  for (size_t i = 0; i < read.size(); ++i)
    EXPECT_FLOAT_EQ(read[i], read_wanted[i]) << name << " at " << i;
}

TEST(KvFourBitsTest, LinesEqualNumpy) {
  const Json all = golden("lines.json");
  ASSERT_EQ(all.as_array().size(), 12U);
  for (const Json& entry : all.as_array()) {
    expect_line(entry, "turboquant key", kTurboquant, KvSide::keys);
    expect_line(entry, "turboquant value", kTurboquant, KvSide::values);
    expect_line(entry, "nvfp4", KvFormat::nvfp4, KvSide::keys);
    expect_line(entry, "nvfp4", KvFormat::nvfp4, KvSide::values);
  }
}

std::vector<float> normal_line(std::mt19937& engine, size_t size) {
  std::normal_distribution<float> draw;
  std::vector<float> line(size);
  for (float& x : line) x = draw(engine);
  return line;
}
double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
std::vector<float> kept(KvFormat format, KvSide side, std::vector<float> line) {
  kv_keep(format, side, line, line.data());
  return line;
}

TEST(KvFourBitsTest, KeysKeepTheirNormAndMeetTurnedQueries) {
  std::mt19937 engine(1);
  for (const size_t size : {16, 64, 256})
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> key = normal_line(engine, size);
      const std::vector<float> read = kept(kTurboquant, KvSide::keys, key);
      const double norm = std::sqrt(dot(key, key));
      EXPECT_NEAR(std::sqrt(dot(read, read)), norm, 6e-4 * norm);  // F16
      std::vector<float> query = key;
      kv_turn_query(kTurboquant, query);
      EXPECT_NEAR(dot(query, query), dot(key, key), 1e-4 * dot(key, key));
      EXPECT_GT(dot(query, read), 0.97 * dot(key, key)) << size;
    }
}

/// One number that is far larger than the others costs a rotated key little, and NVFP4 the group
/// that it is in.
TEST(KvFourBitsTest, ErrorsAreThoseOfTheFormats) {
  std::mt19937 engine(2);
  double turboquant = 0.0, uniform = 0.0, nvfp4 = 0.0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> line = normal_line(engine, 256);
    const auto error = [&](const std::vector<float>& read, std::vector<float> wanted) {
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] -= read[i];
      return dot(wanted, wanted) / dot(line, line) / kRounds;
    };
    std::vector<float> turned = line;
    kv_turn_query(kTurboquant, turned);
    turboquant += error(kept(kTurboquant, KvSide::keys, line), turned);
    uniform += error(kept(kTurboquant, KvSide::values, line), line);
    nvfp4 += error(kept(KvFormat::nvfp4, KvSide::values, line), line);
  }
  EXPECT_NEAR(turboquant, 0.0095, 0.0004);  // the distortion of 16 Lloyd-Max levels
  EXPECT_NEAR(uniform, 0.0113, 0.0015);     // (range / 15)^2 / 12, a range of 5.6 deviations
  EXPECT_NEAR(nvfp4, 0.0090, 0.0006);
}

}  // namespace
}  // namespace nibble
