// Both ways and back; what the other dialect cannot say.
#include "quantize/convert.h"

#include <gtest/gtest.h>

#include "quantize/quantize.h"
#include "quantize/test_model.h"

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
        for (const char* file : {"model.safetensors", "config.json", "tokenizer.json"}) {
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

/// Rewrites a checkpoint, changing tensors or the config on the way.
struct Rewrite {
  std::function<void(std::string& name, std::vector<float>& scale)> scale = {};
  std::function<void(Json& config)> config = {};
  std::vector<std::pair<TensorPlan, std::vector<std::byte>>> more = {};
};

void rewrite(const std::filesystem::path& from, const std::filesystem::path& to,
             const Rewrite& change) {
  const Checkpoint checkpoint = Checkpoint::open(from).value();
  std::vector<TensorPlan> plans;
  for (const TensorEntry& entry : checkpoint.entries())
    plans.push_back({entry.name, entry.dtype, entry.shape});
  for (const auto& [plan, data] : change.more) plans.push_back(plan);
  CheckpointWriter writer = CheckpointWriter::create(to, plans).value();
  for (const TensorEntry& entry : checkpoint.entries()) {
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

struct Refusal {
  Rewrite change;
  std::string says;
};

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
       "mtp.x.weight_packed"},
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
