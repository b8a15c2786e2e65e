// Binding and loading: every dialect of one linear, whole models with one thing wrong.
#include "model/weights/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "checkpoint/checkpoint_writer.h"
#include "model/weights/linear_binding.h"
#include "tensor/float_formats.h"
#include "testing/dequantized.h"
#include "testing/golden.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

struct RawTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;
};

/// `count` elements of a type with a fixed pattern; scales come out positive.
RawTensor pattern(DType dtype, const Shape& shape) {
  RawTensor tensor{.dtype = dtype, .shape = shape};
  tensor.bytes.resize(static_cast<size_t>(dtype_bytes(dtype, shape.count())));
  for (size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] = static_cast<std::byte>(i * 7 % 61 + 1);
  return tensor;
}

RawTensor floats(DType dtype, const Shape& shape, const std::vector<float>& values) {
  RawTensor tensor{.dtype = dtype, .shape = shape};
  for (const float value : values) {
    const uint16_t half = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    const auto* begin = dtype == DType::f32 ? reinterpret_cast<const std::byte*>(&value)
                                            : reinterpret_cast<const std::byte*>(&half);
    tensor.bytes.insert(tensor.bytes.end(), begin, begin + (dtype == DType::f32 ? 4 : 2));
  }
  return tensor;
}

/// Tensors and a config, written out and opened again.
class TestCheckpoint {
 public:
  std::map<std::string, RawTensor> tensors;
  Json config = Json::Object{};

  /// A copy of a golden checkpoint, to be spoilt.
  void copy_golden(const std::string& name) {
    const Golden golden = load_golden(name);
    config = golden.checkpoint->config();
    for (const auto& entry : golden.checkpoint->entries()) {
      RawTensor tensor{.dtype = entry.dtype, .shape = entry.shape};
      tensor.bytes.resize(static_cast<size_t>(entry.bytes));
      golden.checkpoint->read_bytes(entry, 0, tensor.bytes).value();
      tensors[entry.name] = std::move(tensor);
    }
  }

  const Checkpoint& open() {
    std::vector<TensorPlan> plans;
    for (const auto& [name, tensor] : tensors) plans.push_back({name, tensor.dtype, tensor.shape});
    auto writer = CheckpointWriter::create(folder_ / "model", plans).value();
    for (const auto& [name, tensor] : tensors) writer.append(name, tensor.bytes).value();
    writer.finish(config).value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder_ / "model").value());
    return *checkpoint_;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

Json quantization(std::string_view body) {
  return parse_json(concat(R"({"quantization_config":)", body, "}"), "test").value();
}

const Json kFp8Config = quantization(
    R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
    R"("weights":{"num_bits":8,"type":"float"}}}})");
const Json kNvfp4Config = quantization(
    R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
    R"("weights":{"num_bits":4,"type":"float"}}}})");

Result<LinearWeight> bind_and_load(TestCheckpoint& test, int64_t rows, int64_t cols) {
  const Checkpoint& checkpoint = test.open();
  const QuantConfig config = QuantConfig::read(checkpoint).value();
  const LinearSource source =
      TRY(LinearBinder(checkpoint, config).bind({.module = "m", .rows = rows, .cols = cols}));
  return load_linear(checkpoint, source);
}

TEST(LinearBinding, PlainTypes) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    TestCheckpoint test;
    test.tensors["m.weight"] = floats(dtype, {2, 3}, {1, -2, 0.5, 4, 0, -0.25});
    const auto weight = bind_and_load(test, 2, 3).value();
    EXPECT_EQ(weight.scheme, QuantScheme{});
    EXPECT_EQ(dequantized(weight), (std::vector<float>{1, -2, 0.5, 4, 0, -0.25}));
  }
}

