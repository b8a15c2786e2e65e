// The codecs against what compressed-tensors computed once (tests/golden/codec).
#include <gtest/gtest.h>

#include "testing/codec_goldens.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

TEST(Codec, EqualsCompressedTensorsByteForByte) {
  CodecGoldens goldens(NIBBLE_SOURCE_DIR "/tests/golden/codec/compressed_tensors.safetensors");
  for (const std::string& difference : goldens.check()) ADD_FAILURE() << difference;
  EXPECT_EQ(goldens.cases(), 31U);
  EXPECT_GT(goldens.compared(), 40000);
}

}  // namespace
}  // namespace nibble
