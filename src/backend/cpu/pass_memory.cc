// The workspace counts itself; the lists of a pass are counted here, by formula and as they are
// held.
#include "backend/cpu/pass_memory.h"

#include "backend/cpu/context.h"

namespace nibble::cpu {

void Routing::reserve(const MoeConfig& moe, int64_t rows) {
  const auto bounds = static_cast<size_t>(moe.experts) + 1;
  const auto routed = static_cast<size_t>(rows * moe.top_k);
  *this = {};
  begin.reserve(bounds);
  next.reserve(bounds);
  experts.resize(routed);
  weights.resize(routed);
  places.resize(routed);
  sources.resize(routed);
}

int64_t Routing::bytes_of(const MoeConfig& moe, int64_t rows) {
  const int64_t routed = rows * moe.top_k;
  return 2 * (int64_t{moe.experts} + 1) * int64_t{sizeof(int32_t)} +
         routed * int64_t{3 * sizeof(int32_t) + sizeof(float)};
}

int64_t Routing::bytes() const {
  const size_t ints = experts.capacity() + places.capacity() + sources.capacity() +
                      begin.capacity() + next.capacity();
  return static_cast<int64_t>(ints * sizeof(int32_t) + weights.capacity() * sizeof(float));
}

size_t calls_most(const ModelConfig& config) {
  constexpr size_t kOfMixer = 4;
  return config.moe ? 2 * (static_cast<size_t>(config.moe->experts) + 1) : kOfMixer;
}

int64_t pass_memory_bytes(const ModelConfig& config, const PoolSizes& sizes,
                          Activations activations) {
  const size_t calls = calls_most(config);
  int64_t bytes = Workspace::bytes_of(config, workspace_rows(sizes)) +
                  LinearRunner::bytes_of(settled_activations(activations), calls,
                                         block_input_floats(config, sizes.rows_max));
  if (config.moe)
    bytes += Routing::bytes_of(*config.moe, sizes.rows_max) +
             static_cast<int64_t>(calls * sizeof(LinearCall));
  return bytes;
}

Activations settled_activations(Activations activations) {
  return activations == Activations::automatic ? Activations::int8 : activations;
}

}  // namespace nibble::cpu
