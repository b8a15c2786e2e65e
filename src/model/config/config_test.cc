// config.json: the real shapes are read right; everything else is refused with one line that names
// the key.
#include "model/config/config.h"

#include <gtest/gtest.h>

#include "testing/published_config.h"

namespace nibble {
namespace {

/// Sets or (with "remove") drops the member at a path like "text_config.rope_parameters.factor".
void edit(Json& json, std::string_view path, std::string_view value) {
  Json* at = &json;
  for (size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1)) {
    at = at->find(path.substr(0, dot));
    ASSERT_NE(at, nullptr) << path;
  }
  if (value != "remove") {
    at->set(path, parse_json(value, "test").value());
    return;
  }
  auto& members = at->as_object();
  const size_t before = members.size();
  std::erase_if(members, [&](const Json::Member& member) { return member.key == path; });
  ASSERT_EQ(members.size() + 1, before) << path;
}

struct Edit {
  std::string_view path;
  std::string_view value;
};

Json edited(const std::string& name, std::initializer_list<Edit> edits) {
  Json json = published_config(name);
  for (const auto& change : edits) edit(json, change.path, change.value);
  return json;
}

TEST(Config, MoeShape) {
  const ModelConfig config = ModelConfig::parse(published_config("qwen3.6-35b-a3b")).value();
  EXPECT_EQ(config.architecture, Architecture::qwen3_5_moe);
  EXPECT_EQ(config.hidden, 2048);
  EXPECT_EQ(config.layer_count(), 40);
  EXPECT_EQ(config.count(LayerKind::attention), 10);
  EXPECT_EQ(config.count(LayerKind::delta_net), 30);
  EXPECT_EQ(config.layers[3], LayerKind::attention);
  EXPECT_EQ(config.kind_index(7), 1);
  EXPECT_EQ(config.kind_index(6), 5);
  EXPECT_EQ(config.attention.head_dim, 256);
  EXPECT_TRUE(config.attention.output_gate);
  EXPECT_EQ(config.attention.rope.rotary_dims, 64);
  EXPECT_EQ(config.attention.rope.theta, 1e7);
  EXPECT_EQ(config.attention.rope.mrope_section, (std::array<int, 3>{11, 11, 10}));
  EXPECT_FALSE(config.attention.rope.yarn);
  EXPECT_EQ(config.delta_net.qkv_rows(), 8192);
  EXPECT_EQ(config.delta_net.z_rows(), 4096);
  ASSERT_TRUE(config.moe);
  EXPECT_EQ(config.moe->experts, 256);
  EXPECT_EQ(config.moe->top_k, 8);
  EXPECT_EQ(config.moe->shared_width, 512);
  EXPECT_TRUE(config.moe->renormalize);
  EXPECT_EQ(config.norm, NormKind::zero_centred);
  EXPECT_EQ(config.max_positions, 262144);
  EXPECT_EQ(config.mtp_layers, 1);
  EXPECT_EQ(config.stop_ids, std::vector<int32_t>{248044});
  EXPECT_EQ(config.tensor_prefix, "model.language_model.");
}

TEST(Config, DenseAndTied) {
  const ModelConfig config = ModelConfig::parse(published_config("qwen3.5-4b")).value();
  EXPECT_EQ(config.architecture, Architecture::qwen3_5);
  EXPECT_FALSE(config.moe);
  EXPECT_EQ(config.dense_width, 9216);
  EXPECT_TRUE(config.tied_head);
}

TEST(Config, PlainMoe) {
  const ModelConfig config = ModelConfig::parse(published_config("qwen3-30b-a3b")).value();
  EXPECT_EQ(config.architecture, Architecture::qwen3_moe);
  EXPECT_EQ(config.norm, NormKind::plain);
  EXPECT_EQ(config.attention.rope.rotary_dims, 128);
  EXPECT_EQ(config.attention.rope.mrope_section, (std::array<int, 3>{}));
  EXPECT_FALSE(config.attention.output_gate);
  EXPECT_EQ(config.count(LayerKind::attention), 48);
  EXPECT_EQ(config.moe->shared_width, 0);
  EXPECT_TRUE(config.moe->renormalize);
  EXPECT_EQ(config.tensor_prefix, "model.");
}

TEST(Config, AllRealShapesParse) {
  for (const char* name : {"qwen3.5-122b-a10b", "qwen3.5-397b-a17b", "qwen3.5-9b", "qwen3.6-27b"}) {
    const auto config = ModelConfig::parse(published_config(name));
    EXPECT_TRUE(config) << name;
  }
}

struct GoodCase {
  std::string_view name;
  const char* base;
  std::initializer_list<Edit> edits;
  void (*check)(const ModelConfig&);
};

const GoodCase kGoodCases[] = {
    {"transformers 4 rope spelling",
     "qwen3.6-35b-a3b",
     {{"text_config.rope_parameters", "remove"},
      {"text_config.rope_theta", "5000000"},
      {"text_config.rope_scaling", "null"},
      {"text_config.partial_rotary_factor", "0.5"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.attention.rope.rotary_dims, 128);
       EXPECT_EQ(c.attention.rope.theta, 5e6);
     }},
    {"rope settings outside of the text model, which has its own",
     "qwen3.6-35b-a3b",
     {{"rope_theta", "5"}},
     [](const ModelConfig& c) { EXPECT_EQ(c.attention.rope.theta, 1e7); }},
    {"rope settings outside of the text model alone",
     "qwen3.6-35b-a3b",
     {{"text_config.rope_parameters", "remove"},
      {"rope_parameters", R"({"rope_type":"default","rope_theta":5e6,"partial_rotary_factor":0.5,)"
                          R"("mrope_interleaved":true,"mrope_section":[22,21,21]})"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.attention.rope.theta, 5e6);
       EXPECT_EQ(c.attention.rope.rotary_dims, 128);
     }},
    {"a duplicated equal factor",
     "qwen3.6-35b-a3b",
     {{"text_config.partial_rotary_factor", "0.25"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.attention.rope.rotary_dims, 64);
       EXPECT_EQ(c.attention.rope.notice, "");
     }},
    {"a left-over factor beside rope_parameters",
     "qwen3.6-35b-a3b",
     {{"text_config.partial_rotary_factor", "0.5"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.attention.rope.rotary_dims, 64);
       EXPECT_EQ(c.attention.rope.notice,
                 "config.json: text_config.rope_parameters.partial_rotary_factor 0.25 is taken, "
                 "not config.json: text_config.partial_rotary_factor 0.5");
     }},
    {"yarn with defaults",
     "qwen3.6-35b-a3b",
     {{"text_config.rope_parameters.rope_type", "\"yarn\""},
      {"text_config.rope_parameters.factor", "4.0"}},
     [](const ModelConfig& c) {
       ASSERT_TRUE(c.attention.rope.yarn);
       EXPECT_EQ(c.attention.rope.yarn->original_max_positions, 262144);
       EXPECT_EQ(c.max_positions, 1048576);
       EXPECT_EQ(c.attention.rope.yarn->beta_fast, 32);
       EXPECT_TRUE(c.attention.rope.yarn->truncate);
       EXPECT_NEAR(c.attention.rope.yarn->attention_factor, 1.138629, 1e-6);
     }},
    {"legacy yarn",
     "qwen3-30b-a3b",
     {{"rope_scaling", R"({"type":"yarn","factor":2.0,"original_max_position_embeddings":32768,)"
                       R"("mscale":2.0,"mscale_all_dim":1.0,"truncate":false,"beta_slow":2})"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.max_positions, 65536);
       EXPECT_EQ(c.attention.rope.yarn->beta_slow, 2);
       EXPECT_FALSE(c.attention.rope.yarn->truncate);
       EXPECT_NEAR(c.attention.rope.yarn->attention_factor, 1.138629 / 1.069315, 1e-6);
     }},
    {"yarn factor from the lengths",
     "qwen3-30b-a3b",
     {{"rope_scaling", R"({"rope_type":"yarn","original_max_position_embeddings":65536})"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.attention.rope.yarn->factor, 4.0);
       EXPECT_EQ(c.max_positions, 262144);
     }},
    {"layers from the interval",
     "qwen3.6-35b-a3b",
     {{"text_config.layer_types", "remove"}, {"text_config.full_attention_interval", "5"}},
     [](const ModelConfig& c) { EXPECT_EQ(c.count(LayerKind::attention), 8); }},
    {"norm_topk_prob defaults to false in the plain family",
     "qwen3-30b-a3b",
     {{"norm_topk_prob", "remove"}},
     [](const ModelConfig& c) { EXPECT_FALSE(c.moe->renormalize); }},
    {"head_dim from the width",
     "qwen3-30b-a3b",
     {{"head_dim", "remove"}},
     [](const ModelConfig& c) { EXPECT_EQ(c.attention.head_dim, 64); }},
    {"two levels of stop ids",
     "qwen3.6-35b-a3b",
     {{"eos_token_id", "[248046, 248044]"}},
     [](const ModelConfig& c) {
       EXPECT_EQ(c.stop_ids, (std::vector<int32_t>{248044, 248046}));
     }},
    {"tied at the inner level only",
     "qwen3.5-4b",
     {{"tie_word_embeddings", "remove"}},
     [](const ModelConfig& c) { EXPECT_TRUE(c.tied_head); }},
    {"another name of SiLU",
     "qwen3.6-27b",
     {{"text_config.output_gate_type", "\"swish\""}},
     [](const ModelConfig& c) { EXPECT_EQ(c.delta_net.v_heads, 48); }},
};

TEST(Config, OtherSpellings) {
  for (const auto& good : kGoodCases) {
    SCOPED_TRACE(good.name);
    const auto config = ModelConfig::parse(edited(good.base, good.edits));
    ASSERT_TRUE(config) << config.error().message;
    good.check(config.value());
  }
}

struct BadCase {
  const char* base;
  std::string_view path;
  std::string_view value;
  std::string_view message;  // part of the error
};

constexpr BadCase kBadCases[] = {
    {"qwen3.6-35b-a3b", "architectures", "remove", "architectures: expected a list"},
    {"qwen3.6-35b-a3b", "architectures", "[]", "architectures: expected a list"},
    {"qwen3.6-35b-a3b", "architectures", "[\"LlamaForCausalLM\"]", "found LlamaForCausalLM"},
    {"qwen3.6-35b-a3b", "text_config", "remove", "text_config: expected an object"},
    {"qwen3.6-35b-a3b", "text_config", "[]", "text_config: expected an object, found []"},
    {"qwen3.6-35b-a3b", "text_config.hidden_size", "remove",
     "text_config.hidden_size: expected an integer in 16..65536, found nothing"},
    {"qwen3.6-35b-a3b", "text_config.hidden_size", "8", "16..65536, found 8"},
    {"qwen3.6-35b-a3b", "text_config.hidden_size", "1e30", "found 1e"},
    {"qwen3.6-35b-a3b", "text_config.hidden_size", "\"2048\"", "found \"2048\""},
    {"qwen3.6-35b-a3b", "text_config.hidden_size", "2048.5", "found 2048.5"},
    {"qwen3.6-35b-a3b", "text_config.num_hidden_layers", "0", "1..1024, found 0"},
    {"qwen3.6-35b-a3b", "text_config.num_hidden_layers", "39", "num_hidden_layers 39"},
    {"qwen3.6-35b-a3b", "text_config.num_hidden_layers", "99999999", "1..1024"},
    {"qwen3.6-35b-a3b", "text_config.layer_types", "\"full_attention\"", "layer_types"},
    {"qwen3.5-4b", "text_config.num_key_value_heads", "3", "multiple of num_key_value_heads 3"},
    {"qwen3.5-4b", "text_config.num_attention_heads", "-16", "found -16"},
    {"qwen3.5-4b", "text_config.linear_num_value_heads", "33", "linear_num_key_heads 16"},
    {"qwen3.5-4b", "text_config.linear_key_head_dim", "100000", "2..1024"},
    {"qwen3.5-4b", "text_config.linear_conv_kernel_dim", "1", "2..8, found 1"},
    {"qwen3.5-4b", "text_config.mamba_ssm_dtype", "\"bfloat16\"", "expected \"float32\""},
    {"qwen3.5-4b", "text_config.output_gate_type", "\"sigmoid\"", "the delta-net gate is SiLU"},
    {"qwen3.5-4b", "text_config.hidden_act", "\"gelu\"", "hidden_act: expected \"silu\""},
    {"qwen3.5-4b", "text_config.attention_bias", "true", "attention_bias: expected false"},
    {"qwen3.5-4b", "text_config.attn_output_gate", "false", "attn_output_gate: expected true"},
    {"qwen3.5-4b", "text_config.intermediate_size", "remove", "intermediate_size"},
    {"qwen3.5-4b", "text_config.max_position_embeddings", "remove", "max_position_embeddings"},
    {"qwen3.5-4b", "text_config.vocab_size", "0", "vocab_size"},
    {"qwen3.5-4b", "text_config.vocab_size", "524289", "vocab_size"},
    {"qwen3.5-4b", "text_config.rms_norm_eps", "0", "rms_norm_eps"},
    {"qwen3.5-4b", "text_config.eos_token_id", "-1", "eos_token_id"},
    {"qwen3.5-4b", "text_config.eos_token_id", "[1, \"a\"]", "eos_token_id"},
    {"qwen3.5-4b", "tie_word_embeddings", "1", "expected true or false, found 1"},
    {"qwen3.5-4b", "text_config.mtp_use_dedicated_embeddings", "true", "shares"},
    {"qwen3.6-35b-a3b", "text_config.num_experts", "5000", "1..4096, found 5000"},
    {"qwen3.6-35b-a3b", "text_config.num_experts_per_tok", "257", "1..256, found 257"},
    {"qwen3.6-35b-a3b", "text_config.norm_topk_prob", "false", "always renormalises"},
    {"qwen3.6-35b-a3b", "text_config.mlp_only_layers", "[3]", "mlp_only_layers"},
    {"qwen3-30b-a3b", "decoder_sparse_step", "2", "decoder_sparse_step: expected 1"},
    {"qwen3-30b-a3b", "use_sliding_window", "true", "never windowed"},
    {"qwen3-30b-a3b", "layer_types", "[1]", "layer_types"},
    {"qwen3-30b-a3b", "norm_topk_prob", "\"yes\"", "norm_topk_prob"},
    {"qwen3-30b-a3b", "rope_theta", "remove", "rope_theta: expected a number"},
    {"qwen3-30b-a3b", "rope_theta", "-1", "rope_theta"},
    {"qwen3-30b-a3b", "rope_parameters", R"({"rope_type":"default","rope_theta":5})", "rope_theta"},
    {"qwen3-30b-a3b", "rope_scaling", R"({"type":"linear","factor":2})", "found \"linear\""},
    {"qwen3-30b-a3b", "rope_scaling", R"({"type":"yarn","factor":0.5})", "factor"},
    {"qwen3-30b-a3b", "rope_scaling", R"({"type":"yarn","factor":2,"beta_fast":0.5})", "beta_fast"},
    {"qwen3-30b-a3b", "rope_scaling", R"({"type":"yarn","long_factor":[1]})", "long_factor"},
    {"qwen3-30b-a3b", "rope_scaling", R"({"mrope_section":[1,1,1]})", "mrope_section"},
    {"qwen3-30b-a3b", "partial_rotary_factor", "1.5", "partial_rotary_factor"},
    {"qwen3-30b-a3b", "partial_rotary_factor", "0.001", "even number of dimensions"},
    {"qwen3.5-4b", "text_config.rope_parameters.mrope_interleaved", "false", "interleaved"},
    {"qwen3.5-4b", "text_config.rope_parameters.mrope_section", "[1,2]", "3 integers"},
    {"qwen3.5-4b", "text_config.rope_parameters.rope_type", "\"llama3\"", "found \"llama3\""},
    {"qwen3.5-4b", "text_config.partial_rotary_factor", "-0.5", "a number in 0..1, found -0.5"},
    {"qwen3.5-4b", "text_config.rope_scaling", "{}", "found both, not equal"},
};

TEST(Config, BadConfigsAreRefusedByName) {
  for (const auto& bad : kBadCases) {
    SCOPED_TRACE(concat(bad.base, " ", bad.path, " = ", bad.value));
    const auto config = ModelConfig::parse(edited(bad.base, {{bad.path, bad.value}}));
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(bad.message), std::string::npos)
        << config.error().message;
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
    EXPECT_NE(config.error().code, ErrorCode::internal);
  }
}

