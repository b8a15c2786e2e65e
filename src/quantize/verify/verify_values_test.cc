// The bytes of one tensor are looked at in every type, in every chunk and by slice.
#include "quantize/verify/verify_values.h"

#include <gtest/gtest.h>

#include <numeric>

#include "quantize/testing/written_modules.h"

namespace nibble {
namespace {

using test::WrittenModules;

constexpr int64_t kChunk = int64_t{1} << 20;

struct Scan {
  ValueFacts facts;
  std::vector<int64_t> chunks;
};

Scan scan(DType dtype, const Shape& shape, const std::string& bytes, ValueRule rule,
          int64_t slices = 1) {
  WrittenModules written;
  written.add_bytes("a", dtype, shape, bytes);
  const VerifySubject subject = written.subject();
  Scan out;
  std::string seen;
  out.facts = scan_values(subject.checkpoint, *subject.checkpoint.find("a"), rule, slices,
                          [&](std::span<const std::byte> chunk) {
                            out.chunks.push_back(std::ssize(chunk));
                            seen.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
                          })
                  .value();
  EXPECT_TRUE(seen == bytes) << "each byte is shown once, in order";
  return out;
}

struct Element {
  DType dtype;
  ValueRule rule;
  std::string sound;       // the largest that is sound, little end first
  std::string bad;         // the least that is not
  std::string minus_zero;  // counts as zero where there are signs
};

std::string little(uint64_t bits, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(bits >> (8 * i) & 255));
  return out;
}

std::vector<Element> elements() {
  const auto of = [](DType dtype, ValueRule rule, size_t bytes, uint64_t sound, uint64_t bad,
                     uint64_t minus_zero) {
    return Element{dtype, rule, little(sound, bytes), little(bad, bytes),
                   little(minus_zero, bytes)};
  };
  using enum ValueRule;
  return {of(DType::bf16, floats, 2, 0xFF7F, 0x7F80, 0x8000),
          of(DType::f16, floats, 2, 0xFBFF, 0x7C00, 0x8000),
          of(DType::f32, floats, 4, 0xFF7FFFFF, 0x7F800000, 0x80000000),
          of(DType::f64, floats, 8, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x8000000000000000),
          of(DType::f8_e4m3, e4m3_values, 1, 0xFE, 0x7F, 0x80),
          of(DType::f8_e4m3, block_scale, 1, 0x7E, 0x7F, 0x00)};
}

/// One element after the first chunk, and one in it.
TEST(VerifyValues, WhatIsNoNumberIsCountedAndTheFirstOneTold) {
  for (const Element& element : elements()) {
    const auto size = std::ssize(element.sound);
    const int64_t count = kChunk / size + 100;
    std::string bytes;
    bytes.reserve(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < count; ++i) bytes += element.sound;
    const auto what = dtype_info(element.dtype).name;
    const auto put = [&](int64_t at) {
      bytes.replace(static_cast<size_t>(at * size), static_cast<size_t>(size), element.bad);
    };
    const Scan sound = scan(element.dtype, {count}, bytes, element.rule);
    EXPECT_EQ(sound.facts.bad, 0) << what;
    EXPECT_EQ(sound.facts.first_bad, -1) << what;
    EXPECT_FALSE(sound.facts.all_zero) << what;
    EXPECT_EQ(sound.chunks, (std::vector<int64_t>{kChunk, 100 * size})) << what;
    put(count - 7);
    put(count - 3);
    const Scan late = scan(element.dtype, {count}, bytes, element.rule);
    EXPECT_EQ(late.facts.bad, 2) << what;
    EXPECT_EQ(late.facts.first_bad, count - 7) << what;
    put(5);
    put(9);
    const Scan early = scan(element.dtype, {count}, bytes, element.rule);
    EXPECT_EQ(early.facts.bad, 4) << what;
    EXPECT_EQ(early.facts.first_bad, 5) << what;
  }
}

TEST(VerifyValues, ZerosOfEitherSignAreZeros) {
  for (const Element& element : elements()) {
    const auto what = dtype_info(element.dtype).name;
    std::string bytes(element.sound.size() * 6, 0);
    bytes.replace(0, element.sound.size(), element.minus_zero);
    EXPECT_TRUE(scan(element.dtype, {6}, bytes, element.rule).facts.all_zero) << what;
    bytes[element.sound.size() * 4] = 1;
    EXPECT_FALSE(scan(element.dtype, {6}, bytes, element.rule).facts.all_zero) << what;
  }
  EXPECT_TRUE(
      scan(DType::u8, {3}, std::string("\x80\x08\x88", 3), ValueRule::nvfp4_codes).facts.all_zero);
  EXPECT_FALSE(
      scan(DType::u8, {3}, std::string("\x80\x08\x80", 3), ValueRule::bytes).facts.all_zero);
  EXPECT_TRUE(scan(DType::u8, {3}, std::string(3, 0), ValueRule::bytes).facts.all_zero);
}

TEST(VerifyValues, CodesAndBlockScalesAreCounted) {
  // Magnitudes 7 in the low half, in the high half, in both and with a sign; 6 and 5 in none.
  const std::string codes("\x07\x70\x77\xFF\x66\x55\x0F\x78", 8);
  EXPECT_EQ(scan(DType::u8, {8}, codes, ValueRule::nvfp4_codes).facts.top_codes, 8);
  const std::string scales("\x00\x10\x5A\x00\x08\x00", 6);
  const ValueFacts facts = scan(DType::f8_e4m3, {6}, scales, ValueRule::block_scale).facts;
  EXPECT_EQ(facts.largest_code, 0x5A);
  EXPECT_EQ(facts.zero_codes, 3);
  EXPECT_EQ(facts.bad, 0);
  const std::string negative("\x10\x81\xFF\x7F", 4);
  const ValueFacts bad = scan(DType::f8_e4m3, {4}, negative, ValueRule::block_scale).facts;
  EXPECT_EQ(bad.bad, 3);
  EXPECT_EQ(bad.first_bad, 1);
}

TEST(VerifyValues, SlicesOfZerosAreNamed) {
  std::string bytes(24, 0);
  bytes[6] = 1;   // slice 1 of four
  bytes[18] = 1;  // slice 3
  const ValueFacts some = scan(DType::bf16, {4, 3}, bytes, ValueRule::floats, 4).facts;
  EXPECT_EQ(some.zero_slices, (std::vector<int64_t>{0, 2}));
  EXPECT_FALSE(some.all_zero);
  const ValueFacts all = scan(DType::bf16, {4, 3}, std::string(24, 0), ValueRule::floats, 4).facts;
  EXPECT_EQ(all.zero_slices, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(all.all_zero);
  const ValueFacts one = scan(DType::bf16, {4, 3}, std::string(24, 0), ValueRule::floats, 1).facts;
  EXPECT_TRUE(one.zero_slices.empty()) << "a tensor that is no stack has no slices";
  bytes[7] = static_cast<char>(0x7F);
  bytes[6] = static_cast<char>(0x80);
  const ValueFacts bad = scan(DType::bf16, {4, 3}, bytes, ValueRule::floats, 4).facts;
  EXPECT_EQ(bad.bad, 1);
  EXPECT_EQ(bad.first_bad, 3);
}

}  // namespace
}  // namespace nibble
