// Each block of the CUDA backend alone against the reference, which rounds the inputs of linears to
// BF16 too, and prompts where the prompt kernels do; and with activations f32, where neither rounds
// anything: synthetic models of one layer in which all but the block in question gives zero, and
// the embedding is small against what the block adds. Inputs come from fresh seeds, printed when a
// test fails; caches are full of NaN beforehand. Needs a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/testing/block_cases.h"
#include "backend/reference/reference_backend.h"
#include "checkpoint/checkpoint.h"
#include "model/synthetic/synthetic_checkpoint.h"
#include "testing/test_files.h"
#include "testing/test_session.h"

namespace nibble {
namespace {

using namespace block_cases;

std::string config_text(const Case& c) {
  const bool moe = c.block == Block::moe;
  const bool mixes = c.block == Block::attention;
  const int head_dim = mixes ? c.head_dim : 32;
  const int pairs = head_dim / 4;
  return concat(R"({"architectures": [")",
                moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration",
                R"("], "model_type": ")", moe ? "qwen3_5_moe" : "qwen3_5",
                R"(", "tie_word_embeddings": false, "text_config": {"hidden_size": )", c.hidden,
                R"(, "num_hidden_layers": 1, "layer_types": [")",
                c.block == Block::delta_net ? "linear_attention" : "full_attention",
                R"("], "num_attention_heads": )", mixes ? c.q_heads : 2,
                R"(, "num_key_value_heads": )", mixes ? c.kv_heads : 1, R"(, "head_dim": )",
                head_dim, R"(, "linear_num_key_heads": )", c.k_heads,
                R"(, "linear_num_value_heads": )", c.v_heads, R"(, "linear_key_head_dim": )",
                c.k_dim, R"(, "linear_value_head_dim": )", c.v_dim,
                R"(, "linear_conv_kernel_dim": 4, "num_experts": )", c.experts,
                R"(, "num_experts_per_tok": )", c.top_k, R"(, "moe_intermediate_size": )", c.width,
                R"(, "shared_expert_intermediate_size": )", c.shared_width,
                R"(, "intermediate_size": )", c.block == Block::dense_mlp ? c.width : 64,
                R"(, "vocab_size": )", c.vocab, R"(, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-06, "hidden_act": "silu", "attn_output_gate": true, "eos_token_id": 1,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
    "partial_rotary_factor": 0.5, "mrope_interleaved": true, "mrope_section": [)",
                pairs - 2 * (pairs / 3), ", ", pairs / 3, ", ", pairs / 3, "]}}}");
}

/// Modules that give zero, so that one block is left.
std::vector<std::string> silenced(Block block) {
  switch (block) {
    case Block::attention:
    case Block::delta_net:
      return {"down_proj"};
    case Block::moe:
    case Block::dense_mlp:
      return {"o_proj"};
    case Block::embed_and_head:
      return {"down_proj", "o_proj"};
  }
  return {};
}

struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
  Weights weights;
};

