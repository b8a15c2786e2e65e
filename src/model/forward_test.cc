// The names of arithmetic and caches, which reports and metrics show. The walk over the layers is
// tested with every backend.
#include "model/forward.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(BackendNames, AreTheWordsOfTheOptions) {
  EXPECT_EQ(activations_name(Activations::bf16), "bf16");
  EXPECT_EQ(activations_name(Activations::declared), "declared");
  EXPECT_EQ(activations_name(Activations::f32), "f32");
  EXPECT_EQ(activations_words(Activations::declared, InputScales::amax), "declared");
  EXPECT_EQ(activations_words(Activations::declared, InputScales::four_over_six),
            "declared with four-over-six");
  EXPECT_EQ(activations_words(Activations::bf16, InputScales::four_over_six), "bf16");
  EXPECT_EQ(kv_cache_name(KvCache::automatic), "auto");
  EXPECT_EQ(kv_cache_name(KvCache::bf16), "bf16");
  EXPECT_EQ(kv_cache_name(KvCache::fp8), "fp8");
  EXPECT_EQ(state_cache_name(StateCache::bf16), "bf16");
  EXPECT_EQ(state_cache_name(StateCache::f32), "f32");
}

}  // namespace
}  // namespace nibble
