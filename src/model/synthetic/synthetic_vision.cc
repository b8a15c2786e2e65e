// One block after the other, then the merger.
#include "model/synthetic/synthetic_vision.h"

#include "model/config/config_section.h"

namespace nibble {
namespace {

struct Sizes {
  int64_t depth = 0, width = 0, inner = 0, channels = 0, patch = 0;
  int64_t frames = 0, merge = 0, positions = 0, out = 0;
};

Result<Sizes> sizes_of(const ConfigSection& vision) {
  constexpr IntRange kAny = {1, 1 << 20};
  const Json* deep = vision.find("deepstack_visual_indexes");
  if (deep != nullptr && deep->is_array() && !deep->as_array().empty())
    return make_error(ErrorCode::unsupported, {.what = vision.name("deepstack_visual_indexes"),
                                               .expected = "none",
                                               .found = deep->dump()});
  Sizes sizes;
  sizes.depth = TRY(vision.integer("depth", {1, 1024}));
  sizes.width = TRY(vision.integer("hidden_size", kAny));
  sizes.inner = TRY(vision.integer("intermediate_size", kAny));
  sizes.channels = TRY(vision.integer("in_channels", {1, 64}));
  sizes.patch = TRY(vision.integer("patch_size", {1, 1024}));
  sizes.frames = TRY(vision.integer("temporal_patch_size", {1, 64}));
  sizes.merge = TRY(vision.integer("spatial_merge_size", {1, 64}));
  sizes.positions = TRY(vision.integer("num_position_embeddings", kAny));
  sizes.out = TRY(vision.integer("out_hidden_size", kAny));
  return sizes;
}

class Tower {
 public:
  void add(const std::string& name, const Shape& shape) {
    tensors_.push_back({concat("model.visual.", name), DType::bf16, shape});
  }
  void linear(const std::string& name, int64_t rows, int64_t cols) {
    add(name + ".weight", {rows, cols});
    add(name + ".bias", {rows});
  }
  void norm(const std::string& name, int64_t width) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  }
  std::vector<TensorPlan> take() { return std::move(tensors_); }

 private:
  std::vector<TensorPlan> tensors_;
};

}  // namespace

Result<std::vector<TensorPlan>> synthetic_vision(const Json& config) {
  const ConfigSection root(config, "config.json: ");
  if (!root.has("vision_config")) return std::vector<TensorPlan>();
  const ConfigSection vision = TRY(root.section("vision_config"));
  const Sizes s = TRY(sizes_of(vision));
  Tower tower;
  tower.add("patch_embed.proj.weight", {s.width, s.channels, s.frames, s.patch, s.patch});
  tower.add("patch_embed.proj.bias", {s.width});
  tower.add("pos_embed.weight", {s.positions, s.width});
  for (int64_t i = 0; i < s.depth; ++i) {
    const std::string block = concat("blocks.", i, ".");
    tower.norm(block + "norm1", s.width);
    tower.norm(block + "norm2", s.width);
    tower.linear(block + "attn.qkv", 3 * s.width, s.width);
    tower.linear(block + "attn.proj", s.width, s.width);
    tower.linear(block + "mlp.linear_fc1", s.inner, s.width);
    tower.linear(block + "mlp.linear_fc2", s.width, s.inner);
  }
  const int64_t merged = s.width * s.merge * s.merge;
  tower.norm("merger.norm", s.width);
  tower.linear("merger.linear_fc1", merged, merged);
  tower.linear("merger.linear_fc2", s.out, merged);
  return tower.take();
}

}  // namespace nibble
