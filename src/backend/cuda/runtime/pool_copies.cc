// One run is a plain copy; several are a batch of copies, which the driver takes in one call.
#include "backend/cuda/runtime/pool_copies.h"

#include <vector>

namespace nibble::cuda {

void queue_moves(const PoolMemory& pool, CacheMove move, std::span<const IdPair> ids,
                 cudaStream_t stream) {
  const auto place = [&](bool host, int32_t id, int32_t count) {
    const int64_t begin = id * pool.bytes_each;
    const int64_t end = begin + count * pool.bytes_each;
    const std::span<std::byte> memory = host ? pool.host : pool.device;
    CHECK(id >= 0 && end <= std::ssize(memory), "id ", id + count - 1, " of ", memory.size(),
          " bytes, ", pool.bytes_each, " each");
    return memory.data() + begin;
  };
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
  for (const IdRun& run : adjacent_runs(move, ids)) {
    from.push_back(place(move == CacheMove::load, run.from, run.count));
    to.push_back(place(move == CacheMove::store, run.to, run.count));
    bytes.push_back(static_cast<size_t>(run.count * pool.bytes_each));
  }
  if (to.empty() || pool.bytes_each == 0) return;
  if (to.size() == 1) {
    const cudaMemcpyKind kind = move == CacheMove::store  ? cudaMemcpyDeviceToHost
                                : move == CacheMove::load ? cudaMemcpyHostToDevice
                                                          : cudaMemcpyDeviceToDevice;
    CUDA_CHECK(cudaMemcpyAsync(to[0], from[0], bytes[0], kind, stream));
    return;
  }
  cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
  size_t first = 0;  // copy that these attributes begin with
  CUDA_CHECK(cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), to.size(), &attributes,
                                  &first, 1, stream));
}

}  // namespace nibble::cuda
