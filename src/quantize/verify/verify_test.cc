// verify finds every planted defect by name, and nothing in sound checkpoints.
#include "quantize/verify/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "testing/golden_text.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

constexpr std::string_view kExpert = "model.language_model.layers.0.mlp.experts.1.";
constexpr std::string_view kAttention = "model.language_model.layers.1.self_attn.";

std::string expert(std::string_view tensor) { return concat(kExpert, tensor); }
std::string attention(std::string_view tensor) { return concat(kAttention, tensor); }

std::string listing(const VerifyReport& report) {
  std::string out;
  for (const Finding& finding : report.findings) {
    out += concat(finding.severity == Severity::error ? "error " : "warning ", finding.subject,
                  ": ", finding.text, "\n");
  }
  return out;
}

void expect_sound(const TinyCheckpoint& tiny) {
  const TemporaryFolder root;
  tiny.write(root / "model");
  const VerifyReport report = verify_checkpoint(root / "model").value();
  EXPECT_TRUE(report.findings.empty()) << listing(report);
  EXPECT_EQ(report.tensors, static_cast<int64_t>(tiny.tensors.size()));
}

TEST(Verify, SoundCheckpointsHaveNoFindings) {
  expect_sound(TinyCheckpoint::moe());
  expect_sound(TinyCheckpoint::nvfp4());
  TinyCheckpoint tied = TinyCheckpoint::moe();
  tied.config.set("tie_word_embeddings", true);
  tied.at("lm_head.weight") = tied.at("model.language_model.embed_tokens.weight");
  expect_sound(tied);
}

TEST(Verify, FusedExpertStacksAreSound) {
  TinyCheckpoint tiny = TinyCheckpoint::moe();
  for (const char* layer : {"0", "1"}) {
    const std::string experts = concat(TinyCheckpoint::kLayers, layer, ".mlp.experts.");
    std::erase_if(tiny.tensors, [&](const auto& item) { return item.first.starts_with(experts); });
    tiny.add(experts + "gate_up_proj", {2, 32, 32});
    tiny.add(experts + "down_proj", {2, 32, 16});
  }
  expect_sound(tiny);
  const std::string stack = concat(TinyCheckpoint::kLayers, "1.mlp.experts.down_proj");
  std::memset(tiny.at(stack).bytes.data() + 1024, 0, 1024);
  const TemporaryFolder root;
  tiny.write(root / "model");
  const VerifyReport report = verify_checkpoint(root / "model").value();
  EXPECT_NE(listing(report).find("1 dead experts (all zero), first expert 1"), std::string::npos)
      << listing(report);
}

struct Defect {
  const char* name;
  std::function<void(TinyCheckpoint&)> plant;
  Severity severity;
  const char* expected_words;
};

void set_float(TinyTensor& tensor, float value) { *tensor.as<float>() = value; }
void set_text(TinyCheckpoint& tiny, std::string_view key, std::string_view json) {
  tiny.config.find("text_config")->set(key, parse_json(json, "test").value());
}
Json& declaration(TinyCheckpoint& tiny) { return *tiny.config.find("quantization_config"); }
void ignore(TinyCheckpoint& tiny, const char* name) {
  declaration(tiny).find("ignore")->push_back(name);
}

using Tiny = TinyCheckpoint&;
constexpr Severity kError = Severity::error;
constexpr Severity kWarning = Severity::warning;

