// Conversions both ways and back, and refusals of what the other dialect cannot say.
#include "quantize/convert/convert.h"

#include <gtest/gtest.h>

#include <cstring>

#include "quantize/quantize.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/testing/test_model.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;

void quantize_into(const std::filesystem::path& source, const std::filesystem::path& output,
                   std::string_view recipe_name, Dialect dialect) {
  const Checkpoint checkpoint = Checkpoint::open(source).value();
  const Recipe recipe = load_recipe(recipe_name).value();
  const QuantPlan plan = plan_quantization(checkpoint, recipe, dialect).value();
  quantize(checkpoint, plan, recipe, output, {}).value();
}

Result<ConvertReport> convert_folder(const std::filesystem::path& source, Dialect target,
                                     const std::filesystem::path& output) {
  return convert(TRY(Checkpoint::open(source)), target, output, {});
}

Dialect other(Dialect dialect) {
  return dialect == Dialect::modelopt ? Dialect::compressed_tensors : Dialect::modelopt;
}

TEST(Convert, GivesTheFileThatQuantizeWouldHaveWritten) {
  for (const auto layout : {Layout::fused_experts, Layout::dense})
    for (const auto* recipe : {"w4a16", "w4a4"})
      for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
        const Folder folder;
        test::write_model(folder / "in", layout);
        quantize_into(folder / "in", folder / "here", recipe, dialect);
        quantize_into(folder / "in", folder / "there", recipe, other(dialect));
        const auto report = convert_folder(folder / "here", other(dialect), folder / "converted");
        ASSERT_TRUE(report.ok()) << report.error().message;
        EXPECT_EQ(report.value().inexact_scales, 0);
        ASSERT_TRUE(convert_folder(folder / "converted", dialect, folder / "back").ok());
        for (const char* file :
             {"model-00001-of-00001.safetensors", "model_head.safetensors", "model_mtp.safetensors",
              "model.safetensors.index.json", "config.json", "tokenizer.json"}) {
          EXPECT_EQ(test::file_text(folder / "converted" / file),
                    test::file_text(folder / "there" / file))
              << file;
          EXPECT_EQ(test::file_text(folder / "back" / file),
                    test::file_text(folder / "here" / file))
              << file;
        }
        EXPECT_EQ(std::filesystem::exists(folder / "converted" / "hf_quant_config.json"),
                  dialect == Dialect::compressed_tensors);
      }
}

std::vector<float> decoded(const Weights& weights, const LinearSource& source) {
  const LinearWeight weight = weights.load(source).value();
  std::vector<float> out(static_cast<size_t>(source.rows * source.cols));
  dequantize_rows(weight, 0, source.rows, out.data());
  return out;
}

/// The largest difference between two models' weights, relative to the weight.
double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  const Checkpoint first = Checkpoint::open(a).value(), second = Checkpoint::open(b).value();
  const auto bind = [](const Checkpoint& checkpoint) {
    return Weights::bind(checkpoint, ModelConfig::parse(checkpoint.config()).value()).value();
  };
  const Weights left = bind(first), right = bind(second);
  const auto left_groups = fused_linears(left), right_groups = fused_linears(right);
  double largest = 0;
  for (size_t g = 0; g < left_groups.size(); ++g)
    for (size_t i = 0; i < left_groups[g].size(); ++i) {
      EXPECT_EQ(left_groups[g][i]->scheme, right_groups[g][i]->scheme);
      const auto x = decoded(left, *left_groups[g][i]), y = decoded(right, *right_groups[g][i]);
      for (size_t k = 0; k < x.size(); ++k)
        if (x[k] != y[k])
          largest =
              std::max(largest, static_cast<double>(std::fabs(x[k] - y[k]) / std::fabs(x[k])));
    }
  return largest;
}

