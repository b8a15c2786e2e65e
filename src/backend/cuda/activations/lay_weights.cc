// A walk over the linears of the model.
#include "backend/cuda/activations/lay_weights.h"

#include "backend/cuda/ops/quantized/lay_blocks.h"
#include "backend/cuda/ops/quantized/quantized_select.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kScratchBytes = int64_t{64} << 20;

class Layer {
 public:
  Layer(const DeviceBuffer& scratch, const Launcher& launcher)
      : scratch_(scratch.as<uint8_t>(), static_cast<size_t>(scratch.bytes())),
        launcher_(launcher) {}

  void linear(DeviceLinear& weight) const {
    if (fits_blocks(weight)) lay(weight, 1, CodeOrder::blocks);
  }
  /// `count`: the matrices of each stack.
  void mlp(MlpWeights& weights, int64_t count) const {
    if (!fits_blocks(weights.gate, weights.up, weights.down)) return;
    lay(weights.gate, count, CodeOrder::paired_blocks);
    lay(weights.up, count, CodeOrder::paired_blocks);
    lay(weights.down, count, CodeOrder::act_blocks);
  }

 private:
  void lay(DeviceLinear& weight, int64_t count, CodeOrder order) const {
    lay_blocks(weight, count, order, scratch_, launcher_);
    weight.order = order;
  }

  std::span<uint8_t> scratch_;
  const Launcher& launcher_;
};

}  // namespace

Result<void> lay_weights(WeightStore& weights, const ModelConfig& config,
                         const Launcher& launcher) {
  const DeviceBuffer scratch =
      TRY(DeviceBuffer::allocate(*launcher.device, kScratchBytes, "the order of weights"));
  const Layer layer(scratch, launcher);
  layer.linear(weights.head);
  for (LayerWeights& w : weights.layers) {
    for (DeviceLinear* each : {&w.attention.q, &w.attention.k, &w.attention.v, &w.attention.o,
                               &w.delta_net.qkv, &w.delta_net.z, &w.delta_net.out})
      layer.linear(*each);
    layer.mlp(w.dense_mlp, 1);
    layer.mlp(w.moe.shared, 1);
    if (config.moe) layer.mlp(w.moe.experts, config.moe->experts);
  }
  CUDA_CHECK(cudaStreamSynchronize(launcher.stream));
  return {};
}

}  // namespace nibble::cuda
