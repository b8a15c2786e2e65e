// inspect: every tensor is counted once, under the right kind and scheme; unknown models are shown
// too.
#include "quantize/verify/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

Inspection inspected(const TinyCheckpoint& tiny) {
  const TemporaryFolder root;
  tiny.write(root / "model");
  return inspect_checkpoint(root / "model").value();
}

const InspectRow& row_of(const Inspection& inspection, ModuleKind kind, std::string_view scheme) {
  const auto found = std::ranges::find_if(inspection.rows, [&](const InspectRow& row) {
    return row.kind == kind && row.stored_as == scheme;
  });
  CHECK(found != inspection.rows.end(), module_kind_name(kind), " ", scheme);
  return *found;
}

TEST(Inspect, CountsEveryTensorOnce) {
  for (const TinyCheckpoint& tiny : {TinyCheckpoint::moe(), TinyCheckpoint::nvfp4()}) {
    const Inspection inspection = inspected(tiny);
    int64_t bytes = 0;
    for (const auto& [name, tensor] : tiny.tensors) {
      bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    EXPECT_EQ(inspection.bytes, bytes);
    EXPECT_EQ(inspection.tensors.size(), tiny.tensors.size());
  }
  EXPECT_EQ(inspected(TinyCheckpoint::moe()).parameters,
            inspected(TinyCheckpoint::nvfp4()).parameters)
      << "quantizing changes bytes, not parameters";
}

TEST(Inspect, NamesKindsAndSchemes) {
  const Inspection inspection = inspected(TinyCheckpoint::nvfp4());
  const InspectRow& experts = row_of(inspection, ModuleKind::expert, "NVFP4 W4A4");
  EXPECT_EQ(experts.modules, 12);
  EXPECT_EQ(experts.parameters, 12 * 512);
  EXPECT_EQ(experts.bytes, 12 * (512 / 2 + 512 / 16 + 8));
  EXPECT_EQ(experts.shapes, (std::vector<Shape>{{32, 16}, {16, 32}}));
  EXPECT_EQ(row_of(inspection, ModuleKind::attention, "NVFP4 W4A4").modules, 4);
  EXPECT_EQ(row_of(inspection, ModuleKind::shared_expert, "BF16").modules, 6);
  EXPECT_EQ(row_of(inspection, ModuleKind::router, "BF16").modules, 4);
  EXPECT_EQ(row_of(inspection, ModuleKind::delta_net, "BF16").modules, 8);
  EXPECT_EQ(row_of(inspection, ModuleKind::norm, "BF16").modules, 8);
  EXPECT_EQ(row_of(inspection, ModuleKind::mtp, "BF16").modules, 1);
  EXPECT_EQ(row_of(inspection, ModuleKind::vision, "BF16").modules, 2);
  EXPECT_EQ(inspection.quantization, "compressed-tensors, nvfp4-pack-quantized");
}

TEST(Inspect, BytesAndParametersOfAModuleWithAllItsTensors) {
  const TensorEntry values{.name = "a.weight", .dtype = DType::bf16, .shape = {4, 6}, .bytes = 48};
  const TensorEntry scales{
      .name = "a.weight_scale", .dtype = DType::f32, .shape = {4}, .bytes = 16};
  const TensorEntry bias{.name = "a.bias", .dtype = DType::bf16, .shape = {4}, .bytes = 8};
  const TensorEntry other{.name = "a.k_scale", .dtype = DType::f32, .shape = {1}, .bytes = 4};
  StoredModule module;
  module.values = &values;
  module.scales = &scales;
  module.others = {&bias, &other};
  EXPECT_EQ(module.bytes(), 48 + 16 + 8 + 4);
  EXPECT_EQ(module.parameters(), 24 + 4);
}

TEST(Inspect, ShowsScalesOfTheCache) {
  TinyCheckpoint tiny = TinyCheckpoint::nvfp4();
  EXPECT_EQ(inspected(tiny).cache_scales, "");
  for (const char* scale : {"k_scale", "v_scale"})
    tiny.add_scalar(concat(TinyCheckpoint::kLayers, "1.self_attn.", scale), 0.5F);
  EXPECT_EQ(inspected(tiny).cache_scales,
            "1 k_scale and 1 v_scale; pages have scale 1 unless --kv-scales checkpoint is given");
  tiny.config.find("quantization_config")
      ->set("kv_cache_scheme", parse_json("{\"num_bits\":8}", "").value());
  const Inspection inspection = inspected(tiny);
  EXPECT_EQ(inspection.cache_scales,
            "declared as {\"num_bits\":8}, 1 k_scale and 1 v_scale; pages have scale 1 unless "
            "--kv-scales checkpoint is given");
  EXPECT_NE(inspection_text(inspection).find(inspection.cache_scales), std::string::npos);
}

TEST(Inspect, ActiveParametersCountTopKExpertsAndOneEmbeddingRow) {
  const Inspection inspection = inspected(TinyCheckpoint::moe());
  int64_t expected = 0;
  for (const InspectRow& row : inspection.rows) {
    if (row.kind == ModuleKind::mtp || row.kind == ModuleKind::vision) continue;
    if (row.kind == ModuleKind::embedding) {
      expected += 32;
    } else {
      expected += row.kind == ModuleKind::expert ? row.parameters / 2 : row.parameters;
    }
  }
  EXPECT_EQ(inspection.per_token->parameters, expected);
  EXPECT_EQ(inspection.per_token->bytes, 2 * expected);
}

TEST(Inspect, UnknownModelsAreShownWithANote) {
  TinyCheckpoint tiny = TinyCheckpoint::moe();
  tiny.config.set("architectures", parse_json("[\"LlamaForCausalLM\"]", "test").value());
  const Inspection inspection = inspected(tiny);
  EXPECT_EQ(inspection.architecture, "LlamaForCausalLM");
  EXPECT_FALSE(inspection.per_token.has_value());
  EXPECT_NE(inspection_text(inspection).find("note"), std::string::npos);
}

TEST(Inspect, TextAndJsonSayTheSame) {
  const Inspection inspection = inspected(TinyCheckpoint::nvfp4());
  const std::string text = inspection_text(inspection);
  EXPECT_NE(text.find("2: 1 delta-net, 1 attention"), std::string::npos) << text;
  EXPECT_NE(text.find("experts        NVFP4 W4A4       12"), std::string::npos) << text;
  const Json json = inspection_json(inspection, TensorList::included);
  EXPECT_EQ(json.find("tensors")->as_array().size(), inspection.tensors.size());
  EXPECT_EQ(json.find("bytes")->as_int(), inspection.bytes);
  EXPECT_EQ(inspection_json(inspection, TensorList::left_out).find("tensors"), nullptr);
  EXPECT_EQ(std::ranges::count(tensor_list_text(inspection), '\n'),
            static_cast<int64_t>(inspection.tensors.size()));
}

}  // namespace
}  // namespace nibble
