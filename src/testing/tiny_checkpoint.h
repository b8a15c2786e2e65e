// For tests: a tiny Qwen3.5 mixture-of-experts checkpoint in memory, whose tensors and config can
// be changed at will before it is written to a folder. Random weights; every kind of tensor.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint_writer.h"
#include "tensor/float_formats.h"
#include "tensor/nvfp4.h"
#include "testing/test_files.h"

namespace nibble {

struct TinyTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::string bytes;
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

class TinyCheckpoint {
 public:
  std::map<std::string, TinyTensor> tensors;
  Json config;

  static constexpr std::string_view kLayers = "model.language_model.layers.";

  /// BF16; hidden 32, layers [delta-net, attention], 2 experts of width 16, vocabulary of 24.
  static TinyCheckpoint moe() {
    TinyCheckpoint tiny;
    tiny.config = parse_json(kConfig, "tiny config").value();
    for (const char* layer : {"0", "1"}) tiny.add_layer(concat(kLayers, layer));
    tiny.add_delta_net(concat(kLayers, "0.linear_attn"));
    tiny.add_attention(concat(kLayers, "1.self_attn"));
    tiny.add("model.language_model.embed_tokens.weight", {24, 32});
    tiny.add("model.language_model.norm.weight", {32});
    tiny.add("lm_head.weight", {24, 32});
    tiny.add("model.visual.patch_embed.proj.weight", {16, 3, 2, 2, 2});
    tiny.add("model.visual.merger.linear_fc1.weight", {16, 16});
    tiny.add("mtp.fc.weight", {32, 64});
    return tiny;
  }

  /// The same with NVFP4 experts and attention, 4-bit activations, compressed-tensors dialect.
  static TinyCheckpoint nvfp4() {
    TinyCheckpoint tiny = moe();
    for (const char* layer : {"0", "1"}) {
      for (const char* expert : {"0", "1"}) {
        const std::string module = concat(kLayers, layer, ".mlp.experts.", expert);
        tiny.round_group({module + ".gate_proj", module + ".up_proj"});
        tiny.round_group({module + ".down_proj"});
      }
    }
    const std::string attention = concat(kLayers, "1.self_attn");
    tiny.round_group({attention + ".q_proj", attention + ".k_proj", attention + ".v_proj"});
    tiny.round_group({attention + ".o_proj"});
    tiny.config.set("quantization_config", parse_json(kDeclaration, "tiny").value());
    return tiny;
  }

