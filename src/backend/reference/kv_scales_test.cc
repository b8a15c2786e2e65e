// Lines of keys and values under the scales of a checkpoint, against numpy
// (tools/oracle/kv_scales_golden.py).
#include <gtest/gtest.h>

#include "backend/reference/caches.h"
#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

std::vector<float> numbers(const Json& list) {
  std::vector<float> out;
  for (const Json& x : list.as_array()) out.push_back(static_cast<float>(x.as_double()));
  return out;
}

TEST(KvScales, ReferenceKeepsWhatNumpyKeeps) {
  const std::string path = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/kv/scales.json";
  const Json golden = parse_json(read_text_file(path, 1 << 20).value(), path).value();
  ModelConfig config;
  config.layers = {LayerKind::attention, LayerKind::attention};
  config.attention.kv_heads = 2;
  config.attention.head_dim = 16;
  int compared = 0;
  for (const Json& entry : golden.find("lines")->as_array()) {
    const auto scale = static_cast<float>(entry.find("scale")->as_double());
    const std::vector<float> line = numbers(*entry.find("line"));
    // Only the second layer's values have it.
    reference::KvPages pages(KvCache::fp8, {{.keys = 7.0F}, {.keys = 7.0F, .values = scale}});
    pages.reserve(config, 1);
    std::vector<float> kept(line.size());
    pages.keep(KvSide::values, 1, line.data(), kept.data());
    EXPECT_EQ(kept, numbers(*entry.find("kept"))) << "scale " << scale;
    pages.keep(KvSide::values, 0, line.data(), kept.data());
    EXPECT_EQ(kept == numbers(*entry.find("kept")), scale == 1.0F);
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

}  // namespace
}  // namespace nibble
