// A model has layers of both kinds and experts that all rows choose, so that no choice depends on a
// last bit.
#include "cli/card/model_check.h"

#include <chrono>
#include <cmath>
#include <random>

#include "backend/reference/reference_backend.h"
#include "base/json.h"
#include "eval/teacher_forced.h"
#include "model/synthetic/synthetic_numbers.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

/// The relative root mean square that random models may be off: a few thousandths come from sums in
/// another order, which roundings to BF16 and whole layers enlarge; a kernel that computes
/// something else is off by a tenth and more.
constexpr double kErrorMax = 2e-2;
constexpr int kPrompt = 70;  // more than a page
constexpr int kGenerated = 3;
constexpr uint64_t kSeed = 3;

constexpr std::string_view kConfig = R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe", "tie_word_embeddings": false, "text_config": {"hidden_size": 256,
  "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention",
  "linear_attention"], "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
  "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
  "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 4,
  "num_experts_per_tok": 4, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
  "vocab_size": 500, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06,
  "hidden_act": "silu", "attn_output_gate": true, "eos_token_id": 1,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
    "partial_rotary_factor": 0.5, "mrope_interleaved": true, "mrope_section": [6, 5, 5]}}})";

struct Layout {
  const char* name;
  WeightLayout weights;
};
constexpr Layout kLayouts[] = {{"bf16", WeightLayout::bf16},
                               {"mixed", WeightLayout::mixed},
                               {"nvfp4", WeightLayout::nvfp4},
                               {"fp8", WeightLayout::fp8}};

/// The logits of a sequence, `piece` rows at a time.
Result<std::vector<float>> logits_of(Backend& backend, const ModelConfig& config,
                                     Arithmetic arithmetic, size_t piece) {
  std::mt19937 random(kSeed);
  std::vector<int32_t> ids;
  for (int i = 0; i < (arithmetic == Arithmetic::prompt ? kPrompt : kGenerated); ++i)
    ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(config.vocab_rows)));
  auto run = TRY(TeacherForced::create(backend, config, {.tokens = std::ssize(ids)}, arithmetic));
  TRY(run.begin(std::ssize(ids)));
  std::vector<float> all;
  for (size_t at = 0; at < ids.size(); at += piece) {
    const auto some = TRY(run.next(std::span(ids).subspan(at, std::min(piece, ids.size() - at))));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

double relative_rms(const std::vector<float>& found, const std::vector<float>& wanted) {
  double error = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(double{found[i]} - wanted[i], 2);
    size += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(error / size);
}

Result<void> check_layout(const MakeBackend& make, const ModelConfig& config, const Layout& layout,
                          CheckedPart& part) {
  SyntheticWeights places = synthetic_weights(config, formats_of(layout.weights));
  const SyntheticTensors tensors(places, config, kSeed);
  const Weights weights = Weights::made_up(tensors, std::move(places));
  const BackendOptions options{.activations = Activations::bf16, .kv_cache = KvCache::bf16};
  const auto card = TRY(make(weights, config, options));
  const auto reference = TRY(make_bf16_prompt_reference_backend(weights, config, options));
  for (const Arithmetic arithmetic : {Arithmetic::prompt, Arithmetic::generation}) {
    const size_t piece = arithmetic == Arithmetic::prompt ? 64 : 1;
    auto found = logits_of(*card, config, arithmetic, piece);
    TRY(card->alive());  // of a lost card numbers are not finite either
    const double error =
        relative_rms(TRY(std::move(found)), TRY(logits_of(*reference, config, arithmetic, piece)));
    const bool fine = error < kErrorMax;  // NaN fails
    ++(fine ? part.passed : part.failed);
    if (!fine)
      part.failures.push_back(
          concat(layout.name, arithmetic == Arithmetic::prompt ? ", prompt" : ", generated rows"));
    if (!(error <= part.worst)) part.worst = error;
  }
  return {};
}

}  // namespace

Result<CheckedPart> check_small_models(const MakeBackend& make, std::string ran) {
  const Json text = TRY(parse_json(kConfig, "a small model"));
  const ModelConfig config = TRY(ModelConfig::parse(text));
  CheckedPart part{.name = kSmallModels, .ran = std::move(ran)};
  const auto begin = std::chrono::steady_clock::now();
  for (const Layout& layout : kLayouts) TRY(check_layout(make, config, layout, part));
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  part.seconds = spent.count();
  return part;
}

}  // namespace nibble