  void write(const std::filesystem::path& folder) const {
    std::vector<TensorPlan> plan;
    for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.dtype, tensor.shape});
    auto writer = CheckpointWriter::create(folder, plan).value();
    for (const auto& [name, tensor] : tensors) {
      writer.append(name, std::as_bytes(std::span(tensor.bytes))).value();
    }
    writer.add_file("tokenizer.json", "{}").value();
    writer.add_file("tokenizer_config.json", "{}").value();
    writer.finish(config).value();
  }

  TinyTensor& at(const std::string& name) {
    const auto found = tensors.find(name);
    CHECK(found != tensors.end(), "no tensor ", name);
    return found->second;
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    CHECK(!node.empty(), "no tensor ", from);
    node.key() = to;
    tensors.insert(std::move(node));
  }
  /// BF16 values of a normal-ish distribution.
  void add(const std::string& name, const Shape& shape) {
    TinyTensor tensor = {DType::bf16, shape,
                         std::string(static_cast<size_t>(2 * shape.count()), 0)};
    for (int64_t i = 0; i < shape.count(); ++i) {
      float sum = -2.0F;
      for (int part = 0; part < 4; ++part) {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        sum += static_cast<float>(state_ >> 40) * 0x1p-24F;
      }
      tensor.as<uint16_t>()[i] = float_to_bf16(0.1F * sum);
    }
    tensors[name] = std::move(tensor);
  }
  void add_scalar(const std::string& name, float value) {
    TinyTensor tensor = {DType::f32, Shape{1}, std::string(4, 0)};
    std::memcpy(tensor.bytes.data(), &value, 4);
    tensors[name] = std::move(tensor);
  }

 private:
  void add_layer(const std::string& layer) {
    add(layer + ".input_layernorm.weight", {32});
    add(layer + ".post_attention_layernorm.weight", {32});
    add(layer + ".mlp.gate.weight", {2, 32});
    add(layer + ".mlp.shared_expert_gate.weight", {1, 32});
    for (const char* part : {".mlp.shared_expert", ".mlp.experts.0", ".mlp.experts.1"}) {
      add(layer + part + ".gate_proj.weight", {16, 32});
      add(layer + part + ".up_proj.weight", {16, 32});
      add(layer + part + ".down_proj.weight", {32, 16});
    }
  }
  void add_delta_net(const std::string& module) {
    add(module + ".in_proj_qkv.weight", {32, 32});
    add(module + ".in_proj_z.weight", {16, 32});
    add(module + ".in_proj_b.weight", {2, 32});
    add(module + ".in_proj_a.weight", {2, 32});
    add(module + ".out_proj.weight", {32, 16});
    add(module + ".conv1d.weight", {32, 1, 4});
    add(module + ".A_log", {2});
    add(module + ".dt_bias", {2});
    add(module + ".norm.weight", {8});
  }
  void add_attention(const std::string& module) {
    add(module + ".q_proj.weight", {64, 32});
    add(module + ".k_proj.weight", {16, 32});
    add(module + ".v_proj.weight", {16, 32});
    add(module + ".o_proj.weight", {32, 32});
    add(module + ".q_norm.weight", {16});
    add(module + ".k_norm.weight", {16});
  }

  /// Plain amax/6 under one global scale for all modules of the group.
  void round_group(const std::vector<std::string>& modules) {
    float amax = 0;
    for (const auto& module : modules) {
      TinyTensor& weight = at(module + ".weight");
      for (int64_t i = 0; i < weight.shape.count(); ++i) {
        amax = std::max(amax, std::fabs(bf16_to_float(weight.as<uint16_t>()[i])));
      }
    }
    const auto global = nvfp4_global_scale(amax, GlobalScale::Direction::divide, SourceType::f32);
    for (const auto& module : modules) round_module(module, global);
  }
  void round_module(const std::string& module, GlobalScale global) {
    TinyTensor weight = at(module + ".weight");
    tensors.erase(module + ".weight");
    const int64_t rows = weight.shape[0];
    const int64_t cols = weight.shape[1];
    std::vector<float> values;
    for (int64_t i = 0; i < rows * cols; ++i) {
      values.push_back(bf16_to_float(weight.as<uint16_t>()[i]));
    }
    TinyTensor codes = {DType::u8, {rows, cols / 2}, std::string(values.size() / 2, 0)};
    TinyTensor scales = {DType::f8_e4m3, {rows, cols / 16}, std::string(values.size() / 16, 0)};
    nvfp4_amax_scales_row(values.data(), global, SourceType::f32, rows * cols,
                          scales.as<uint8_t>());
    encode_nvfp4_row(values.data(), scales.as<uint8_t>(), global, rows * cols, codes.as<uint8_t>());
    tensors[module + ".weight_packed"] = std::move(codes);
    tensors[module + ".weight_scale"] = std::move(scales);
    add_scalar(module + ".weight_global_scale", global.value);
    add_scalar(module + ".input_global_scale", 64.0F);
  }

  static constexpr std::string_view kConfig = R"({
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "tie_word_embeddings": false, "vision_config": {"depth": 1},
    "text_config": {
      "hidden_size": 32, "num_hidden_layers": 2,
      "layer_types": ["linear_attention", "full_attention"],
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
      "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
      "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
      "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
      "shared_expert_intermediate_size": 16, "vocab_size": 24, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-06, "hidden_act": "silu", "eos_token_id": 1, "mtp_num_hidden_layers": 1,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000,
                          "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}}})";
  static constexpr std::string_view kDeclaration = R"({
    "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head", "re:.*linear_attn.*", "re:.*mlp.gate$", "re:.*shared_expert.*",
               "re:^mtp.*", "re:.*visual.*"],
    "config_groups": {"group_0": {
      "targets": ["Linear"],
      "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                  "symmetric": true, "dynamic": false},
      "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group",
                            "group_size": 16, "symmetric": true, "dynamic": "local"}}}})";
  uint64_t state_ = 42;
};

}  // namespace nibble