/// A kind of layer that is not known is no damage to the file.
TEST(Config, UnknownKindsOfLayersAreUnsupported) {
  for (const auto& [base, path, known, unknown] :
       {std::array{"qwen3.6-35b-a3b", "text_config.layer_types", "linear_attention",
                   "sliding_attention"},
        std::array{"qwen3-30b-a3b", "layer_types", "full_attention", "linear_attention"}}) {
    const int layers = ModelConfig::parse(published_config(base)).value().layer_count();
    std::string types = concat("[\"", unknown, "\"");
    for (int i = 1; i < layers; ++i) types += concat(",\"", known, "\"");
    const auto config = ModelConfig::parse(edited(base, {{path, types + "]"}}));
    ASSERT_FALSE(config.ok()) << base;
    EXPECT_EQ(config.error().code, ErrorCode::unsupported) << config.error().message;
    EXPECT_NE(config.error().message.find(concat("found \"", unknown, "\"")), std::string::npos)
        << config.error().message;
  }
}

TEST(Config, TextOnlyClassesAreFlat) {
  Json flat = *published_config("qwen3.6-35b-a3b").find("text_config");
  flat.set("architectures", Json::Array{"Qwen3_5MoeForCausalLM"});
  const ModelConfig config = ModelConfig::parse(flat).value();
  EXPECT_EQ(config.architecture, Architecture::qwen3_5_moe);
  EXPECT_EQ(config.tensor_prefix, "model.");
  EXPECT_EQ(config.norm, NormKind::zero_centred);
  EXPECT_EQ(config.moe->shared_width, 512);
  EXPECT_EQ(config.count(LayerKind::delta_net), 30);
}

TEST(Config, NotAnObject) {
  for (const char* text : {"\"x\"", "[]", "5", "null"}) {
    const Json json = parse_json(text, "test").value();
    const auto refused = ModelConfig::parse(json);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().message,
              concat("config.json: expected an object, found ", json.type_name()));
  }
}

}  // namespace
}  // namespace nibble
