// Scales of keys and values from checkpoints of both dialects, and those that are refused.
#include "model/pages/kv_scales.h"

#include <gtest/gtest.h>

#include <limits>

#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

class KvScalesTest : public testing::Test {
 protected:
  /// Reads a tiny checkpoint with these tensors, whose layer 1 is the only one of attention.
  Result<std::vector<KvScale>> read(const std::vector<std::pair<std::string, float>>& scalars) {
    TinyCheckpoint tiny = TinyCheckpoint::moe();
    for (const auto& [name, value] : scalars) tiny.add_scalar(name, value);
    return read(tiny);
  }
  Result<std::vector<KvScale>> read(const TinyCheckpoint& tiny) {
    const auto folder = folder_.path() / concat("model", ++count_);
    tiny.write(folder);
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    return read_kv_scales(checkpoint, ModelConfig::parse(checkpoint.config()).value());
  }
  static std::string of_layer(const std::string& name) {
    return concat(TinyCheckpoint::kLayers, "1.self_attn.", name);
  }
  std::string refusal(const std::vector<std::pair<std::string, float>>& scalars) {
    const auto scales = read(scalars);
    return scales.ok() ? "" : scales.error().message;
  }

 private:
  TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(KvScalesTest, OfBothDialects) {
  for (const auto& [key, value] :
       {std::pair("k_scale", "v_scale"), std::pair("k_proj.k_scale", "v_proj.v_scale")}) {
    const auto scales = read({{of_layer(key), 0.25F},
                              {of_layer(value), 0.5F},
                              {"mtp.layers.1.self_attn.k_scale", 9.0F}})
                            .value();
    ASSERT_EQ(scales.size(), 1U);
    EXPECT_EQ(scales[0].keys, 0.25F);
    EXPECT_EQ(scales[0].values, 0.5F);
  }
}

TEST_F(KvScalesTest, RefusesWhatCannotBeUsed) {
  EXPECT_NE(refusal({}).find("none of layer 1"), std::string::npos);
  EXPECT_NE(refusal({{of_layer("k_scale"), 0.5F}}).find(".v_scale"), std::string::npos);
  for (const float bad : {0.0F, -0.5F, 1e-6F, 1e6F, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()})
    EXPECT_NE(refusal({{of_layer("k_scale"), bad}, {of_layer("v_scale"), 0.5F}})
                  .find("a cache scale from"),
              std::string::npos)
        << bad;
  TinyCheckpoint tiny = TinyCheckpoint::moe();
  tiny.add(of_layer("k_scale"), {2});
  const auto of_heads = read(tiny);
  ASSERT_FALSE(of_heads.ok());
  EXPECT_NE(of_heads.error().message.find("one floating point number"), std::string::npos);
}

}  // namespace
}  // namespace nibble
