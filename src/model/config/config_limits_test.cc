// How far each number of a config.json may go, and what is taken where it says nothing.
#include <gtest/gtest.h>

#include "model/config/config.h"
#include "testing/published_config.h"

namespace nibble {
namespace {

/// The settings of the text model, with some replaced; those that are null are left out.
Result<ModelConfig> read_with(const char* name, const std::string& members) {
  Json config = published_config(name);
  const Json changes = parse_json(concat("{", members, "}"), "test").value();
  Json& text = *config.find("text_config");
  for (const auto& [key, value] : changes.as_object()) {
    std::erase_if(text.as_object(), [&](const Json::Member& member) { return member.key == key; });
    if (!value.is_null()) text.set(key, value);
  }
  return ModelConfig::parse(config);
}

struct Limit {
  const char* config;
  const char* key;
  const char* low;
  const char* below;
  const char* high;
  const char* above;
  const char* beside = "";  // what else is replaced
};
constexpr const char* kDense = "qwen3.5-4b";
constexpr const char* kMoe = "qwen3.6-35b-a3b";
constexpr Limit kLimits[] = {
    {kDense, "hidden_size", "16", "15", "65536", "65537"},
    {kDense, "intermediate_size", "1", "0", "1048576", "1048577"},
    {kDense, "num_hidden_layers", "1", "0", "1024", "1025", R"("layer_types":null,)"},
    {kDense, "full_attention_interval", "1", "0", "1024", "1025", R"("layer_types":null,)"},
    {kDense, "num_attention_heads", "1", "0", "1024", "1025", R"("num_key_value_heads":1,)"},
    {kDense, "num_key_value_heads", "1", "0", "1024", "1025", R"("num_attention_heads":1024,)"},
    {kDense, "head_dim", "2", "1", "1024", "1025",
     R"("rope_parameters":{"rope_theta":1e4,"partial_rotary_factor":1},)"},
    {kDense, "linear_num_value_heads", "1", "0", "1024", "1025", R"("linear_num_key_heads":1,)"},
    {kDense, "linear_num_key_heads", "1", "0", "1024", "1025", R"("linear_num_value_heads":1024,)"},
    {kDense, "linear_key_head_dim", "2", "1", "1024", "1025"},
    {kDense, "linear_value_head_dim", "2", "1", "1024", "1025"},
    {kDense, "linear_conv_kernel_dim", "2", "1", "8", "9"},
    {kDense, "vocab_size", "1", "0", "524288", "524289"},
    {kDense, "max_position_embeddings", "1", "0", "1073741824", "1073741825"},
    {kDense, "mtp_num_hidden_layers", "0", "-1", "8", "9"},
    {kDense, "eos_token_id", "0", "-1", "2147483647", "2147483648"},
    {kDense, "rms_norm_eps", "1e-12", "9e-13", "0.1", "0.11"},
    {kMoe, "num_experts", "1", "0", "4096", "4097", R"("num_experts_per_tok":1,)"},
    {kMoe, "num_experts_per_tok", "1", "0", "256", "257"},
    {kMoe, "moe_intermediate_size", "1", "0", "1048576", "1048577"},
    {kMoe, "shared_expert_intermediate_size", "1", "0", "1048576", "1048577"},
};

TEST(ConfigLimits, NumbersMayGoToTheirLimitsAndNotBeyond) {
  for (const Limit& limit : kLimits) {
    const auto with = [&](const char* value) {
      return read_with(limit.config, concat(limit.beside, "\"", limit.key, "\":", value));
    };
    for (const char* value : {limit.low, limit.high})
      EXPECT_TRUE(with(value).ok())
          << limit.key << " " << value << ": " << with(value).error().message;
    for (const char* value : {limit.below, limit.above}) {
      const auto refused = with(value);
      ASSERT_FALSE(refused.ok()) << limit.key << " " << value;
      EXPECT_NE(refused.error().message.find(limit.key), std::string::npos)
          << refused.error().message;
    }
  }
}

TEST(ConfigLimits, SaysWhatIsTakenWhereTheFileIsSilent) {
  const ModelConfig dense =
      read_with(kDense, R"("layer_types":null,"full_attention_interval":null,"head_dim":null,)"
                        R"("rms_norm_eps":null,"linear_conv_kernel_dim":null,)"
                        R"("mtp_num_hidden_layers":null,"output_gate_type":null,)"
                        R"("mamba_ssm_dtype":null,"attn_output_gate":null,"hidden_act":null)")
          .value();
  for (int i = 0; i < dense.layer_count(); ++i)
    EXPECT_EQ(dense.layers[static_cast<size_t>(i)],
              i % 4 == 3 ? LayerKind::attention : LayerKind::delta_net)
        << i;
  EXPECT_EQ(dense.attention.head_dim, 256);
  EXPECT_EQ(dense.rms_eps, 1e-6F);
  EXPECT_EQ(dense.delta_net.conv_kernel, 4);
  EXPECT_EQ(dense.mtp_layers, 0);
  EXPECT_TRUE(dense.attention.output_gate);
  const ModelConfig moe =
      read_with(kMoe, R"("norm_topk_prob":null,"decoder_sparse_step":null,"mlp_only_layers":null)")
          .value();
  EXPECT_TRUE(moe.moe->renormalize);
}

/// Each number is read from its own key.
TEST(ConfigLimits, NumbersHaveTheirOwnKeys) {
  const ModelConfig dense =
      read_with(kDense, R"("hidden_size":48,"intermediate_size":50,"num_attention_heads":12,)"
                        R"("num_key_value_heads":6,"head_dim":16,"linear_num_key_heads":7,)"
                        R"("linear_num_value_heads":21,"linear_key_head_dim":10,)"
                        R"("linear_value_head_dim":11,"linear_conv_kernel_dim":5,)"
                        R"("vocab_size":99,"max_position_embeddings":77,"rms_norm_eps":1e-4,)"
                        R"("mtp_num_hidden_layers":3,"eos_token_id":[9,8,9])")
          .value();
  EXPECT_EQ(dense.hidden, 48);
  EXPECT_EQ(dense.dense_width, 50);
  EXPECT_EQ(dense.attention.q_heads, 12);
  EXPECT_EQ(dense.attention.kv_heads, 6);
  EXPECT_EQ(dense.attention.head_dim, 16);
  EXPECT_EQ(dense.delta_net.k_heads, 7);
  EXPECT_EQ(dense.delta_net.v_heads, 21);
  EXPECT_EQ(dense.delta_net.k_dim, 10);
  EXPECT_EQ(dense.delta_net.v_dim, 11);
  EXPECT_EQ(dense.delta_net.conv_kernel, 5);
  EXPECT_EQ(dense.vocab_rows, 99);
  EXPECT_EQ(dense.max_positions, 77);
  EXPECT_EQ(dense.rms_eps, 1e-4F);
  EXPECT_EQ(dense.mtp_layers, 3);
  ASSERT_GE(dense.stop_ids.size(), 2U);
  EXPECT_EQ(dense.stop_ids[0], 9);
  EXPECT_EQ(dense.stop_ids[1], 8);
  const ModelConfig moe =
      read_with(kMoe, R"("num_experts":null,"num_local_experts":20,"num_experts_per_tok":3,)"
                      R"("moe_intermediate_size":24,"shared_expert_intermediate_size":28)")
          .value();
  EXPECT_EQ(moe.moe->experts, 20);
  EXPECT_EQ(moe.moe->top_k, 3);
  EXPECT_EQ(moe.moe->expert_width, 24);
  EXPECT_EQ(moe.moe->shared_width, 28);
}

}  // namespace
}  // namespace nibble