const Defect kDefects[] = {
    {"nan_weight", [](Tiny t) { t.at("lm_head.weight").as<uint16_t>()[37] = 0x7FC0; }, kError,
     "lm_head.weight: 1 of 768 values are NaN or infinite, first at 37"},
    {"infinite_norm",
     [](Tiny t) { t.at("model.language_model.norm.weight").as<uint16_t>()[0] = 0xFF80; }, kError,
     "model.language_model.norm.weight: 1 of 32 values"},
    {"nan_in_vision",
     [](Tiny t) { t.at("model.visual.merger.linear_fc1.weight").as<uint16_t>()[255] = 0x7F81; },
     kError, "first at 255"},
    {"nan_block_scale", [](Tiny t) { t.at(expert("up_proj.weight_scale")).bytes[3] = 0x7F; },
     kError, "up_proj.weight_scale: 1 block scales are negative or NaN, first at 3"},
    {"negative_block_scale",
     [](Tiny t) { t.at(attention("q_proj.weight_scale")).bytes[0] = '\x88'; }, kError,
     "q_proj.weight_scale: 1 block scales are negative or NaN, first at 0"},
    {"zero_global_scale",
     [](Tiny t) { set_float(t.at(attention("o_proj.weight_global_scale")), 0.0F); }, kError,
     "o_proj.weight_global_scale: expected a positive finite scale, found 0"},
    {"infinite_global_scale",
     [](Tiny t) { set_float(t.at(attention("o_proj.weight_global_scale")), INFINITY); }, kError,
     "expected a positive finite scale, found inf"},
    {"inverted_global_scale",
     [](Tiny t) {
       TinyTensor& scale = t.at(attention("o_proj.weight_global_scale"));
       set_float(scale, 1.0F / *scale.as<float>());
     },
     kError, "implausible: expected weights between"},
    {"unshared_gate_up",
     [](Tiny t) { set_float(t.at(expert("up_proj.weight_global_scale")), 9000.0F); }, kError,
     "up_proj.weight_global_scale: global scale differs inside a fused group"},
    {"unshared_qkv",
     [](Tiny t) { set_float(t.at(attention("v_proj.weight_global_scale")), 9000.0F); }, kError,
     "v_proj.weight_global_scale: global scale differs inside a fused group"},
    {"unshared_input_scale",
     [](Tiny t) { set_float(t.at(attention("k_proj.input_global_scale")), 65.0F); }, kWarning,
     "k_proj.input_global_scale: input scale differs inside a fused group"},
    {"negative_input_scale",
     [](Tiny t) { set_float(t.at(attention("o_proj.input_global_scale")), -1.0F); }, kError,
     "o_proj.input_global_scale: expected a positive finite scale, found -1"},
    {"nan_cache_scale", [](Tiny t) { t.add_scalar(attention("k_scale"), NAN); }, kError,
     "self_attn.k_scale: expected a positive finite scale, found nan"},
    {"missing_input_scale", [](Tiny t) { t.tensors.erase(attention("o_proj.input_global_scale")); },
     kError, "o_proj.weight_packed: expected an input scale for its declared 4-bit activations"},
    {"missing_global_scale",
     [](Tiny t) { t.tensors.erase(attention("o_proj.weight_global_scale")); }, kError,
     "expected one global scale beside the NVFP4 codes, found none"},
    {"missing_weight", [](Tiny t) { t.tensors.erase(expert("up_proj.weight_packed")); }, kError,
     "up_proj.weight_scale: a scale without its weight"},
    {"missing_norm", [](Tiny t) { t.tensors.erase("model.language_model.norm.weight"); }, kError,
     "norm.weight"},
    {"missing_expert",
     [](Tiny t) {
       std::erase_if(t.tensors, [](const auto& item) { return item.first.starts_with(kExpert); });
     },
     kError, "experts.1.gate_proj"},
    {"wrong_shape",
     [](Tiny t) {
       t.add(concat(TinyCheckpoint::kLayers, "0.mlp.gate.weight"), {3, 32});
     },
     kError, "mlp.gate.weight"},
    {"wrong_dtype",
     [](Tiny t) {
       t.at("lm_head.weight") = {DType::i16, {24, 32}, std::string(1536, 1)};
     },
     kError, "lm_head.weight"},
    {"untied_head_missing", [](Tiny t) { t.tensors.erase("lm_head.weight"); }, kError, "lm_head"},
    {"tied_head_differs", [](Tiny t) { t.config.set("tie_word_embeddings", true); }, kWarning,
     "lm_head.weight: differs from the embedding that config.json ties it to"},
    {"dead_expert",
     [](Tiny t) { t.at(expert("down_proj.weight_packed")).bytes.assign(256, '\x08'); }, kWarning,
     "down_proj.weight_packed: a dead expert: all zero"},
    {"zero_projection",
     [](Tiny t) { t.at(attention("k_proj.weight_packed")).bytes.assign(256, 0); }, kError,
     "k_proj.weight_packed: all values are zero"},
    {"declared_but_plain",
     [](Tiny t) {
       std::erase_if(declaration(t).find("ignore")->as_array(),
                     [](const Json& name) { return name == Json("lm_head"); });
     },
     kError, "lm_head.weight: is BF16, but config.json"},
    {"quantized_but_ignored", [](Tiny t) { ignore(t, "re:.*o_proj$"); }, kError,
     "o_proj.weight_packed: has 4-bit values, but quantization_config declares none for it"},
    {"wrong_bits",
     [](Tiny t) {
       declaration(t).find("config_groups")->find("group_0")->find("weights")->set("num_bits", 8);
     },
     kError, "has 4-bit values, but config.json: quantization_config"},
    {"wrong_prefix", [](Tiny t) { ignore(t, "model.layers.0.mlp.gate"); }, kWarning,
     "quantization_config.ignore names 1 modules that do not exist, first model.layers.0.mlp.gate"},
    {"unknown_method", [](Tiny t) { declaration(t).set("quant_method", "awq"); }, kError,
     "quant_method"},
    {"malformed_declaration", [](Tiny t) { declaration(t).set("config_groups", 3); }, kError,
     "config_groups"},
    {"unknown_architecture",
     [](Tiny t) {
       t.config.set("architectures", parse_json("[\"LlamaForCausalLM\"]", "").value());
     },
     kError, "LlamaForCausalLM"},
    {"config_disagrees", [](Tiny t) { set_text(t, "num_hidden_layers", "3"); }, kError,
     "num_hidden_layers"},
    {"stray_tensor", [](Tiny t) { t.add("model.language_model.stray.weight", {4}); }, kWarning,
     "model.language_model.stray.weight: one of 1 tensors that the model does not use"},
    {"lost_mtp_head", [](Tiny t) { t.tensors.erase("mtp.fc.weight"); }, kWarning,
     "promises an MTP head"},
    {"lost_vision",
     [](Tiny t) {
       std::erase_if(t.tensors,
                     [](const auto& item) { return item.first.starts_with("model.visual."); });
     },
     kWarning, "promises a vision tower"},
    // Bugs of published files: numbers are of the trackers' issues.
    {"infinite_input_scale",  // compressed-tensors 595: an expert that saw no token
     [](Tiny t) { set_float(t.at(attention("o_proj.input_global_scale")), INFINITY); }, kError,
     "o_proj.input_global_scale: expected a positive finite scale, found inf"},
    {"mtp_not_ignored",  // vLLM 41994: engines build quantized MTP parameters
     [](Tiny t) {
       std::erase_if(declaration(t).find("ignore")->as_array(), [](const Json& name) {
         return name.as_string().find("mtp") != std::string::npos;
       });
     },
     kError, "mtp.fc.weight: is BF16, but config.json"},
    {"swizzled_block_scales",  // a layout of kernels, padded to 128 rows
     [](Tiny t) {
       t.at(attention("k_proj.weight_scale")) = {DType::f8_e4m3, {128, 4}, std::string(512, 0x38)};
     },
     kError, "k_proj.weight_scale"},
    {"stacked_quantized_experts",  // Model-Optimizer 2334: no loader reads packed 3-D experts
     [](Tiny t) {
       t.tensors[concat(TinyCheckpoint::kLayers, "0.mlp.experts.gate_up_proj")] = {
           DType::u8, {2, 32, 16}, std::string(1024, 1)};
     },
     kError, "expected fused or separate experts"},
    {"cache_scheme_without_scales",
     [](Tiny t) {
       declaration(t).set("kv_cache_scheme", parse_json("{\"num_bits\":8}", "").value());
     },
     kWarning, "kv_cache_scheme is declared, but there are no k_scale and v_scale tensors"},
    {"unknown_transform",
     [](Tiny t) {
       declaration(t).set("transform_config",
                          parse_json("{\"config_groups\":{\"u\":1}}", "").value());
     },
     kError, "transform_config"},
    {"awq_scale_left_in", [](Tiny t) { t.add(attention("o_proj.pre_quant_scale"), {32}); }, kError,
     "o_proj.pre_quant_scale: expected a linear without this tensor"},
    {"both_dialects_names", [](Tiny t) { t.add_scalar(attention("o_proj.weight_scale_2"), 1.0F); },
     kWarning, "o_proj.weight_scale_2"},
};

