// This file is the CUDA backend of a build without a CUDA toolkit.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/layer_runner.h"
#include "backend/cuda/proof/card_receipt.h"
#include "backend/cuda/proof/fp4_harness.h"
#include "base/check.h"

namespace nibble {

Result<std::string> describe_cuda_device() {
  return make_error(ErrorCode::unsupported,
                    {.what = "backend cuda",
                     .found = "a build without CUDA",
                     .advice = "configure with -DNIBBLE_CUDA=ON where nvcc is installed"});
}

std::string describe_cuda_code() { return "none (built without NIBBLE_CUDA)"; }

Result<std::unique_ptr<Backend>> make_cuda_backend(const Weights&, const ModelConfig&,
                                                   const BackendOptions&) {
  return describe_cuda_device().error();
}

Result<std::unique_ptr<Backend>> make_settled_cuda_backend(const Weights&, const ModelConfig&,
                                                           const BackendOptions&,
                                                           const ProductsChoice&) {
  return describe_cuda_device().error();
}

Result<std::unique_ptr<Backend>> make_fp4_emulating_backend(const Weights&, const ModelConfig&,
                                                            const BackendOptions&) {
  return describe_cuda_device().error();
}

Result<std::unique_ptr<Backend>> make_random_cuda_backend(const ModelConfig&, const FormatOf&,
                                                          const BackendOptions&) {
  return describe_cuda_device().error();
}

Result<std::unique_ptr<LayerRunner>> make_cuda_layer_runner(const Weights&, const ModelConfig&,
                                                            const CardLimit&) {
  return describe_cuda_device().error();
}

Result<CardIdentity> card_identity(const CardLimit&) { return describe_cuda_device().error(); }

Result<Fp4HarnessResult> run_fp4_harness(Fp4Products, cuda::Fp4Fault) {
  return describe_cuda_device().error();
}

void outlive_card() {}

Result<void> check_card(const std::function<void(const CheckedPart&)>&) {
  return describe_cuda_device().error();
}

Result<std::vector<CardFigure>> time_card(double) { return describe_cuda_device().error(); }

}  // namespace nibble
