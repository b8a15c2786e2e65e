// For block_test.cc: the shapes of blocks, and how far each may be from the reference.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "model/backend.h"
#include "model/synthetic/synthetic_checkpoint.h"

namespace nibble::block_cases {

inline constexpr double kErrorMax = 4e-3;  // relative rms, BF16
/// The bar of a product whose declared input is the output of attention or a delta net: where that
/// differs in its last bits, a code changes by a whole step now and then.
inline constexpr double kSteppedErrorMax = 4e-2;
/// The bar of FP8 inputs with a factor per group, which meet the matrix as bf16(code * scale):
/// scores amplify that 2^-9 (6.2e-3 was the most of four random runs).
inline constexpr double kGroupedErrorMax = 1.5e-2;
/// The bar of a BF16 state with few heads: prompts leave states that differ by 3.4e-3, and rounding
/// them adds whole steps of 2^-8, averaged over few numbers (4.1e-3 was the most of nine random
/// runs).
inline constexpr double kRoundedStateErrorMax = 8e-3;
/// For blocks of few numbers: a single rounding to BF16 that falls the other way is a large part of
/// one row. Attention of 3 heads of 20 numbers had at most 3.2e-3 in 121 random runs and 4.5e-3 in
/// one more; the delta rule of 4 heads of 32 had 4.2e-3 once.
inline constexpr double kFewNumbersErrorMax = 8e-3;
/// With pages in E4M3, where a key or value differs in its last BF16 bits, its code now and then
/// differs by a whole step of 2^-4 (4.7e-3 was the largest error of the random runs so far).
inline constexpr double kFp8PagesErrorMax = 8e-3;
/// With pages of 4 bits fewer codes turn, by larger steps: of a third of a key's deviation (5.3e-3
/// was the largest error of two runs on an H100).
inline constexpr double kFourBitPagesErrorMax = 1e-2;
inline constexpr double kF32ErrorMax = 1e-5;
/// In F32 with pages of 8 or 4 bits: where a number differs in its last bits, a code turns now and
/// then. The most of some ten random runs with one key's code turned was 2.1e-3, beside 3e-7 with
/// none.
inline constexpr double kSteppedPagesErrorMax = 4e-3;
inline constexpr int kVocab = 512;

enum class Block : uint8_t { embed_and_head, attention, delta_net, moe, dense_mlp };

/// One layer of a shape.
struct Case {
  const char* name;
  Block block;
  WeightLayout layout = WeightLayout::bf16;
  int hidden = 2048;
  int q_heads = 16, kv_heads = 2, head_dim = 256;
  int k_heads = 16, v_heads = 32, k_dim = 128, v_dim = 128;
  int experts = 256, top_k = 8, width = 512, shared_width = 512;
  int vocab = kVocab;
  int prompt = 24;  // rows; then four generated ones
  KvCache kv = KvCache::bf16;
  StateCache state = StateCache::f32;
  bool odd = false;  // the prompt kernels do not hold the shape: generation arithmetic throughout
  std::vector<std::string> declared;  // modules whose inputs are rounded as the file declares
  SyntheticFp8 fp8 = SyntheticFp8::by_token;
  double error_max = kErrorMax;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Shapes of more than one row.
inline const Case kAttentionLong = {.name = "attention_long",
                                    .block = Block::attention,
                                    .hidden = 128,
                                    .q_heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 128,
                                    .prompt = 700};
inline const Case kAttentionOdd = {.name = "attention_odd",
                                   .block = Block::attention,
                                   .hidden = 96,
                                   .q_heads = 3,
                                   .kv_heads = 1,
                                   .head_dim = 20,
                                   .prompt = 150,
                                   .odd = true,
                                   .error_max = kFewNumbersErrorMax};
inline const Case kDeltaNetSmall = {.name = "delta_net_small",
                                    .block = Block::delta_net,
                                    .hidden = 128,
                                    .k_heads = 2,
                                    .v_heads = 4,
                                    .k_dim = 32,
                                    .v_dim = 32,
                                    .prompt = 200,
                                    .error_max = kFewNumbersErrorMax};
inline const Case kHeadStreamed = {.name = "head_streamed_nvfp4",
                                   .block = Block::embed_and_head,
                                   .layout = WeightLayout::mixed,
                                   .hidden = 512,
                                   .vocab = 65536,
                                   .prompt = 3};
inline Case with_pages(Case base, const char* name, KvCache kv, double error_max) {
  base.name = name;
  base.kv = kv;
  base.error_max = error_max;
  return base;
}
inline Case with_bf16_state(Case base, const char* name, double error_max) {
  base.name = name;
  base.state = StateCache::bf16;
  base.error_max = error_max;
  return base;
}
inline Case with_layout(Case base, const char* name, WeightLayout layout) {
  base.name = name;
  base.layout = layout;
  return base;
}

inline const Case kCases[] = {
    {.name = "attention_35b", .block = Block::attention},
    {.name = "attention_35b_fp8", .block = Block::attention, .layout = WeightLayout::mixed},
    {.name = "attention_35b_kv_fp8",
     .block = Block::attention,
     .kv = KvCache::fp8,
     .error_max = kFp8PagesErrorMax},
    with_pages(kAttentionLong, "attention_long_kv_fp8", KvCache::fp8, kFp8PagesErrorMax),
    {.name = "attention_35b_kv_turboquant",
     .block = Block::attention,
     .kv = KvCache::turboquant_4bit_nc,
     .error_max = kFourBitPagesErrorMax},
    {.name = "attention_35b_kv_nvfp4",
     .block = Block::attention,
     .kv = KvCache::nvfp4,
     .error_max = kFourBitPagesErrorMax},
    with_pages(kAttentionOdd, "attention_odd_kv_fp8", KvCache::fp8, kFewNumbersErrorMax),
    {.name = "delta_net_35b", .block = Block::delta_net, .prompt = 70},
    {.name = "delta_net_35b_fp8", .block = Block::delta_net, .layout = WeightLayout::mixed},
    {.name = "delta_net_35b_state_bf16",
     .block = Block::delta_net,
     .prompt = 200,
     .state = StateCache::bf16},
    {.name = "moe_35b_nvfp4", .block = Block::moe, .layout = WeightLayout::mixed},
    {.name = "moe_35b_fp8", .block = Block::moe, .layout = WeightLayout::fp8, .experts = 64},
    {.name = "moe_35b_bf16", .block = Block::moe, .experts = 64},
    {.name = "moe_fp8_by_block",
     .block = Block::moe,
     .layout = WeightLayout::fp8,
     .hidden = 384,
     .experts = 12,
     .top_k = 3,
     .width = 128,
     .shared_width = 256,
     .prompt = 90,
     .fp8 = SyntheticFp8::by_block},
    {.name = "embed_and_head", .block = Block::embed_and_head},
    kHeadStreamed,
    with_layout(kHeadStreamed, "head_streamed_fp8", WeightLayout::fp8),
    {.name = "embed_and_head_nvfp4",
     .block = Block::embed_and_head,
     .layout = WeightLayout::mixed,
     .hidden = 320},
    {.name = "attention_27b",
     .block = Block::attention,
     .hidden = 5120,
     .q_heads = 24,
     .kv_heads = 4,
     .prompt = 5},
    {.name = "dense_27b",
     .block = Block::dense_mlp,
     .layout = WeightLayout::mixed,
     .hidden = 5120,
     .width = 17408,
     .prompt = 3},
    {.name = "dense_9b",
     .block = Block::dense_mlp,
     .layout = WeightLayout::mixed,
     .hidden = 4096,
     .width = 12288,
     .prompt = 3},
    kAttentionLong,
    kAttentionOdd,
    {.name = "attention_wide_group",
     .block = Block::attention,
     .hidden = 192,
     .q_heads = 10,
     .kv_heads = 1,
     .head_dim = 64,
     .prompt = 130},
    {.name = "delta_net_odd",
     .block = Block::delta_net,
     .hidden = 96,
     .k_heads = 1,
     .v_heads = 3,
     .k_dim = 24,
     .v_dim = 40,
     .prompt = 150,
     .odd = true},
    kDeltaNetSmall,
    {.name = "delta_net_odd_state_bf16",
     .block = Block::delta_net,
     .hidden = 96,
     .k_heads = 1,
     .v_heads = 4,
     .k_dim = 24,
     .v_dim = 38,
     .prompt = 150,
     .state = StateCache::bf16,
     .odd = true},
    with_bf16_state(kDeltaNetSmall, "delta_net_small_state_bf16", kRoundedStateErrorMax),
    {.name = "moe_odd",
     .block = Block::moe,
     .hidden = 160,
     .experts = 7,
     .top_k = 3,
     .width = 48,
     .shared_width = 80,
     .prompt = 90},
    {.name = "moe_without_shared",
     .block = Block::moe,
     .layout = WeightLayout::mixed,
     .hidden = 128,
     .experts = 16,
     .top_k = 4,
     .width = 64,
     .shared_width = 64,
     .prompt = 90},
    {.name = "dense_odd", .block = Block::dense_mlp, .hidden = 224, .width = 208, .prompt = 90},
    {.name = "attention_35b_declared_inputs",
     .block = Block::attention,
     .layout = WeightLayout::nvfp4,
     .declared = {"q_proj", "k_proj"}},
    {.name = "attention_35b_declared",
     .block = Block::attention,
     .layout = WeightLayout::nvfp4,
     .declared = {"q_proj", "k_proj", "v_proj", "o_proj"},
     .error_max = kSteppedErrorMax},
    {.name = "attention_declared_per_token",
     .block = Block::attention,
     .layout = WeightLayout::mixed,
     .declared = {"q_proj", "k_proj", "v_proj", "o_proj"},
     .error_max = kSteppedErrorMax},
    {.name = "delta_net_declared_per_token",
     .block = Block::delta_net,
     .layout = WeightLayout::mixed,
     .prompt = 70,
     .declared = {"in_proj_qkv", "in_proj_z", "out_proj"},
     .error_max = kSteppedErrorMax},
    {.name = "delta_net_declared_static",
     .block = Block::delta_net,
     .layout = WeightLayout::mixed,
     .prompt = 70,
     .declared = {"in_proj_qkv", "in_proj_z"},
     .fp8 = SyntheticFp8::by_tensor},
    {.name = "attention_declared_by_block",
     .block = Block::attention,
     .layout = WeightLayout::mixed,
     .declared = {"q_proj", "k_proj", "v_proj"},
     .fp8 = SyntheticFp8::by_block,
     .error_max = kGroupedErrorMax},
    {.name = "moe_35b_declared",
     .block = Block::moe,
     .layout = WeightLayout::nvfp4,
     .experts = 32,
     .declared = {"gate_proj", "up_proj", "down_proj"}},
    {.name = "moe_declared_experts",
     .block = Block::moe,
     .layout = WeightLayout::nvfp4,
     .hidden = 192,
     .experts = 12,
     .top_k = 5,
     .width = 64,
     .shared_width = 128,
     .prompt = 130,
     .declared = {"gate_proj", "up_proj"}},
    {.name = "moe_declared_by_block",
     .block = Block::moe,
     .layout = WeightLayout::fp8,
     .hidden = 384,
     .experts = 12,
     .top_k = 3,
     .width = 128,
     .shared_width = 256,
     .prompt = 90,
     .declared = {"gate_proj", "up_proj", "down_proj"},
     .fp8 = SyntheticFp8::by_block,
     .error_max = kSteppedErrorMax},
    {.name = "dense_declared",
     .block = Block::dense_mlp,
     .layout = WeightLayout::nvfp4,
     .hidden = 320,
     .width = 704,
     .prompt = 90,
     .declared = {"gate_proj", "up_proj", "down_proj"}},
    {.name = "moe_declared_whole_blocks",
     .block = Block::moe,
     .layout = WeightLayout::nvfp4,
     .hidden = 256,
     .experts = 12,
     .top_k = 5,
     .width = 128,
     .shared_width = 256,
     .prompt = 130,
     .declared = {"gate_proj", "up_proj", "down_proj"}},
    {.name = "dense_declared_whole_blocks",
     .block = Block::dense_mlp,
     .layout = WeightLayout::nvfp4,
     .hidden = 384,
     .width = 640,
     .prompt = 90,
     .declared = {"gate_proj", "up_proj", "down_proj"}},
    {.name = "head_declared",
     .block = Block::embed_and_head,
     .layout = WeightLayout::nvfp4,
     .hidden = 320,
     .declared = {"lm_head"}},
};

}  // namespace nibble::block_cases