TEST(Verify, EveryPlantedDefectIsFound) {
  EXPECT_GE(std::size(kDefects), 42U);
  std::string all;
  for (const Defect& defect : kDefects) {
    TinyCheckpoint tiny = TinyCheckpoint::nvfp4();
    defect.plant(tiny);
    const TemporaryFolder root;
    tiny.write(root / "model");
    const VerifyReport report = verify_checkpoint(root / "model").value();
    EXPECT_EQ(report.sound(), defect.severity == Severity::warning) << defect.name;
    const std::string found = listing(report);
    all += concat("==== ", defect.name, "\n", found);
    EXPECT_NE(found.find(defect.expected_words), std::string::npos) << defect.name << ":\n"
                                                                    << found;
    EXPECT_GT(report.count(defect.severity), 0) << defect.name << ":\n" << found;
    for (const Finding& finding : report.findings) {
      EXPECT_EQ(finding.text.find('\n'), std::string::npos) << defect.name << ": " << finding.text;
    }
  }
  expect_golden_text("verify/findings.txt", all);
}

TEST(Verify, BrokenFoldersAreReportsAndMissingOnesErrors) {
  const TemporaryFolder root;
  EXPECT_EQ(verify_checkpoint(root / "gone").error().code, ErrorCode::not_found);
  TinyCheckpoint::moe().write(root / "model");
  std::filesystem::resize_file(root / "model/model.safetensors", 20000);
  const VerifyReport broken = verify_checkpoint(root / "model").value();
  EXPECT_FALSE(broken.sound());
  EXPECT_NE(listing(broken).find("truncated"), std::string::npos) << listing(broken);
}