TEST(LinearBinding, Fp8ByTheShapeOfItsScales) {
  struct Case {
    const char* name;
    Shape scales;
    WeightFormat format;
    float (*scale_of)(int64_t row, int64_t col);
  };
  // Scale i is 2^i (modulo 8).
  const Case cases[] = {
      {"m.weight_scale", {}, WeightFormat::fp8_tensor, [](int64_t, int64_t) { return 1.0F; }},
      {"m.weight_scale", {1}, WeightFormat::fp8_tensor, [](int64_t, int64_t) { return 1.0F; }},
      {"m.weight_scale",
       {130, 1},
       WeightFormat::fp8_channel,
       [](int64_t row, int64_t) { return static_cast<float>(1 << row % 8); }},
      {"m.weight_scale",
       {130},
       WeightFormat::fp8_channel,
       [](int64_t row, int64_t) { return static_cast<float>(1 << row % 8); }},
      {"m.weight_scale_inv",
       {2, 3},
       WeightFormat::fp8_block,
       [](int64_t row, int64_t col) {
         return static_cast<float>(1 << (row / 128 * 3 + col / 128));
       }},
  };
  for (const auto& one : cases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(concat(one.name, " ", one.scales.text()));
      TestCheckpoint test;
      test.config = kFp8Config;
      test.tensors["m.weight"] = pattern(DType::f8_e4m3, {130, 300});
      std::vector<float> scales;
      for (int64_t i = 0; i < one.scales.count(); ++i)
        scales.push_back(static_cast<float>(1 << i % 8));
      test.tensors[one.name] = floats(dtype, one.scales, scales);
      const auto weight = bind_and_load(test, 130, 300).value();
      EXPECT_EQ(weight.scheme.weights, one.format);
      const auto values = dequantized(weight);
      for (const auto& [row, col] : {std::pair<int64_t, int64_t>{0, 0}, {127, 130}, {129, 299}}) {
        const auto at = static_cast<size_t>(row * 300 + col);
        const auto code = static_cast<uint8_t>(test.tensors["m.weight"].bytes[at]);
        EXPECT_EQ(values[at], e4m3_to_float(code) * one.scale_of(row, col)) << row << " " << col;
      }
    }
}

TEST(LinearBinding, Nvfp4InBothDialects) {
  TestCheckpoint packed;
  packed.config = kNvfp4Config;
  packed.tensors["m.weight_packed"] = pattern(DType::u8, {4, 16});
  packed.tensors["m.weight_scale"] = pattern(DType::f8_e4m3, {4, 2});
  packed.tensors["m.weight_global_scale"] = floats(DType::f32, {1}, {8.0F});
  TestCheckpoint modelopt;
  modelopt.config = quantization(R"({"quant_method":"modelopt","quant_algo":"W4A16_NVFP4"})");
  modelopt.tensors["m.weight"] = packed.tensors["m.weight_packed"];
  modelopt.tensors["m.weight_scale"] = packed.tensors["m.weight_scale"];
  modelopt.tensors["m.weight_scale_2"] = floats(DType::f32, {}, {0.125F});
  modelopt.tensors["m.input_scale"] = floats(DType::f32, {}, {0.5F});  // present, not used
  const auto a = bind_and_load(packed, 4, 32).value();
  const auto b = bind_and_load(modelopt, 4, 32).value();
  EXPECT_EQ(a.global_scale.direction, GlobalScale::Direction::divide);
  EXPECT_EQ(b.global_scale.direction, GlobalScale::Direction::multiply);
  EXPECT_EQ(a.scheme, (QuantScheme{WeightFormat::nvfp4, ActivationFormat::high}));
  EXPECT_EQ(b.scheme, a.scheme);
  EXPECT_EQ(dequantized(a), dequantized(b));
  const auto& codes = packed.tensors["m.weight_packed"].bytes;
  const auto scale = static_cast<uint8_t>(packed.tensors["m.weight_scale"].bytes[5]);
  EXPECT_EQ(dequantized(a)[2 * 32 + 17],  // row 2, column 17: high nibble of byte 8
            e2m1_to_float(static_cast<uint8_t>(codes[2 * 16 + 8]) >> 4) * e4m3_to_float(scale) / 8);
}

TEST(LinearBinding, StaticInputScales) {
  TestCheckpoint test;
  test.config = quantization(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})");
  test.tensors["m.weight"] = pattern(DType::u8, {4, 16});
  test.tensors["m.weight_scale"] = pattern(DType::f8_e4m3, {4, 2});
  test.tensors["m.weight_scale_2"] = floats(DType::f32, {}, {0.125F});
  test.tensors["m.input_scale"] = floats(DType::f32, {}, {0.5F});
  const auto weight = bind_and_load(test, 4, 32).value();
  EXPECT_EQ(weight.scheme.activations, ActivationFormat::nvfp4);
  EXPECT_EQ(weight.input_scale.value, 0.5F);
  EXPECT_EQ(weight.input_scale.direction, GlobalScale::Direction::multiply);
}

