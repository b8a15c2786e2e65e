// FP8 pages under the scales of a checkpoint, on a card, against the reference: prompts by the
// portable and the Hopper kernels, generated rows, and F32. Needs a card.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "checkpoint/checkpoint.h"
#include "model/synthetic/synthetic_checkpoint.h"
#include "testing/test_files.h"
#include "testing/test_session.h"

namespace nibble {
namespace {

/// These are the bars of block_test.cc for FP8 pages.
constexpr double kErrorMax = 8e-3;
constexpr double kF32ErrorMax = 1e-3;
constexpr int kVocab = 512;
constexpr size_t kPrompt = 300;

std::string config_text(int head_dim) {
  const int pairs = head_dim / 4;
  return concat(
      R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",)"
      R"("tie_word_embeddings": false, "text_config": {"hidden_size": 512,)"
      R"("num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"],)"
      R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": )",
      head_dim,
      R"(, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 32,)"
      R"("linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "intermediate_size": 64,)"
      R"("vocab_size": 512, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06,)"
      R"("hidden_act": "silu", "attn_output_gate": true, "eos_token_id": 1, "rope_parameters":)"
      R"({"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.5,)"
      R"("mrope_interleaved": true, "mrope_section": [)",
      pairs - 2 * (pairs / 3), ", ", pairs / 3, ", ", pairs / 3, "]}}}");
}

double relative_rms(std::span<const float> found, std::span<const float> expected) {
  double error = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double{found[i]} - expected[i], 2);
    size += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / size);
}

class CudaKvScales : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    const auto folder = folder_.path() / "model";
    const Json config = parse_json(config_text(GetParam()), "the config").value();
    write_synthetic_checkpoint(config, folder,
                               {.layout = WeightLayout::bf16,
                                .seed = 7,
                                .embedding_deviation = 0.02F,
                                .zero = {"down_proj"}})
        .value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder).value());
    config_ = ModelConfig::parse(checkpoint_->config()).value();
    weights_ = Weights::bind(*checkpoint_, config_).value();
    std::mt19937 random(3);
    for (size_t i = 0; i < kPrompt + 4; ++i)
      ids_.push_back(static_cast<int32_t>(random() % kVocab));
  }
  /// Logits of the prompt, of one generated row and of three.
  std::vector<std::vector<float>> logits(Backend& backend) {
    TestSession session(backend, config_, {.sequences = 1, .tokens_max = 384, .rows_max = 384});
    std::vector<std::vector<float>> out;
    const auto pass = [&](size_t begin, size_t count, Arithmetic arithmetic) {
      const TestSession::Feed feed{
          .sequence = 0, .tokens = std::span(ids_).subspan(begin, count), .arithmetic = arithmetic};
      out.push_back(session.pass({feed}));
    };
    pass(0, kPrompt, Arithmetic::prompt);
    pass(kPrompt, 1, Arithmetic::generation);
    pass(kPrompt + 1, 3, Arithmetic::generation);
    return out;
  }
  void compare(BackendOptions options, Activations of_reference, double error_max) {
    BackendOptions plain = options;
    plain.activations = of_reference;
    const auto make = of_reference == Activations::f32 ? make_reference_backend
                                                       : make_bf16_prompt_reference_backend;
    const auto unit = logits(*make(weights_, config_, plain).value());
    options.kv_scales =
        plain.kv_scales = {{.keys = 0.017F, .values = 0.011F}, {.keys = 0.4F, .values = 0.02F}};
    const auto cuda = make_cuda_backend(weights_, config_, options).value();
    EXPECT_NE(cuda->arithmetic().find("of the checkpoint's scales"), std::string::npos);
    const auto found = logits(*cuda);
    const auto expected = logits(*make(weights_, config_, plain).value());
    for (size_t i = 0; i < found.size(); ++i) {
      const double error = relative_rms(found[i], expected[i]);
      std::fprintf(stderr, "head size %d, pass %zu: relative rms %.2e, of scale 1 %.2e\n",
                   GetParam(), i, error, relative_rms(unit[i], expected[i]));
      EXPECT_LE(error, error_max) << i;
      EXPECT_GT(relative_rms(unit[i], expected[i]), 2 * error) << i;
    }
  }

  TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  Weights weights_;
  std::vector<int32_t> ids_;
};

TEST_P(CudaKvScales, NearTheReference) {
  compare({.kv_cache = KvCache::fp8}, Activations::bf16, kErrorMax);
}

TEST_P(CudaKvScales, AreTheReferencesInF32) {
  compare({.activations = Activations::f32, .kv_cache = KvCache::fp8}, Activations::f32,
          kF32ErrorMax);
}

INSTANTIATE_TEST_SUITE_P(HeadSizes, CudaKvScales, testing::Values(64, 128, 256));

}  // namespace
}  // namespace nibble
