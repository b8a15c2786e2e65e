// Sums over the layers.
#include "backend/cuda/runtime/slot_layout.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kAlignedFloats = 64;

int64_t aligned_bytes(int64_t floats) {
  return (floats + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats * int64_t{sizeof(float)};
}

}  // namespace

int64_t states_floats(const ModelConfig& config, StateFormat format) {
  const DeltaNetConfig& d = config.delta_net;
  const int64_t numbers = int64_t{d.v_heads} * d.k_dim * d.v_dim;
  const int64_t bytes = config.count(LayerKind::delta_net) * numbers * state_element_bytes(format);
  return (bytes + 3) / 4;
}

int64_t convolution_floats(const ModelConfig& config) {
  const DeltaNetConfig& d = config.delta_net;
  return config.count(LayerKind::delta_net) * int64_t{d.conv_kernel - 1} * d.qkv_rows();
}

int64_t state_slot_bytes(const ModelConfig& config, StateFormat format) {
  return aligned_bytes(states_floats(config, format) + convolution_floats(config)) +
         aligned_bytes(config.draft_row());
}

int64_t saved_row_bytes(const ModelConfig& config) {
  const int64_t layers = config.count(LayerKind::delta_net);
  return aligned_bytes(layers * config.delta_net.saved_numbers()) +
         aligned_bytes(config.draft_row());
}

}  // namespace nibble::cuda