struct BadLinear {
  std::string_view name;
  void (*spoil)(TestCheckpoint&);
  std::string_view message;
};

/// Starts from a sound NVFP4 linear [4, 32] in the compressed-tensors dialect.
const BadLinear kBadLinears[] = {
    {"no weight at all", [](TestCheckpoint& t) { t.tensors.erase("m.weight_packed"); },
     "found only m.weight_global_scale F32[1]"},
    {"packed as int32",
     [](TestCheckpoint& t) {
       t.tensors["m.weight_packed"] = pattern(DType::i32, {4, 4});
     },
     "m.weight_packed"},
    {"packed too wide",
     [](TestCheckpoint& t) {
       t.tensors["m.weight_packed"] = pattern(DType::u8, {4, 32});
     },
     "[4, 16]"},
    {"no scales", [](TestCheckpoint& t) { t.tensors.erase("m.weight_scale"); }, "m.weight_scale"},
    {"scales of another group",
     [](TestCheckpoint& t) {
       t.tensors["m.weight_scale"] = pattern(DType::f8_e4m3, {4, 1});
     },
     "[4, 2]"},
    {"no global scale", [](TestCheckpoint& t) { t.tensors.erase("m.weight_global_scale"); },
     "m.weight_global_scale"},
    {"a global scale of zero",
     [](TestCheckpoint& t) { t.tensors["m.weight_global_scale"] = floats(DType::f32, {1}, {0}); },
     "expected a positive scale, found 0"},
    {"a global scale that is no number",
     [](TestCheckpoint& t) { t.tensors["m.weight_global_scale"] = floats(DType::f32, {1}, {NAN}); },
     "expected a positive scale, found nan"},
    {"a zero point",
     [](TestCheckpoint& t) {
       t.tensors["m.weight_zero_point"] = pattern(DType::i8, {4, 2});
     },
     "m.weight_zero_point"},
    {"a bias", [](TestCheckpoint& t) { t.tensors["m.bias"] = floats(DType::f32, {1}, {1}); },
     "m.bias"},
    {"AWQ scales",
     [](TestCheckpoint& t) { t.tensors["m.pre_quant_scale"] = floats(DType::f32, {1}, {1}); },
     "m.pre_quant_scale"},
    {"nothing declared", [](TestCheckpoint& t) { t.config = Json::Object{}; },
     "expected a quantization_config in config.json, found none for its 4-bit tensors"},
    {"declared as FP8", [](TestCheckpoint& t) { t.config = kFp8Config; },
     "expected 8 bits as in config.json: quantization_config.config_groups.g.weights, found 4-bit"},
    {"declared as ignored",
     [](TestCheckpoint& t) {
       t.config.find("quantization_config")->set("ignore", Json::Array{"m"});
     },
     "expected its scheme in quantization_config"},
    {"4-bit activations without their scale",
     [](TestCheckpoint& t) {
       t.config = quantization(
           R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
           R"("weights":{"num_bits":4,"type":"float"},"input_activations":{"num_bits":4,)"
           R"("type":"float","strategy":"tensor_group","group_size":16,"dynamic":"local"}}}})");
     },
     "m.input_global_scale"},
    {"FP8 without scales",
     [](TestCheckpoint& t) {
       t.tensors.clear();
       t.tensors["m.weight"] = pattern(DType::f8_e4m3, {4, 32});
     },
     "weight_scale or weight_scale_inv"},
    {"FP8 with scales of no known shape",
     [](TestCheckpoint& t) {
       t.tensors.clear();
       t.config = kFp8Config;
       t.tensors["m.weight"] = pattern(DType::f8_e4m3, {4, 32});
       t.tensors["m.weight_scale"] = floats(DType::f32, {2, 2}, {1, 1, 1, 1});
     },
     "[1], [4, 1] or [1, 1] scales for [4, 32], found [2, 2]"},
    {"integers",
     [](TestCheckpoint& t) {
       t.tensors.clear();
       t.tensors["m.weight"] = pattern(DType::i8, {4, 32});
     },
     "m.weight"},
};

TEST(LinearBinding, BadLinearsAreRefusedByName) {
  for (const auto& bad : kBadLinears) {
    SCOPED_TRACE(bad.name);
    TestCheckpoint test;
    test.config = kNvfp4Config;
    test.tensors["m.weight_packed"] = pattern(DType::u8, {4, 16});
    test.tensors["m.weight_scale"] = pattern(DType::f8_e4m3, {4, 2});
    test.tensors["m.weight_global_scale"] = floats(DType::f32, {1}, {8.0F});
    bad.spoil(test);
    const auto result = bind_and_load(test, 4, 32);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(bad.message), std::string::npos)
        << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
}