// Files that compressed-tensors itself wrote: global scales are not powers of two.
TEST(Convert, FilesOfOtherToolsKeepTheirWeights) {
  const std::filesystem::path goldens = NIBBLE_SOURCE_DIR "/tests/golden/model-quantized";
  for (const auto* name : {"nvfp4-w4a16", "nvfp4-w4a4"}) {
    const Folder folder;
    const auto there = convert_folder(goldens / name, Dialect::modelopt, folder / "there");
    ASSERT_TRUE(there.ok()) << there.error().message;
    EXPECT_GT(there.value().linears, 0);
    ASSERT_TRUE(
        convert_folder(folder / "there", Dialect::compressed_tensors, folder / "back").ok());
    EXPECT_LT(largest_difference(goldens / name, folder / "there"), 3e-7) << name;
    EXPECT_LT(largest_difference(goldens / name, folder / "back"), 3e-7) << name;
  }
}

/// Rewrites a checkpoint, changing tensors or the config on the way.
struct Rewrite {
  std::function<void(std::string& name, std::vector<float>& scale)> scale = {};
  std::function<void(Json& config)> config = {};
  std::vector<std::pair<TensorPlan, std::vector<std::byte>>> more = {};
  std::string drop = {};  // a tensor to leave out
};

void rewrite(const std::filesystem::path& from, const std::filesystem::path& to,
             const Rewrite& change) {
  const Checkpoint checkpoint = Checkpoint::open(from).value();
  std::vector<TensorPlan> plans;
  for (const TensorEntry& entry : checkpoint.entries())
    if (entry.name != change.drop) plans.push_back({entry.name, entry.dtype, entry.shape});
  for (const auto& [plan, data] : change.more) plans.push_back(plan);
  CheckpointWriter writer = CheckpointWriter::create(to, plans).value();
  for (const TensorEntry& entry : checkpoint.entries()) {
    if (entry.name == change.drop) continue;
    Tensor tensor = checkpoint.read(entry).value();
    if (change.scale && entry.dtype == DType::f32) {
      std::string name = entry.name;
      std::vector<float> values(tensor.as<float>(), tensor.as<float>() + 1);
      change.scale(name, values);
      tensor.as<float>()[0] = values[0];
    }
    writer.append(entry.name, tensor.span()).value();
  }
  for (const auto& [plan, data] : change.more) writer.append(plan.name, data).value();
  Json config = checkpoint.config();
  if (change.config) change.config(config);
  writer.finish(config).value();
}

TEST(Convert, CountsScalesWithoutAnExactReciprocal) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  quantize_into(folder / "in", folder / "q", "w4a16", Dialect::compressed_tensors);
  float odd = 1.5F;
  while (1.0F / (1.0F / odd) == odd) odd = std::nextafter(odd, 2.0F);
  ASSERT_LT(odd, 2.0F);
  int changed = 0;
  rewrite(folder / "q", folder / "odd", {.scale = [&](std::string&, std::vector<float>& scale) {
            scale[0] = odd * static_cast<float>(1 << (changed++ % 5));
          }});
  const auto report = convert_folder(folder / "odd", Dialect::modelopt, folder / "m");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report.value().inexact_scales, changed);
}

/// Replaces one BF16 linear by an FP8 one: codes and scales that decode to something finite.
Rewrite with_fp8(const std::string& module, int64_t rows, int64_t cols, const Shape& scales,
                 const Shape& input) {
  const auto filled = [](int64_t bytes, float scale) {
    std::vector<std::byte> data(static_cast<size_t>(bytes), std::byte{0x31});
    for (size_t i = 0; scale > 0 && i < data.size(); i += 4) std::memcpy(&data[i], &scale, 4);
    return data;
  };
  Rewrite change;
  change.drop = module + ".weight";
  change.more = {
      {{module + ".weight", DType::f8_e4m3, {rows, cols}}, filled(rows * cols, 0)},
      {{module + ".weight_scale", DType::f32, scales}, filled(scales.count() * 4, 0.01F)}};
  if (input.rank() < 6)
    change.more.push_back({{module + ".input_scale", DType::f32, input}, filled(4, 0.5F)});
  return change;
}

