// The tower's tensors under both prefixes that checkpoints have, and each one missing.
#include "model/weights/vision_sources.h"

#include <gtest/gtest.h>

#include "model/weights/weights.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

constexpr VisionConfig kTower = {.depth = 1,
                                 .hidden = 8,
                                 .inner = 12,
                                 .heads = 2,
                                 .patch = 2,
                                 .temporal_patch = 2,
                                 .merge = 2,
                                 .table_side = 3,
                                 .out = 32};

std::map<std::string, Shape> tower_tensors() {
  std::map<std::string, Shape> shapes;
  const VisionSources named = plain_vision(kTower);
  visit_vision(
      named,
      [&](const LinearSource& linear) {
        const bool patches = linear.values == named.patches.weight.values;
        shapes[linear.values] = patches ? patch_shape(kTower) : Shape{linear.rows, linear.cols};
      },
      [&](const VectorSource& vector) { shapes[vector.name] = vector.shape; });
  return shapes;
}

/// A tiny model with these tensors of a tower, bound.
struct BoundTower {
  TemporaryFolder folder;
  std::unique_ptr<Checkpoint> checkpoint;
  Result<Weights> weights;

  explicit BoundTower(const std::map<std::string, Shape>& tower)
      : weights(make_error(ErrorCode::internal, {.what = "not bound"})) {
    TinyCheckpoint tiny = TinyCheckpoint::moe();
    std::erase_if(tiny.tensors, [](const auto& t) { return t.first.starts_with("model.visual."); });
    for (const auto& [name, shape] : tower) tiny.add(name, shape);
    tiny.write(folder / "model");
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder / "model").value());
    ModelConfig config = ModelConfig::parse(checkpoint->config()).value();
    config.vision = kTower;
    weights = Weights::bind(*checkpoint, config);
  }
};

TEST(VisionSources, HaveTheNamesAndShapesOfTheReleases) {
  const auto shapes = tower_tensors();
  EXPECT_EQ(shapes.size(), 3U + 12 + 6);  // model.md 1.2: 333 of 27 blocks
  EXPECT_EQ(shapes.at("model.visual.patch_embed.proj.weight"), (Shape{8, 3, 2, 2, 2}));
  EXPECT_EQ(shapes.at("model.visual.pos_embed.weight"), (Shape{9, 8}));
  EXPECT_EQ(shapes.at("model.visual.blocks.0.attn.qkv.weight"), (Shape{24, 8}));
  EXPECT_EQ(shapes.at("model.visual.blocks.0.mlp.linear_fc2.weight"), (Shape{8, 12}));
  EXPECT_EQ(shapes.at("model.visual.merger.linear_fc2.weight"), (Shape{32, 32}));
}

TEST(VisionSources, BindUnderBothPrefixes) {
  for (const std::string prefix : {"model.visual.", "visual."}) {
    std::map<std::string, Shape> tower;
    for (const auto& [name, shape] : tower_tensors())
      tower[prefix + name.substr(std::string("model.visual.").size())] = shape;
    const BoundTower found(tower);
    ASSERT_TRUE(found.weights.ok()) << found.weights.error().message;
    const Weights& weights = found.weights.value();
    EXPECT_EQ(vision_prefix(*found.checkpoint), prefix);
    const VisionSources& bound = *weights.vision();
    EXPECT_EQ(bound.blocks[0].qkv.bias.name, prefix + "blocks.0.attn.qkv.bias");
    EXPECT_EQ(weights.load(bound.patches.weight).value().values.shape(), (Shape{8, 24}));
  }
}

TEST(VisionSources, EachMissingTensorIsNamed) {
  const auto whole = tower_tensors();
  for (const auto& [name, shape] : whole) {
    auto tower = whole;
    tower.erase(name);
    const BoundTower found(tower);
    ASSERT_FALSE(found.weights.ok()) << name;
    const std::string& message = found.weights.error().message;
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace nibble