struct BadModel {
  std::string_view name;
  const char* base;
  void (*spoil)(TestCheckpoint&);
  std::string_view message;
};

const std::string kFused = "model.language_model.layers.0.mlp.experts.";

const BadModel kBadModels[] = {
    {"no decay", "model/moe-fused",
     [](TestCheckpoint& t) { t.tensors.erase("model.language_model.layers.1.linear_attn.A_log"); },
     "model.language_model.layers.1.linear_attn.A_log"},
    {"norm of another width", "model/moe-fused",
     [](TestCheckpoint& t) {
       t.tensors["model.language_model.layers.2.input_layernorm.weight"] =
           pattern(DType::bf16, {47});
     },
     "[48], found BF16 [47]"},
    {"half of the fused experts", "model/moe-fused",
     [](TestCheckpoint& t) { t.tensors.erase(kFused + "down_proj"); }, "experts.down_proj"},
    {"no experts", "model/moe-fused",
     [](TestCheckpoint& t) {
       t.tensors.erase(kFused + "down_proj");
       t.tensors.erase(kFused + "gate_up_proj");
     },
     "gate_up_proj and down_proj (fused) or 0.gate_proj.weight"},
    {"experts in both layouts", "model/moe-fused",
     [](TestCheckpoint& t) {
       t.tensors[kFused + "0.gate_proj.weight"] = pattern(DType::bf16, {20, 48});
     },
     "found both"},
    {"one expert short", "model/moe-separate",
     [](TestCheckpoint& t) {
       t.tensors.erase("model.language_model.layers.3.mlp.experts.4.up_proj.weight");
     },
     "model.language_model.layers.3.mlp.experts.4.up_proj.weight"},
    {"an untied head that is missing", "model/dense-yarn",
     [](TestCheckpoint& t) { t.tensors.erase("lm_head.weight"); }, "lm_head.weight"},
    {"queries without their gates", "model/dense-yarn",
     [](TestCheckpoint& t) {
       t.tensors["model.language_model.layers.0.self_attn.q_proj.weight"] =
           pattern(DType::f16, {144, 44});
     },
     "[288, 44]"},
    {"names of another family", "model/plain-moe",
     [](TestCheckpoint& t) {
       auto node = t.tensors.extract("model.norm.weight");
       node.key() = "transformer.norm.weight";
       t.tensors.insert(std::move(node));
     },
     "model.norm.weight"},
};

TEST(Weights, BadModelsAreRefusedByName) {
  for (const auto& bad : kBadModels) {
    SCOPED_TRACE(bad.name);
    TestCheckpoint test;
    test.copy_golden(bad.base);
    bad.spoil(test);
    const Checkpoint& checkpoint = test.open();
    const ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
    const auto weights = Weights::bind(checkpoint, config);
    ASSERT_FALSE(weights);
    EXPECT_NE(weights.error().message.find(bad.message), std::string::npos)
        << weights.error().message;
  }
}

const BadModel kBadMtp[] = {
    {"no MTP tensor at all", "model-mtp/moe-fused",
     [](TestCheckpoint& t) {
       std::erase_if(t.tensors,
                     [](const auto& tensor) { return tensor.first.starts_with("mtp."); });
     },
     "mtp.pre_fc_norm_embedding.weight"},
    {"a norm is missing", "model-mtp/moe-fused",
     [](TestCheckpoint& t) { t.tensors.erase("mtp.norm.weight"); }, "mtp.norm.weight"},
    {"fc of the hidden row alone", "model-mtp/moe-fused",
     [](TestCheckpoint& t) {
       t.tensors["mtp.fc.weight"] = pattern(DType::bf16, {48, 48});
     },
     "\"mtp.fc.weight\" does not fit the model: expected BF16 or F32 or F16 [48, 96], found BF16 "
     "[48, 48]"},
    {"one expert short", "model-mtp/moe-separate",
     [](TestCheckpoint& t) { t.tensors.erase("mtp.layers.0.mlp.experts.4.down_proj.weight"); },
     "mtp.layers.0.mlp.experts.4.down_proj.weight"},
    {"a dense MLP of another width", "model-mtp/dense-positions",
     [](TestCheckpoint& t) {
       t.tensors["mtp.layers.0.mlp.up_proj.weight"] = pattern(DType::bf16, {35, 36});
     },
     "mtp.layers.0.mlp.up_proj.weight"},
};

