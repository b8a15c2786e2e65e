// For tests: a small random checkpoint with every kind of tensor (both mixers, routed and shared
// experts, vision, MTP), in either expert layout, written with the real writer.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_writer.h"
#include "tensor/float_formats.h"

namespace nibble::test {

enum class Layout : uint8_t { fused_experts, separate_experts, dense };

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nibble-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr, pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code failure;
    std::filesystem::remove_all(path_, failure);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline constexpr int kHidden = 64, kWidth = 48, kExperts = 4, kVocab = 96;

inline Json model_config(Layout layout) {
  const bool dense = layout == Layout::dense;
  const std::string text = concat(
      R"({"architectures":[")",
      dense ? "Qwen3_5ForConditionalGeneration" : "Qwen3_5MoeForConditionalGeneration",
      R"("],"model_type":")", dense ? "qwen3_5" : "qwen3_5_moe",
      R"(","tie_word_embeddings":false,"text_config":{"model_type":")",
      dense ? "qwen3_5_text" : "qwen3_5_moe_text", R"(","hidden_size":)", kHidden,
      R"(,"num_hidden_layers":2,"layer_types":["linear_attention","full_attention"],)",
      R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"attn_output_gate":true,)",
      R"("attention_bias":false,"hidden_act":"silu","rms_norm_eps":1e-6,"linear_num_key_heads":1,)",
      R"("linear_num_value_heads":2,"linear_key_head_dim":16,"linear_value_head_dim":16,)",
      R"("linear_conv_kernel_dim":4,"vocab_size":)", kVocab,
      R"(,"max_position_embeddings":1024,"eos_token_id":1,"mtp_num_hidden_layers":1,)",
      R"("tie_word_embeddings":false,"rope_parameters":{"rope_type":"default","rope_theta":10000,)",
      R"("partial_rotary_factor":0.5,"mrope_interleaved":true,"mrope_section":[3,3,2]},)",
      dense ? concat(R"("intermediate_size":)", kWidth)
            : concat(R"("num_experts":)", kExperts,
                     R"(,"num_experts_per_tok":2,"moe_intermediate_size":)", kWidth,
                     R"(,"shared_expert_intermediate_size":)", kWidth),
      "}}");
  return parse_json(text, "test config").value();
}

/// Names and shapes, in the layout asked for.
inline std::vector<TensorPlan> model_tensors(Layout layout) {
  std::vector<TensorPlan> out;
  const auto add = [&](std::string name, const Shape& shape) {
    out.push_back({std::move(name), DType::bf16, shape});
  };
  const std::string text = "model.language_model.";
  add("lm_head.weight", {kVocab, kHidden});
  add(text + "embed_tokens.weight", {kVocab, kHidden});
  add(text + "norm.weight", {kHidden});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = concat(text, "layers.", layer, ".");
    add(at + "input_layernorm.weight", {kHidden});
    add(at + "post_attention_layernorm.weight", {kHidden});
    if (layer == 0) {
      const std::string net = at + "linear_attn.";
      add(net + "in_proj_qkv.weight", {64, kHidden});
      add(net + "in_proj_z.weight", {32, kHidden});
      add(net + "in_proj_b.weight", {2, kHidden});
      add(net + "in_proj_a.weight", {2, kHidden});
      add(net + "out_proj.weight", {kHidden, 32});
      add(net + "conv1d.weight", {64, 1, 4});
      add(net + "A_log", {2});
      add(net + "dt_bias", {2});
      add(net + "norm.weight", {16});
    } else {
      const std::string attention = at + "self_attn.";
      add(attention + "q_proj.weight", {128, kHidden});
      add(attention + "k_proj.weight", {32, kHidden});
      add(attention + "v_proj.weight", {32, kHidden});
      add(attention + "o_proj.weight", {kHidden, 64});
      add(attention + "q_norm.weight", {32});
      add(attention + "k_norm.weight", {32});
    }
    const auto add_mlp = [&](const std::string& mlp) {
      add(mlp + "gate_proj.weight", {kWidth, kHidden});
      add(mlp + "up_proj.weight", {kWidth, kHidden});
      add(mlp + "down_proj.weight", {kHidden, kWidth});
    };
    if (layout == Layout::dense) {
      add_mlp(at + "mlp.");
      continue;
    }
    add(at + "mlp.gate.weight", {kExperts, kHidden});
    add(at + "mlp.shared_expert_gate.weight", {1, kHidden});
    add_mlp(at + "mlp.shared_expert.");
    if (layout == Layout::separate_experts) {
      for (int e = 0; e < kExperts; ++e) add_mlp(concat(at, "mlp.experts.", e, "."));
    } else {
      add(at + "mlp.experts.gate_up_proj", {kExperts, 2 * kWidth, kHidden});
      add(at + "mlp.experts.down_proj", {kExperts, kHidden, kWidth});
    }
  }
  add("model.visual.blocks.0.attn.proj.weight", {32, 32});
  add("model.visual.pos_embed.weight", {16, 32});
  add("mtp.fc.weight", {kHidden, 2 * kHidden});
  add("mtp.norm.weight", {kHidden});
  return out;
}

/// The weight `index` of a tensor; may be replaced to plant a defect.
using WeightFunction = std::function<float(const std::string& tensor, int64_t index, float drawn)>;

/// The values of a matrix do not depend on the expert layout.
inline void write_model(const std::filesystem::path& folder, Layout layout,
                        const WeightFunction& change = {}) {
  const auto tensors = model_tensors(layout);
  CheckpointWriter writer =
      CheckpointWriter::create(folder, tensors, {.shard_bytes_max = 64 << 10}).value();
  for (const TensorPlan& tensor : tensors) {
    std::mt19937_64 random(std::hash<std::string>{}(tensor.name));
    std::normal_distribution<float> normal(0, 0.05F);
    std::vector<uint16_t> values(static_cast<size_t>(tensor.shape.count()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float drawn = normal(random);
      values[i] =
          float_to_bf16(change ? change(tensor.name, static_cast<int64_t>(i), drawn) : drawn);
    }
    writer.append(tensor.name, std::as_bytes(std::span(values))).value();
  }
  writer.add_file("tokenizer.json", "{\"tokens\": 1}").value();
  writer.finish(model_config(layout)).value();
}

inline std::string file_text(const std::filesystem::path& file) {
  return read_text_file(file, uint64_t{1} << 30).value();
}

}  // namespace nibble::test