TEST(Convert, Fp8LinearsBesideNvfp4GoBothWays) {
  const std::string out = "model.language_model.layers.0.linear_attn.out_proj";
  const Shape none = {1, 1, 1, 1, 1, 1};
  struct Case {
    QuantScheme scheme;
    Shape scales, input;
  };
  const Case kCases[] = {
      {{WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor}, Shape{1}, Shape{1}},
      {{WeightFormat::fp8_channel, ActivationFormat::fp8_token}, Shape{test::kHidden, 1}, none},
  };
  for (const Case& one : kCases) {
    const Folder folder;
    test::write_model(folder / "in", Layout::dense);
    quantize_into(folder / "in", folder / "q", "w4a16", Dialect::compressed_tensors);
    Rewrite change = with_fp8(out, test::kHidden, 32, one.scales, one.input);
    change.config = [&](Json& config) {
      const Checkpoint checkpoint = Checkpoint::open(folder / "q").value();
      const Weights weights =
          Weights::bind(checkpoint, ModelConfig::parse(checkpoint.config()).value()).value();
      QuantDeclaration declaration;
      for (const auto& group : fused_linears(weights))
        for (const LinearSource* linear : group) {
          if (linear->module == out) {
            declaration.quantized.push_back({out, one.scheme});
          } else if (linear->scheme.weights == WeightFormat::plain) {
            declaration.plain.push_back(linear->module);
          } else {
            declaration.quantized.push_back({linear->module, linear->scheme});
          }
        }
      config.set("quantization_config",
                 quantization_config(declaration, Dialect::compressed_tensors));
    };
    rewrite(folder / "q", folder / "mixed", change);
    const auto there = convert_folder(folder / "mixed", Dialect::modelopt, folder / "there");
    ASSERT_TRUE(there.ok()) << there.error().message;
    EXPECT_EQ(there.value().linears, 11);
    const Checkpoint converted = Checkpoint::open(folder / "there").value();
    EXPECT_EQ(converted.find(out + ".weight_scale")->shape,
              one.input.rank() < 6 ? Shape() : Shape{test::kHidden});
    const auto back =
        convert_folder(folder / "there", Dialect::compressed_tensors, folder / "back");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(largest_difference(folder / "mixed", folder / "there"), 0.0);
    EXPECT_EQ(test::file_text(folder / "mixed" / "model.safetensors"),
              test::file_text(folder / "back" / "model.safetensors"));
  }
}

TEST(Convert, MixedGoesBothWaysFromModelOptAndIsRefusedFromDynamicActivations) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  quantize_into(folder / "in", folder / "q", "mixed", Dialect::modelopt);
  const auto there = convert_folder(folder / "q", Dialect::compressed_tensors, folder / "there");
  ASSERT_TRUE(there.ok()) << there.error().message;
  ASSERT_TRUE(convert_folder(folder / "there", Dialect::modelopt, folder / "back").ok());
  for (const char* file : {"model-00001-of-00001.safetensors", "config.json",
                           "hf_quant_config.json", "model.safetensors.index.json"})
    EXPECT_EQ(test::file_text(folder / "q" / file), test::file_text(folder / "back" / file))
        << file;
  quantize_into(folder / "in", folder / "dynamic", "mixed", Dialect::compressed_tensors);
  const auto refused = convert_folder(folder / "dynamic", Dialect::modelopt, folder / "no");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("linear_attn.in_proj_qkv: expected something modelopt can "
                                         "say here, found FP8 weights with activations per token"),
            std::string::npos)
      << refused.error().message;
}

