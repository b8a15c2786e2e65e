// Tests where the characters that a person sees end, and their columns.
#include "text/clusters.h"

#include <gtest/gtest.h>

#include <string>

namespace nibble {
namespace {

/// Each cluster's bytes and columns: "a:1 b:1".
std::string shown(std::string_view text) {
  std::string made;
  for (const Cluster& cluster : clusters_of(text))
    made += (made.empty() ? "" : " ") + std::string(cluster.text) + ":" +
            std::to_string(cluster.columns);
  return made;
}

TEST(Clusters, AreWhatAPersonSees) {
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("ab"), "a:1 b:1");
  EXPECT_EQ(shown("日本"), "日:2 本:2");
  EXPECT_EQ(shown("e\u0301x"), "e\u0301:1 x:1");
  EXPECT_EQ(shown("각"), "각:2");                      // one syllable
  EXPECT_EQ(shown("\u1100\u1161"), "\u1100\u1161:2");  // of its parts
  EXPECT_EQ(shown("👩\u200D👧x"), "👩\u200D👧:2 x:1");
  EXPECT_EQ(shown("🇩🇪🇫🇷"), "🇩🇪:2 🇫🇷:2");
  EXPECT_EQ(shown("ขึ้น"), "ขึ้:1 น:1");
  EXPECT_EQ(shown("a\nb"), "a:1 \n:0 b:1");
}

TEST(Clusters, BytesThatAreNoUtf8StandAlone) {
  EXPECT_EQ(shown("a\xFF\xFFz"), "a:1 \xFF:1 \xFF:1 z:1");
  EXPECT_EQ(shown("a\xE2\x82"), "a:1 \xE2:1 \x82:1");  // the first two bytes of three
}

}  // namespace
}  // namespace nibble
