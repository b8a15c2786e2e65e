// The choice of kernels of the delta net, without a card.
#include "backend/cuda/ops/delta_net/delta_select.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/testing/plan_tables.h"
#include "backend/cuda/workspace.h"

namespace nibble::cuda {

std::string delta_net_lines(const std::string& name, const ModelConfig& config, StateFormat state) {
  const std::string_view state_name = state == StateFormat::bf16 ? "bf16" : "f32";
  const DeltaNetConfig& d = config.delta_net;
  const float number = 0.0F;
  DeltaNetArgs args{.k_heads = d.k_heads,
                    .v_heads = d.v_heads,
                    .k_dim = d.k_dim,
                    .v_dim = d.v_dim,
                    .taps = d.conv_kernel,
                    .state = {.format = state}};
  std::string out;
  for (const bool convolved : {false, true})
    for (const int each : {1, 4}) {
      args.qkv = convolved ? nullptr : &number;
      args.batch = {.rows = 1, .sequences = 1};
      out += concat(name, ", delta net of ", each, " rows of a sequence",
                    convolved ? ", convolved by the product" : "", ", state in ", state_name, ": ",
                    delta_state_bytes(args), " bytes of states for 1 sequence\n");
      out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
        args.batch = {.rows = rows * each, .sequences = rows};
        return select_delta_net(args, card).text();
      });
    }
  for (const DeltaRuns runs : {DeltaRuns::one, DeltaRuns::several}) {
    out +=
        concat(name, ", delta net of ", runs == DeltaRuns::one ? "one prompt" : "several prompts",
               ", state in ", state_name, "\n");
    out += lines_of(std::span(kPromptRows).first(1), [&](int, const Architecture& card) {
      return select_delta_chunk(delta_shape(config), state, runs, card).text();
    });
  }
  return out;
}

namespace {

TEST(DeltaSelectTest, PromptsFitTheirCards) {
  for (const Card& card : cards())
    for (const int k_dim : {32, 64, 128})
      for (const DeltaRuns runs : {DeltaRuns::one, DeltaRuns::several}) {
        const DeltaChunkPlan plan =
            select_delta_chunk({.k_dim = k_dim}, StateFormat::f32, runs, card.facts);
        EXPECT_LE(plan.resident * plan.shared_bytes, card.facts.shared_bytes) << plan.text();
      }
}

TEST(DeltaSelectTest, PortableKernelsAreChosenWhereTheyAreForced) {
  Architecture card = portable_hopper();
  DeltaNetArgs args{.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128, .taps = 4};
  args.batch = {.rows = 64, .sequences = 64};
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::portable);
  card.kernels = Architecture::Kernels::native;
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::stream);
  args.kernels = DeltaNetKernels::in_parts;
  EXPECT_EQ(select_delta_net(args, card).kernel, DeltaNetPlan::Kernel::portable);
}

}  // namespace
}  // namespace nibble::cuda
