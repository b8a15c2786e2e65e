// One block after the other, then the merger.
#include "model/weights/vision_sources.h"

#include "base/check.h"

namespace nibble {
namespace {

struct Namer {
  const std::string& prefix;
  const VisionNaming& naming;

  Result<BiasedSource> linear(const std::string& module, int64_t rows, int64_t cols) const {
    BiasedSource source;
    source.weight = TRY(naming.linear(prefix + module, rows, cols));
    source.bias = TRY(naming.vector(concat(prefix, module, ".bias"), {rows}));
    return source;
  }
  Result<LayerNormSource> norm(const std::string& module, int64_t width) const {
    LayerNormSource source;
    source.weight = TRY(naming.vector(concat(prefix, module, ".weight"), {width}));
    source.bias = TRY(naming.vector(concat(prefix, module, ".bias"), {width}));
    return source;
  }
  Result<BiasedSource> patches(const VisionConfig& v) const {
    const std::string module = prefix + "patch_embed.proj";
    const VectorSource weight = TRY(naming.vector(module + ".weight", patch_shape(v)));
    BiasedSource source;
    source.weight = {
        .module = module, .rows = v.hidden, .cols = v.patch_values(), .values = weight.name};
    source.bias = TRY(naming.vector(module + ".bias", {v.hidden}));
    return source;
  }
  Result<VisionBlockSources> block(const VisionConfig& v, const std::string& name) const {
    VisionBlockSources block;
    block.norm1 = TRY(norm(name + "norm1", v.hidden));
    block.norm2 = TRY(norm(name + "norm2", v.hidden));
    block.qkv = TRY(linear(name + "attn.qkv", 3 * int64_t{v.hidden}, v.hidden));
    block.proj = TRY(linear(name + "attn.proj", v.hidden, v.hidden));
    block.fc1 = TRY(linear(name + "mlp.linear_fc1", v.inner, v.hidden));
    block.fc2 = TRY(linear(name + "mlp.linear_fc2", v.hidden, v.inner));
    return block;
  }
};

}  // namespace

Result<VisionSources> name_vision(const VisionConfig& vision, const std::string& prefix,
                                  const VisionNaming& naming) {
  const Namer namer{.prefix = prefix, .naming = naming};
  VisionSources tower;
  tower.patches = TRY(namer.patches(vision));
  const int64_t table_rows = int64_t{vision.table_side} * vision.table_side;
  tower.positions = TRY(naming.vector(prefix + "pos_embed.weight", {table_rows, vision.hidden}));
  for (int i = 0; i < vision.depth; ++i)
    tower.blocks.push_back(TRY(namer.block(vision, concat("blocks.", i, "."))));
  tower.merger_norm = TRY(namer.norm("merger.norm", vision.hidden));
  const int64_t merged = vision.merged_width();
  tower.merger_fc1 = TRY(namer.linear("merger.linear_fc1", merged, merged));
  tower.merger_fc2 = TRY(namer.linear("merger.linear_fc2", vision.out, merged));
  return tower;
}

VisionSources plain_vision(const VisionConfig& vision) {
  const VisionNaming naming = {
      .linear = [](const std::string& module, int64_t rows, int64_t cols) -> Result<LinearSource> {
        return LinearSource{
            .module = module, .rows = rows, .cols = cols, .values = module + ".weight"};
      },
      .vector = [](const std::string& name, const Shape& shape) -> Result<VectorSource> {
        return VectorSource{.name = name, .shape = shape};
      }};
  return name_vision(vision, "model.visual.", naming).value();
}

}  // namespace nibble
