// This file makes weights of a real shape without a file.
#include <cmath>

#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/weights/device_checks.h"
#include "backend/cuda/weights/weight_store.h"
#include "model/weights/synthetic_weights.h"

namespace nibble::cuda {
namespace {

/// Weights are normal with deviation 1 / sqrt(K); small tensors are constant.
class RandomFiller final : public WeightFiller {
 public:
  explicit RandomFiller(const Launcher& launcher) : launcher_(launcher) {}
  Result<void> linear(const LinearSource& source, const DeviceLinear& to) override {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(source.cols));
    fill_random(to, 1, deviation, ++seed_, launcher_);
    return {};
  }
  Result<void> vector(const VectorSource& source, Change change, float factor, float* to) override {
    const float value = factor * (change == Change::exponent  ? 0.05F
                                  : change == Change::add_one ? 1.0F
                                                              : 0.3F);
    const std::vector<float> values(static_cast<size_t>(source.shape.count()), value);
    copy_to_device(to, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    return {};
  }

 private:
  Launcher launcher_;
  uint32_t seed_ = 0;
};

}  // namespace

Result<WeightStore> WeightStore::random(const ModelConfig& config, const FormatOf& formats,
                                        const Launcher& launcher) {
  const SyntheticWeights weights = synthetic_weights(config, formats);
  RandomFiller filler(launcher);
  WeightStore store = TRY(build(*launcher.device,
                                {.embedding = weights.embedding,
                                 .head = weights.head,
                                 .final_norm = weights.final_norm,
                                 .layers = weights.layers,
                                 .mtp = weights.mtp,
                                 .vision = weights.vision},
                                config, filler));
  pack_vision(store.vision, launcher);
  return store;
}

}  // namespace nibble::cuda
