// The choice of kernels of attention, without a card.
#include "backend/cuda/ops/attention/attention_select.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/testing/plan_tables.h"

namespace nibble::cuda {

std::string attention_lines(const std::string& name, const ModelConfig& config, KvFormat kv) {
  const AttentionConfig& a = config.attention;
  AttentionArgs args{.q_heads = a.q_heads,
                     .kv_heads = a.kv_heads,
                     .head_dim = a.head_dim,
                     .kv = {.format = kv},
                     .splits_max = kAttendSplitsMax};
  std::string out;
  for (const int each : {1, 4}) {
    out +=
        concat(name, ", attention of ", each, " rows of a sequence, pages in ", kv_traits(kv).name,
               ": ", attend_token_bytes(args), " bytes of a token of history\n");
    out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
      args.batch = {.rows = rows * each, .sequences = rows};
      const AttendPlan plan = select_attend(args, card);
      return concat(plan.text(), ", ", plan.blocks(std::min(rows * each, kAttendRowsMax)),
                    " blocks");
    });
  }
  out += concat(name, ", attention of prompts, pages in ", kv_traits(kv).name, "\n");
  return out + lines_of(std::span(kPromptRows).first(1), [&](int, const Architecture& card) {
           return select_flash({.shape = {.q_heads = a.q_heads,
                                          .kv_heads = a.kv_heads,
                                          .head_dim = a.head_dim},
                                .kv = {.format = kv}},
                               card)
               .text();
         });
}

namespace {

/// No plan asks for more shared memory than a card has.
TEST(AttentionSelectTest, PromptsFitTheirCards) {
  for (const Card& card : cards())
    for (const int head_dim : {64, 128, 256})
      for (const int group : {1, 2, 3, 8})
        for (const KvFormat kv : kPageFormats) {
          const FlashPlan plan =
              select_flash({.shape = {.q_heads = group, .kv_heads = 1, .head_dim = head_dim},
                            .kv = {.format = kv}},
                           card.facts);
          EXPECT_LE(plan.shared_bytes, card.facts.shared_bytes) << card.name << plan.text();
          EXPECT_EQ(group % plan.heads, 0) << plan.text();
        }
}

TEST(AttentionSelectTest, PortableKernelsAreChosenWhereTheyAreForced) {
  const FlashPrefill flash{.shape = {.q_heads = 16, .kv_heads = 2, .head_dim = 256}};
  EXPECT_EQ(select_flash(flash, portable_hopper()).matrix, FlashPlan::Matrix::mma_sync);
}

}  // namespace
}  // namespace nibble::cuda
