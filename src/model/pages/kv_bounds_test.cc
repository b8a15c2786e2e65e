// Bounds of keys and values against what the modules of transformers reach
// (tools/oracle/kv_bounds_golden.py).
#include "model/pages/kv_bounds.h"

#include <gtest/gtest.h>

#include "base/concat.h"
#include "base/file.h"
#include "testing/golden.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

Json golden_bounds(const std::string& model) {
  const std::string path = NIBBLE_SOURCE_DIR "/tests/golden/kv/bounds.json";
  return *parse_json(read_text_file(path, uint64_t{1} << 16).value(), path).value().find(model);
}

class KvBoundsTest : public testing::TestWithParam<std::string> {
 protected:
  const Golden model_ = load_golden(concat("model/", GetParam()));
  const Json golden_ = golden_bounds(GetParam());

  void expect_reached(const KvBound& bound, const char* side, double scale) const {
    const Json& reached = *golden_.find("reached")->find(side);
    const double most = reached.find("most")->as_double() / scale;
    EXPECT_NEAR(bound.most, most, 1e-3 * most) << side;
    EXPECT_EQ(bound.layer, concat("layer ", reached.find("layer")->as_int())) << side;
    EXPECT_GT(bound.most * scale, golden_.find("seen")->find(side)->as_double()) << side;
  }
};

TEST_P(KvBoundsTest, AreReachedByTheInputsThatMakeThemLargest) {
  const KvBounds bounds = bound_kv(model_.weights, model_.config, {}).value();
  expect_reached(bounds.keys, "keys", 1.0);
  expect_reached(bounds.values, "values", 1.0);
}

TEST_P(KvBoundsTest, AreOfNumbersByTheScalesOfTheirLayers) {
  const auto layers = static_cast<size_t>(model_.config.count(LayerKind::attention));
  const std::vector<KvScale> scales(layers, {.keys = 0.5F, .values = 4.0F});
  const KvBounds bounds = bound_kv(model_.weights, model_.config, scales).value();
  expect_reached(bounds.keys, "keys", 0.5);
  expect_reached(bounds.values, "values", 4.0);
}

INSTANTIATE_TEST_SUITE_P(Models, KvBoundsTest,
                         testing::Values("moe-fused", "dense-tied", "dense-yarn", "plain-moe-yarn"),
                         [](const auto& at) {
                           std::string name = at.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(KvBounds, AreOfTheLayerThatDraftsToo) {
  Golden model = load_golden("model-mtp/moe-fused");
  const KvBounds drafting = bound_kv(model.weights, model.config, {}).value();
  model.config.layers.assign(model.config.layers.size(), LayerKind::delta_net);
  const KvBounds alone = bound_kv(model.weights, model.config, {}).value();
  EXPECT_EQ(alone.keys.layer, "the MTP layer");
  EXPECT_EQ(alone.values.layer, "the MTP layer");
  EXPECT_GE(drafting.keys.most, alone.keys.most);
  EXPECT_GE(drafting.values.most, alone.values.most);
}

}  // namespace
}  // namespace nibble
