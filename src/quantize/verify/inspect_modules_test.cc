// Tensors put together into modules by their names, and numbers as people read them.
#include "quantize/verify/inspect_modules.h"

#include <gtest/gtest.h>

#include "quantize/testing/written_modules.h"
#include "quantize/verify/inspect.h"

namespace nibble {
namespace {

TEST(InspectModules, TheKindOfATensorFollowsFromItsName) {
  struct Row {
    const char* name;
    ModuleKind kind;
  };
  const Row kRows[] = {
      {"mtp.fc.weight", ModuleKind::mtp},
      {"mtp.layers.0.mlp.experts.0.up_proj.weight", ModuleKind::mtp},
      {"model.mtp.fc.weight", ModuleKind::mtp},
      {"model.visual.blocks.0.norm.weight", ModuleKind::vision},
      {"vision_tower.blocks.0.mlp.up_proj.weight", ModuleKind::vision},
      {"model.layers.0.mlp.experts.gate_up_proj", ModuleKind::expert},
      {"model.layers.0.mlp.shared_expert.up_proj.weight", ModuleKind::shared_expert},
      {"model.layers.0.mlp.shared_expert_gate.weight", ModuleKind::router},
      {"model.layers.0.mlp.gate.weight", ModuleKind::router},
      {"model.layers.0.mlp.gate_proj.weight", ModuleKind::dense_mlp},
      {"model.embed_tokens.weight", ModuleKind::embedding},
      {"lm_head.weight", ModuleKind::head},
      {"model.norm.weight", ModuleKind::norm},
      {"model.layers.0.self_attn.q_norm.weight", ModuleKind::norm},
      {"model.layers.0.linear_attn.norm.weight", ModuleKind::norm},
      {"model.layers.0.self_attn.q_proj.weight", ModuleKind::attention},
      {"model.layers.0.linear_attn.A_log", ModuleKind::delta_net},
      {"model.stray.weight", ModuleKind::other},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(module_kind_name(module_kind(row.name)), module_kind_name(row.kind)) << row.name;
}

/// "values scales global input others scheme" of the one module that the tensors are.
std::string described(const std::vector<TensorPlan>& tensors) {
  test::WrittenModules written;
  for (const TensorPlan& tensor : tensors)
    written.add_bytes(
        tensor.name, tensor.dtype, tensor.shape,
        std::string(static_cast<size_t>(dtype_bytes(tensor.dtype, tensor.shape.count())), 0));
  const VerifySubject subject = written.subject();
  if (subject.modules.size() != 1) return concat(subject.modules.size(), " modules");
  const StoredModule& module = subject.modules.front();
  std::string out = module.name;
  for (const TensorEntry* entry :
       {module.values, module.scales, module.global_scale, module.input_scale})
    out += entry == nullptr ? " -" : concat(" ", entry->name.substr(module.name.size()));
  for (const TensorEntry* entry : module.others)
    out += concat(" +", entry->name.substr(module.name.size()));
  return concat(out, " ", scheme_text(module), " ", module.shape().text(),
                module.is_linear() ? " linear" : "",
                module.direction == GlobalScale::Direction::divide ? " divide" : "");
}

TEST(InspectModules, TensorsOfBothDialectsFindTheirPlaces) {
  const auto f32 = [](const char* name, const Shape& shape) {
    return TensorPlan{name, DType::f32, shape};
  };
  const auto fp8 = [](const char* name, const Shape& shape) {
    return TensorPlan{name, DType::f8_e4m3, shape};
  };
  EXPECT_EQ(described({{"a.weight_packed", DType::u8, {4, 8}},
                       fp8("a.weight_scale", {4, 1}),
                       f32("a.weight_global_scale", {1}),
                       f32("a.input_global_scale", {1}),
                       f32("a.bias", {4})}),
            "a .weight_packed .weight_scale .weight_global_scale .input_global_scale +.bias NVFP4 "
            "W4A16 [4, 16] linear divide");
  EXPECT_EQ(described({{"a.weight", DType::u8, {4, 8}},
                       fp8("a.weight_scale", {4, 1}),
                       f32("a.weight_scale_2", {1}),
                       f32("a.input_scale", {1}),
                       f32("a.pre_quant_scale", {4})}),
            "a .weight .weight_scale .weight_scale_2 .input_scale +.pre_quant_scale NVFP4 W4A16 "
            "[4, 16] linear");
  EXPECT_EQ(described({fp8("a.weight", {4, 8}), f32("a.weight_scale", {1})}),
            "a .weight .weight_scale - - FP8 tensor W8A16 [4, 8] linear");
  EXPECT_EQ(described({fp8("a.weight", {4, 8})}), "a .weight - - - FP8 tensor W8A16 [4, 8] linear");
  EXPECT_EQ(described({fp8("a.weight", {4, 8}), f32("a.weight_scale", {4, 1})}),
            "a .weight .weight_scale - - FP8 channel W8A16 [4, 8] linear");
  EXPECT_EQ(described({fp8("a.weight", {256, 256}), f32("a.weight_scale_inv", {2, 2})}),
            "a .weight .weight_scale_inv - - FP8 128x128 W8A16 [256, 256] linear");
  EXPECT_EQ(described({{"a.weight", DType::u8, {4, 8}}}), "a .weight - - - U8 [4, 8] linear");
  EXPECT_EQ(described({{"a.weight", DType::bf16, {4}}}), "a .weight - - - BF16 [4]");
  EXPECT_EQ(described({{"a", DType::bf16, {4, 2}}}), "a  - - - BF16 [4, 2] linear");
  EXPECT_EQ(described({{"a.pos_embed.weight", DType::bf16, {4, 2}}}),
            "a.pos_embed .weight - - - BF16 [4, 2]");
  EXPECT_EQ(described({{"a.embed.weight", DType::bf16, {4, 2}}}),
            "a.embed .weight - - - BF16 [4, 2]");
  EXPECT_EQ(described({{"a.gate_up_proj", DType::bf16, {2, 4, 2}}}),
            "a.gate_up_proj  - - - BF16 [2, 4, 2] linear");
  EXPECT_EQ(described({{"a.down_proj", DType::bf16, {2, 4, 2}}}),
            "a.down_proj  - - - BF16 [2, 4, 2] linear");
  EXPECT_EQ(described({{"a.conv1d.weight", DType::bf16, {2, 1, 2}}}),
            "a.conv1d .weight - - - BF16 [2, 1, 2]");
  EXPECT_EQ(described({{"embed_tokens.weight", DType::bf16, {4, 2}}}),
            "embed_tokens .weight - - - BF16 [4, 2]");
  EXPECT_EQ(described({fp8("embed_tokens.weight", {4, 2}), f32("embed_tokens.weight_scale", {1})}),
            "embed_tokens .weight .weight_scale - - FP8 tensor W8A16 [4, 2] linear");
  EXPECT_EQ(described({f32("a.k_scale", {1}), f32("a.v_scale", {1}), f32("a.weight_scale", {1})}),
            "a - .weight_scale - - +.k_scale +.v_scale ? []");
  EXPECT_EQ(described({f32("a.weight_g_idx", {1}), f32("a.weight_zero_point", {1}),
                       f32("a.input_zero_point", {1})}),
            "a - - - - +.input_zero_point +.weight_g_idx +.weight_zero_point ? []");
  // A second tensor for a place that is taken is one of the others.
  EXPECT_EQ(described({f32("a.weight", {4}), f32("a.weight_packed", {4})}),
            "a .weight - - - +.weight_packed F32 [4]");
}

TEST(InspectText, LargeNumbersHaveUnits) {
  Inspection inspection{.folder = "F", .architecture = "A"};
  const auto row = [&](int64_t parameters, int64_t bytes, size_t shapes) {
    InspectRow added{.kind = ModuleKind::head,
                     .stored_as = "BF16",
                     .modules = 1,
                     .parameters = parameters,
                     .bytes = bytes};
    for (size_t i = 0; i < shapes; ++i) added.shapes.push_back({static_cast<int64_t>(i + 1), 2});
    inspection.rows.push_back(std::move(added));
  };
  row(999, 1'000, 1);
  row(1'949, 999'949, 2);
  row(1'000'000, 12'345'678, 3);
  row(1'000'000'000, 35'954'000'000, 4);
  row(0, 16, 0);
  inspection.parameters = 1'001'002'948;
  inspection.bytes = 36'000'000'000;
  inspection.stored_elements = inspection.parameters;
  EXPECT_EQ(inspection_text(inspection),
            "F: A\n\n"
            "kind  stored as  modules  parameters     bytes     bits  shapes\n"
            "head  BF16             1        999     1.0 kB     8.01  [1, 2]\n"
            "head  BF16             1       1.9 k  999.9 kB  4104.46  [1, 2] [2, 2]\n"
            "head  BF16             1      1.00 M  12.35 MB    98.77  [1, 2] [2, 2] [3, 2]\n"
            "head  BF16             1      1.00 G  35.95 GB   287.63  various\n"
            "head  BF16             1          0       16 B     0.00\n"
            "all                           1.00 G  36.00 GB   287.71\n");
  inspection.quantization = "q";
  inspection.cache_scales = "c";
  inspection.config_trouble = "t";
  inspection.per_token = ActiveCost{.parameters = 3'000'000'000, .bytes = 1'500'000'000};
  inspection.stored_elements = 5'000;
  const std::string text = inspection_text(inspection);
  EXPECT_TRUE(
      text.starts_with("F: A\n"
                       "  quantization  q\n"
                       "  KV cache      c\n"
                       "  note          t\n"
                       "  per token     3.00 G parameters active, 1.50 GB read\n"
                       "  stored        5.0 k elements, what hub pages count: two 4-bit "
                       "weights are one byte, and scales count\n\n"
                       "kind  "))
      << text;
  const Json json = inspection_json(inspection, TensorList::left_out);
  EXPECT_EQ(json.find("per_token")->dump(), R"({"parameters":3000000000,"bytes":1500000000})");
  EXPECT_EQ(json.find("kv_cache")->as_string(), "c");
  EXPECT_EQ(json.find("note")->as_string(), "t");
  EXPECT_EQ(json.find("stored_elements")->as_int(), 5'000);
  EXPECT_EQ(json.find("rows")->as_array()[2].dump(),
            R"({"kind":"head","stored_as":"BF16","modules":1,"parameters":1000000,)"
            R"("bytes":12345678,"bits_per_parameter":98.765424})");
}

}  // namespace
}  // namespace nibble
