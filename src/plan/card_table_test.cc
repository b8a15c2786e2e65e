// The card table: every row is whole, names and parts are found, old cards are refused.
#include "plan/card_table.h"

#include <gtest/gtest.h>

#include <set>

namespace nibble {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

TEST(CardTable, EveryRowIsWhole) {
  std::set<std::string_view> names;
  for (const CardRow& card : card_rows()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_FALSE(card.label.empty());
    EXPECT_GE(card.capability, 80) << card.name;
    EXPECT_LT(card.capability, 130) << card.name;
    EXPECT_GT(card.memory_mib, 8192) << card.name;
    EXPECT_LE(card.headless_mib, card.desktop_mib) << card.name;
    EXPECT_LT(card.desktop_mib, card.memory_mib / 10) << card.name;
    EXPECT_GE(card.bandwidth_gbs, 200) << card.name;
    EXPECT_TRUE(card.shared_kib == 99 || card.shared_kib == 163 || card.shared_kib == 227);
    const PlannedCard planned = find_card(card.name).value();
    EXPECT_EQ(planned.memory_bytes + planned.reserved_bytes, card.memory_mib * kMib);
    EXPECT_FALSE(planned.memory_source.empty());
    EXPECT_FALSE(planned.bandwidth_source.empty());
  }
  for (const MigSlice& slice : mig_slices()) {
    EXPECT_TRUE(names.contains(slice.card)) << slice.card;
    const PlannedCard whole = find_card(slice.card).value();
    const PlannedCard part = find_card(concat(slice.card, ":", slice.name)).value();
    EXPECT_LE(part.memory_bytes, whole.memory_bytes * slice.eighths / 8 + kMib) << slice.name;
    EXPECT_DOUBLE_EQ(part.bandwidth_bytes, whole.bandwidth_bytes * slice.eighths / 8);
    EXPECT_EQ(part.capability, whole.capability);
  }
}

TEST(CardTable, FindsNamesPartsAndSizes) {
  EXPECT_EQ(find_card("RTX5090").value().memory_bytes, (32607 - 1024) * kMib);
  EXPECT_EQ(find_card("rtx5090:headless").value().memory_bytes, (32607 - 500) * kMib);
  EXPECT_EQ(find_card("h100:desktop").value().memory_bytes, (81559 - 1024) * kMib);
  EXPECT_EQ(find_card("h200:3g.71gb").value().memory_bytes, 71168 * kMib);
  EXPECT_EQ(find_card("h100-nvl:3g.47gb").value().memory_bytes, 47493 * kMib);
  EXPECT_EQ(find_card("rtx-pro-6000:1g.24gb").value().memory_bytes, 23674 * kMib);
  EXPECT_EQ(find_card("a30:1g.6gb").value().memory_bytes, 5952 * kMib);
  EXPECT_DOUBLE_EQ(find_card("a30:2g.12gb").value().bandwidth_bytes, 933e9 / 2);
  EXPECT_EQ(find_card("a100-80gb:1g.20gb").value().memory_bytes, 19968 * kMib);
  EXPECT_EQ(find_card("h100-pcie:3g.40gb").value().memory_bytes, 40448 * kMib);
  EXPECT_EQ(find_card("gh200:4g.48gb").value().memory_bytes, 47616 * kMib);
  EXPECT_EQ(find_card("gb200:2g.47gb").value().memory_bytes, 46592 * kMib);
  EXPECT_EQ(find_card("dgx-spark").value().memory, CardMemoryKind::unified);
  // 150,109 MB, as planned at 0.95 of a whole H200 (docs/serving.md, "The card").
  EXPECT_NEAR(static_cast<double>(find_card("h200").value().memory_bytes) * 0.95, 142604e6, 1e6);
  EXPECT_EQ(find_card_or_size("--gpu", "24576").value().memory_bytes, 24576 * kMib);
  EXPECT_EQ(find_card_or_size("--gpu", "24G").value().memory_bytes, 24576 * kMib);
  EXPECT_EQ(find_card_or_size("--gpu", "l4").value().capability, 89);
}

/// The totals that CUDA told programs there, in GiB with two digits: 184.31, 267.69, 276.50.
TEST(CardTable, TheLargestCardsHaveWhatProgramsSaw) {
  constexpr double kGib = 1 << 30;
  const auto gib = [](std::string_view card) {
    return static_cast<double>(find_card(card).value().memory_bytes) / kGib;
  };
  EXPECT_NEAR(gib("gb200"), 184.31, 0.005);
  EXPECT_NEAR(gib("b300"), 267.69, 0.005);
  EXPECT_NEAR(gib("gb300"), 276.50, 0.005);
}

TEST(CardTable, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "rtx9999", "0", "-1", "12 G", "G", "999999T", "rtx5090x"}) {
    const auto card = find_card_or_size("--gpu", text);
    ASSERT_FALSE(card.ok()) << text;
    EXPECT_EQ(card.error().code, ErrorCode::invalid_argument) << text;
    EXPECT_NE(card.error().message.find("rtx5090"), std::string::npos) << card.error().message;
    EXPECT_NE(card.error().message.find("--gpu"), std::string::npos) << card.error().message;
  }
  const auto part = find_card_or_size("--gpu", "h200:9g.1gb");
  EXPECT_NE(part.error().message.find("3g.71gb"), std::string::npos) << part.error().message;
  EXPECT_EQ(part.error().message.find("1g.5gb"), std::string::npos) << part.error().message;
}

TEST(CardTable, SaysWhyOldCardsAreRefused) {
  for (const char* text : {"v100", "V100", "t4", "rtx2080ti", "p100"}) {
    const auto card = find_card_or_size("--gpu", text);
    ASSERT_FALSE(card.ok()) << text;
    EXPECT_EQ(card.error().code, ErrorCode::unsupported);
    EXPECT_NE(card.error().message.find("8.0 or higher"), std::string::npos);
    EXPECT_NE(card.error().message.find("BF16"), std::string::npos);
  }
  EXPECT_NE(find_card("v100").error().message.find("found 7.0"), std::string::npos);
}

TEST(CardTable, NativeFormatsByCapability) {
  EXPECT_EQ(native_formats(80), "BF16");
  EXPECT_EQ(native_formats(86), "BF16");
  EXPECT_EQ(native_formats(89), "BF16, FP8");
  EXPECT_EQ(native_formats(90), "BF16, FP8");
  EXPECT_EQ(native_formats(100), "BF16, FP8, FP4");
  EXPECT_EQ(native_formats(121), "BF16, FP8, FP4");
}

}  // namespace
}  // namespace nibble