/// Tokens whose expert choice rounding cannot change: the last chosen expert is clearly ahead.
std::vector<int32_t> decided_tokens(const Model& model) {
  std::vector<int32_t> tokens;
  const auto hidden = static_cast<size_t>(model.config.hidden);
  const auto rows_of = [&](const LinearSource& source) {
    const LinearWeight weight = model.weights.load(source).value();
    std::vector<float> rows(static_cast<size_t>(weight.rows * weight.cols));
    dequantize_rows(weight, 0, weight.rows, rows.data());
    return rows;
  };
  const std::vector<float> table = rows_of(model.weights.embedding());
  const std::vector<float> router = rows_of(model.weights.layers()[0].moe.router);
  const std::vector<float> norm = model.weights.load(model.weights.layers()[0].post_norm).value();
  for (int32_t token = 0; token < kVocab; ++token) {
    const float* h = &table[static_cast<size_t>(token) * hidden];
    double squares = 0.0;
    for (size_t i = 0; i < hidden; ++i) squares += double{h[i]} * h[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
    std::vector<double> logits;
    for (size_t e = 0; e < static_cast<size_t>(model.config.moe->experts); ++e) {
      double sum = 0.0;
      for (size_t i = 0; i < hidden; ++i)
        sum += router[e * hidden + i] * h[i] * scale * (1.0 + norm[i]);
      logits.push_back(sum);
    }
    std::ranges::sort(logits, std::greater());
    const auto k = static_cast<size_t>(model.config.moe->top_k);
    if (k == logits.size() || logits[k - 1] - logits[k] > 0.03) tokens.push_back(token);
  }
  return tokens;
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

class CudaBlock : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
  Model open(uint64_t seed) {
    const Case& c = GetParam();
    const auto folder = folder_.path() / concat(c.name, "-", models_++);
    write_synthetic_checkpoint(parse_json(config_text(c), c.name).value(), folder,
                               {.layout = c.layout,
                                .seed = seed,
                                .embedding_deviation = 0.02F,
                                .zero = silenced(c.block),
                                .declared = c.declared,
                                .fp8 = c.fp8})
        .value();
    Model model;
    model.checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder).value());
    model.config = ModelConfig::parse(model.checkpoint->config()).value();
    model.weights = Weights::bind(*model.checkpoint, model.config).value();
    return model;
  }
  /// The same passes on both sides, from a fresh seed.
  struct Sides {
    BackendOptions cuda, reference;
    decltype(&make_reference_backend) make_reference;
    decltype(&make_cuda_backend) make_cuda = make_cuda_backend;
    Arithmetic prompt = Arithmetic::prompt;
    double error_max = 0.0;
  };
  void compare(const Sides& sides);
  TemporaryFolder folder_;
  int models_ = 0;
};

void CudaBlock::compare(const Sides& sides) {
  const Case& c = GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(concat("seed ", seed));
  const Model model = open(seed);
  std::vector<int32_t> from(kVocab);
  std::iota(from.begin(), from.end(), 0);
  if (c.block == Block::moe) from = decided_tokens(model);
  ASSERT_GE(from.size(), 32U);
  std::mt19937_64 engine(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < c.prompt + 4; ++i) ids.push_back(from[engine() % from.size()]);

  const auto cuda = sides.make_cuda(model.weights, model.config, sides.cuda).value();
  const auto reference = sides.make_reference(model.weights, model.config, sides.reference).value();
  const SessionLimits limits{
      .sequences = 1, .tokens_max = c.prompt + 64, .rows_max = c.prompt + 64};
  TestSession expected(*reference, model.config, limits);
  TestSession found(*cuda, model.config, limits);
  const auto prompt = static_cast<size_t>(c.prompt);
  const auto pass = [&](size_t begin, size_t count, Arithmetic arithmetic, const char* what) {
    const TestSession::Feed feed{
        .sequence = 0, .tokens = std::span(ids).subspan(begin, count), .arithmetic = arithmetic};
    const double error = relative_rms(found.pass({feed}), expected.pass({feed}));
    std::fprintf(stderr, "%s, %s: relative rms %.2e\n", c.name, what, error);
    EXPECT_LE(error, sides.error_max) << what;
  };
  pass(0, prompt, sides.prompt, "prompt");
  pass(prompt, 1, Arithmetic::generation, "one generated row, recorded");
  pass(prompt + 1, 3, Arithmetic::generation, "three generated rows");
}