TEST(Convert, InputScalesThatNothingReadsStayBehind) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  quantize_into(folder / "in", folder / "q", "w4a16", Dialect::modelopt);
  const std::string scale = "model.language_model.layers.1.self_attn.q_proj.input_scale";
  rewrite(folder / "q", folder / "more",
          {.more = {{{scale, DType::f32, Shape()}, std::vector<std::byte>(4, std::byte{0x3C})}}});
  const auto report = convert_folder(folder / "more", Dialect::compressed_tensors, folder / "out");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report.value().unread_scales, 1);
  const Checkpoint converted = Checkpoint::open(folder / "out").value();
  EXPECT_EQ(converted.find(scale), nullptr);
  for (const TensorEntry& entry : converted.entries())
    EXPECT_EQ(entry.name.find(".input_global_scale"), std::string::npos) << entry.name;
}

struct Refusal {
  Rewrite change;
  std::string says;
};

/// ModelOpt's own file may declare scales of the cache that the config does not.
TEST(Convert, ReadsTheFileBesideTheConfig) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  quantize_into(folder / "in", folder / "q", "w4a16", Dialect::modelopt);
  const auto converted = [&](const std::string& file) {
    write_file_atomically(folder / "q/hf_quant_config.json", file).value();
    std::filesystem::remove_all(folder / "x");
    const auto report = convert_folder(folder / "q", Dialect::compressed_tensors, folder / "x");
    return report.ok() ? "" : report.error().message;
  };
  EXPECT_EQ(converted("{}"), "");
  EXPECT_EQ(converted(R"({"quantization":{}})"), "");
  EXPECT_EQ(converted(R"({"quantization":{"kv_cache_quant_algo":null}})"), "");
  EXPECT_EQ(converted(R"({"quantization":{"kv_cache_quant_algo":"FP8"}})"),
            "hf_quant_config.json: kv_cache_quant_algo: expected something compressed-tensors can "
            "say here, found \"FP8\"");
}

TEST(Convert, RefusesByName) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  quantize_into(folder / "in", folder / "q", "w4a16", Dialect::compressed_tensors);
  const auto plain = convert_folder(folder / "in", Dialect::modelopt, folder / "x");
  ASSERT_FALSE(plain.ok());
  EXPECT_NE(plain.error().message.find("found no quantization_config"), std::string::npos);
  const auto same = convert_folder(folder / "q", Dialect::compressed_tensors, folder / "x");
  ASSERT_FALSE(same.ok());
  EXPECT_NE(same.error().message.find("needs no conversion"), std::string::npos);

  const auto blocks = convert_folder(NIBBLE_SOURCE_DIR "/tests/golden/model-quantized/fp8-mixed",
                                     Dialect::modelopt, folder / "x");
  ASSERT_FALSE(blocks.ok());
  EXPECT_NE(blocks.error().message.find("found FP8 weights in blocks"), std::string::npos)
      << blocks.error().message;

  const Refusal kRefusals[] = {
      {{.config =
            [](Json& config) {
              config.find("quantization_config")
                  ->set("kv_cache_scheme", parse_json(R"({"num_bits":8})", "").value());
            }},
       "quantization_config.kv_cache_scheme: expected something modelopt can say here"},
      {{.more = {{{"mtp.layers.0.k_scale", DType::bf16, Shape{1}}, std::vector<std::byte>(2)}}},
       "mtp.layers.0.k_scale: expected something modelopt can say here"},
      {{.more = {{{"mtp.x.weight_packed", DType::u8, Shape{16, 8}}, std::vector<std::byte>(128)}}},
       "mtp.pre_fc_norm_embedding.weight"},
      {{.scale = [](std::string&, std::vector<float>& scale) { scale[0] = 0.0F; }},
       "expected a finite positive scale, found 0"},
  };
  int number = 0;
  for (const auto& refusal : kRefusals) {
    const auto broken = folder / concat("broken", number++);
    rewrite(folder / "q", broken, refusal.change);
    const auto report = convert_folder(broken, Dialect::modelopt, folder / "x");
    ASSERT_FALSE(report.ok()) << refusal.says;
    EXPECT_NE(report.error().message.find(refusal.says), std::string::npos)
        << report.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  }
}

}  // namespace
}  // namespace nibble
