// The choice of kernels that choose experts, without a card.
#include "backend/cuda/ops/route/route_select.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/testing/plan_tables.h"

namespace nibble::cuda {

std::string route_lines(const std::string& name, const ModelConfig& config) {
  const MoeConfig& m = *config.moe;
  std::string out = concat(name, ", choice of ", m.top_k, " of ", m.experts, " experts\n");
  out += lines_of(kFewRows, [&](int rows, const Architecture& card) {
    return select_route({.rows = rows, .experts = m.experts, .top_k = m.top_k}, card).text();
  });
  return out + concat(name, ", choice of experts in prompts: ",
                      select_route({.experts = m.experts, .top_k = m.top_k}).text(), "\n");
}

namespace {

TEST(RouteSelectTest, PortableKernelsAreChosenWhereTheyAreForced) {
  EXPECT_EQ(select_route({.rows = 1, .experts = 8, .top_k = 2}, portable_hopper()).kernel,
            RoutePlan::Kernel::block);
}

}  // namespace
}  // namespace nibble::cuda