TEST_P(CudaBlock, NearTheReference) {
  const Case& c = GetParam();
  Sides sides{.cuda = {.kv_cache = c.kv, .state = c.state},
              .make_reference = c.odd ? make_reference_backend : make_bf16_prompt_reference_backend,
              .error_max = c.error_max};
  if (!c.declared.empty()) sides.cuda.activations = Activations::declared;
  sides.reference = sides.cuda;
  if (c.declared.empty()) sides.reference.activations = Activations::bf16;
  // If no prompt kernel supports the shape, a BF16 state is rounded after every row.
  if (c.odd && c.state == StateCache::bf16) sides.prompt = Arithmetic::generation;
  compare(sides);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlock, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

/// Products of codes, of 4 bits with the instruction in software, on the inputs that the reference
/// has: they are as near as products of the same numbers in BF16.
class CudaBlockCodes : public CudaBlock {};

TEST_P(CudaBlockCodes, AreNearTheReference) {
  const BackendOptions options{.activations = Activations::declared, .kv_cache = GetParam().kv};
  compare({.cuda = options,
           .reference = options,
           .make_reference = make_bf16_prompt_reference_backend,
           .make_cuda = make_fp4_emulating_backend,
           .error_max = GetParam().error_max});
}

/// The same where scales are the better of two, and with inputs widened to BF16 again.
TEST_P(CudaBlockCodes, FourOverSixIsNearTheReference) {
  const BackendOptions options{.activations = Activations::declared,
                               .input_scales = InputScales::four_over_six,
                               .kv_cache = GetParam().kv};
  for (const auto make : {make_fp4_emulating_backend, make_cuda_backend})
    compare({.cuda = options,
             .reference = options,
             .make_reference = make_bf16_prompt_reference_backend,
             .make_cuda = make,
             .error_max = GetParam().error_max});
}

std::vector<Case> code_cases() {
  std::vector<Case> cases;
  for (const Case& c : kCases)
    if (!c.declared.empty()) cases.push_back(c);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlockCodes, testing::ValuesIn(code_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

/// The same of products by tensor memory, by software in its place: matrices in blocks, groups of
/// experts. There up is rounded to BF16 before it meets gate, so a code of down's inputs turns now
/// and then.
class CudaBlockTensorMemory : public CudaBlock {};

Result<std::unique_ptr<Backend>> make_tensor_memory_backend(const Weights& weights,
                                                            const ModelConfig& config,
                                                            const BackendOptions& options) {
  auto backend = make_settled_cuda_backend(
      weights, config, options, {.activations = options.activations, .way = Fp4Products::blocks});
  if (backend.ok())
    EXPECT_NE(backend.value()->kernel_table().find("by tensor memory"), std::string::npos);
  return backend;
}

TEST_P(CudaBlockTensorMemory, IsNearTheReference) {
  const BackendOptions options{.activations = Activations::declared};
  compare({.cuda = options,
           .reference = options,
           .make_reference = make_bf16_prompt_reference_backend,
           .make_cuda = make_tensor_memory_backend,
           .error_max = kSteppedErrorMax});
}

std::vector<Case> tensor_memory_cases() {
  std::vector<Case> cases;
  for (const Case& c : kCases)
    if (!c.declared.empty() && c.layout == WeightLayout::nvfp4 &&
        (c.block == Block::embed_and_head || (c.hidden % 128 == 0 && c.width % 128 == 0)))
      cases.push_back(c);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlockTensorMemory, testing::ValuesIn(tensor_memory_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

/// With activations f32 the remaining differences are the order of sums and the bits that the
/// multipliers drop.
class CudaBlockF32 : public CudaBlock {};

TEST_P(CudaBlockF32, IsTheReference) {
  const bool stepped = GetParam().kv != KvCache::bf16;
  const BackendOptions options{.activations = Activations::f32,
                               .kv_cache = stepped ? GetParam().kv : KvCache::automatic};
  compare({.cuda = options,
           .reference = options,
           .make_reference = make_reference_backend,
           .error_max = !stepped ? kF32ErrorMax : kSteppedPagesErrorMax});
}

std::vector<Case> f32_cases() {
  std::vector<Case> cases;
  for (const Case& c : kCases)
    if (c.declared.empty() && c.state == StateCache::f32) cases.push_back(c);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlockF32, testing::ValuesIn(f32_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nibble
