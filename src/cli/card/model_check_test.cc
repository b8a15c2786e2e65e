// The small models of a receipt on a CPU, which is sound, and on one that is made to compute
// something else.
#include "cli/card/model_check.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"

namespace nibble {
namespace {

TEST(SmallModels, ASoundBackendPasses) {
  const auto part = check_small_models(make_cpu_backend, "a CPU");
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part.value().passed, 8) << part.value().worst;
  EXPECT_EQ(part.value().failed, 0) << part.value().worst;
  EXPECT_GT(part.value().worst, 0);
  std::fprintf(stderr, "small models on a CPU: relative rms %.2e at most\n", part.value().worst);
}

TEST(SmallModels, AWrongOneIsNamed) {
  const auto wrong = [](const Weights& weights, const ModelConfig& config,
                        const BackendOptions& options) {
    ModelConfig other = config;
    other.rms_eps = 0.3;
    return make_cpu_backend(weights, other, options);
  };
  const auto part = check_small_models(wrong, "a CPU");
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part.value().failed, 8) << part.value().worst;
  ASSERT_EQ(std::ssize(part.value().failures), part.value().failed);
  EXPECT_EQ(part.value().failures.front(), "bf16, prompt");
}

}  // namespace
}  // namespace nibble