TEST(Weights, BadMtpLayersAreRefusedByNameWhereTheyAreAskedFor) {
  for (const auto& bad : kBadMtp) {
    SCOPED_TRACE(bad.name);
    TestCheckpoint test;
    test.copy_golden(bad.base);
    bad.spoil(test);
    const Checkpoint& checkpoint = test.open();
    ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
    EXPECT_EQ(config.mtp_layers, 1);
    const auto without = Weights::bind(checkpoint, config);
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_FALSE(without.value().mtp());
    config.draft_layers = 1;
    const auto weights = Weights::bind(checkpoint, config);
    ASSERT_FALSE(weights);
    EXPECT_NE(weights.error().message.find(bad.message), std::string::npos)
        << weights.error().message;
    config.mtp_layers = 2;
    const auto deeper = Weights::bind(checkpoint, config);
    ASSERT_FALSE(deeper);
    EXPECT_NE(deeper.error().message.find("mtp_num_hidden_layers 1, found 2"), std::string::npos);
  }
}

/// The layer is bound as any other: in the formats that the checkpoint declares.
TEST(Weights, MtpMayBeQuantized) {
  TestCheckpoint test;
  test.copy_golden("model-mtp/moe-fused");
  test.tensors.erase("mtp.fc.weight");
  test.tensors["mtp.fc.weight_packed"] = pattern(DType::u8, {48, 48});
  test.tensors["mtp.fc.weight_scale"] = pattern(DType::f8_e4m3, {48, 6});
  test.tensors["mtp.fc.weight_global_scale"] = floats(DType::f32, {1}, {2.0F});
  test.config.set("quantization_config", *quantization(R"({"quant_method":"compressed-tensors",
      "format":"nvfp4-pack-quantized","config_groups":{"group_0":{"targets":["mtp.fc"],
      "weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}}},
      "ignore":[]})")
                                              .find("quantization_config"));
  const Checkpoint& checkpoint = test.open();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  config.draft_layers = 1;
  const auto weights = Weights::bind(checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights.value().mtp()->joined.scheme.weights, WeightFormat::nvfp4);
  EXPECT_EQ(weights.value().mtp()->layer.moe.experts.size(), 6U);
}

TEST(Weights, FusedExpertsAreRowRanges) {
  const Golden golden = load_golden("model/moe-fused");
  const MlpSources& expert = golden.weights.layers()[1].moe.experts[4];
  EXPECT_EQ(expert.gate.row_begin, 4 * 40);
  EXPECT_EQ(expert.up.row_begin, 4 * 40 + 20);
  EXPECT_EQ(expert.down.row_begin, 4 * 48);
  const TensorEntry* entry =
      golden.checkpoint->find("model.language_model.layers.1.mlp.experts.gate_up_proj");
  const Tensor whole = golden.checkpoint->read(*entry).value();
  const LinearWeight up = golden.weights.load(expert.up).value();
  EXPECT_EQ(std::memcmp(up.values.as<uint16_t>(), whole.as<uint16_t>() + (4 * 40 + 20) * 48,
                        20 * 48 * sizeof(uint16_t)),
            0);
}

TEST(Weights, TiedHeadIsTheEmbedding) {
  const Golden tied = load_golden("model/dense-tied");
  EXPECT_EQ(tied.weights.head().values, tied.weights.embedding().values);
  const Golden untied = load_golden("model/dense-yarn");
  EXPECT_EQ(untied.weights.head().values, "lm_head.weight");
}

TEST(Weights, SmallTensorsOfAnyTypeBecomeF32) {
  const Golden golden = load_golden("model/moe-fused");
  const VectorSource& a_log = golden.weights.layers()[0].delta_net.a_log;
  EXPECT_EQ(golden.checkpoint->find(a_log.name)->dtype, DType::f32);
  EXPECT_EQ(golden.weights.load(a_log).value().size(), 4U);
  const VectorSource& norm = golden.weights.layers()[0].input_norm;
  EXPECT_EQ(golden.checkpoint->find(norm.name)->dtype, DType::bf16);
  EXPECT_EQ(golden.weights.load(norm).value().size(), 48U);
}

}  // namespace
}  // namespace nibble