TEST(Verify, WarnsAboutMissingTokenizer) {
  const TemporaryFolder root;
  TinyCheckpoint::moe().write(root / "model");
  std::filesystem::remove(root / "model/tokenizer.json");
  const VerifyReport report = verify_checkpoint(root / "model").value();
  EXPECT_TRUE(report.sound());
  EXPECT_NE(listing(report).find("tokenizer.json: is missing"), std::string::npos);
}

TEST(Verify, TellsHowManyBytesAreRead) {
  const TemporaryFolder root;
  const TinyCheckpoint tiny = TinyCheckpoint::moe();
  tiny.write(root / "model");
  int64_t bytes = 0, last = 0;
  for (const auto& [name, tensor] : tiny.tensors) bytes += std::ssize(tensor.bytes);
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, bytes);
    last = done;
  };
  EXPECT_TRUE(verify_checkpoint(root / "model", {.progress = progress}).value().sound());
  EXPECT_EQ(last, bytes);
}

/// Block scales that some tool wrote as plain numbers are of the wrong type, and their NaN is told
/// of all the same, as that of numbers and not of codes.
TEST(Verify, NanIsFoundInBlockScalesOfAnotherType) {
  TinyCheckpoint tiny = TinyCheckpoint::nvfp4();
  TinyTensor& scales = tiny.at(attention("o_proj.weight_scale"));
  scales = {DType::f32, scales.shape, std::string(4 * scales.bytes.size(), 0)};
  for (int64_t i = 0; i < scales.shape.count(); ++i) scales.as<float>()[i] = 1.0F;
  scales.as<float>()[5] = NAN;
  const TemporaryFolder root;
  tiny.write(root / "model");
  const std::string found = listing(verify_checkpoint(root / "model").value());
  EXPECT_NE(found.find("o_proj.weight_scale: 1 block scales are negative or NaN, first at 5"),
            std::string::npos)
      << found;
}

TEST(Verify, HeadersAloneNeedNoValues) {
  const TemporaryFolder root;
  TinyCheckpoint tiny = TinyCheckpoint::nvfp4();
  tiny.at("lm_head.weight").as<uint16_t>()[37] = 0x7FC0;  // NaN
  tiny.write(root / "model");
  const VerifyOptions headers{.depth = VerifyDepth::headers};
  EXPECT_TRUE(verify_checkpoint(root / "model", headers).value().findings.empty());
  EXPECT_FALSE(verify_checkpoint(root / "model").value().sound());
  tiny.tensors.erase(expert("up_proj.weight_packed"));
  tiny.write(root / "broken");
  EXPECT_FALSE(verify_checkpoint(root / "broken", headers).value().sound());
}

}  // namespace
}  // namespace nibble
