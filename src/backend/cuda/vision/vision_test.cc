// The vision tower of a card against transformers: rows, logits of prompts with media, and the same
// bits however the work is cut. Bars: BF16 weights and rows between operations.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "testing/vision_checks.h"

namespace nibble {
namespace {

constexpr double kRowsErrorMax = 2e-2;
/// Logits pass through a text model in BF16 too: they differ by 1.33e-2 on an H100, and by 3.2e-2
/// on a CPU that rounds the inputs of all linears (cpu/vision_test.cc).
constexpr double kLogitsErrorMax = 2e-2;

class CudaVision : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
  static VisionChecks checks(double error_max, const BackendOptions& options = {}) {
    return {"pebble", make_cuda_backend, options, error_max};
  }
};

TEST_F(CudaVision, RowsOfTheTower) {
  VisionChecks rows = checks(kRowsErrorMax);
  rows.expect_rows();
  rows.report();
}

TEST_F(CudaVision, LogitsWithMedia) {
  VisionChecks logits = checks(kLogitsErrorMax);
  for (const int piece : {0, 64}) logits.expect_logits(piece);
  logits.report();
}

TEST_F(CudaVision, PortableKernels) {
  VisionChecks rows = checks(kRowsErrorMax, {.card = {.portable_kernels = true}});
  rows.expect_rows();
  rows.report();
}

TEST_F(CudaVision, SameBitsInEveryCut) {
  checks(kRowsErrorMax).expect_same_bits(make_cuda_backend, {BackendOptions{}});
}

TEST_F(CudaVision, NumbersThatAreNotFiniteAreSeen) {
  checks(kRowsErrorMax).expect_not_finite_rows_to_be_seen();
}

TEST_F(CudaVision, RowsComeBackFromHostMemory) {
  checks(kRowsErrorMax).expect_rows_to_come_back_from_host();
}

}  // namespace
}  // namespace nibble
