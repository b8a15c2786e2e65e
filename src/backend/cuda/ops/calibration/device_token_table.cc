// All inputs' weights are sent as one list, their tokens as another.
#include "backend/cuda/ops/calibration/weighed_rows.h"

namespace nibble::cuda {
namespace {

constexpr std::string_view kWhat = "sums of calibration";

template <typename T>
Result<void> send(DeviceContext& device, const std::vector<T>& from, DeviceBuffer& to,
                  cudaStream_t stream) {
  const auto bytes = std::ssize(from) * int64_t{sizeof(T)};
  TRY(grow(device, to, bytes));
  CUDA_CHECK(cudaMemcpyAsync(to.as<void>(), from.data(), static_cast<size_t>(bytes),
                             cudaMemcpyHostToDevice, stream));
  return {};
}

}  // namespace

Result<void> grow(DeviceContext& device, DeviceBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() >= bytes) return {};
  buffer = DeviceBuffer();
  buffer = TRY(DeviceBuffer::allocate(device, bytes, kWhat));
  return {};
}

Result<void> DeviceTokenTable::place(DeviceContext& device,
                                     std::span<const TokenWeights* const> inputs,
                                     cudaStream_t stream) {
  std::vector<float> weights;
  std::vector<int32_t> tokens;
  for (const TokenWeights* one : inputs) {
    if (one == nullptr) continue;
    weights.insert(weights.end(), one->weights.begin(), one->weights.end());
    tokens.insert(tokens.end(), one->tokens.begin(), one->tokens.end());
  }
  TRY(send(device, weights, weights_, stream));
  TRY(send(device, tokens, tokens_, stream));
  std::vector<DeviceTokenWeights> table;
  const float* weight = weights_.as<float>();
  const int32_t* token = tokens_.as<int32_t>();
  for (const TokenWeights* one : inputs) {
    DeviceTokenWeights& to = table.emplace_back();
    if (one == nullptr) continue;
    to = {.tokens = one->tokens.empty() ? nullptr : token,
          .weights = weight,
          .count = static_cast<int32_t>(one->weights.size()),
          .other = one->other};
    weight += one->weights.size();
    token += one->tokens.size();
  }
  TRY(send(device, table, table_, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));  // what was sent ends here
  return {};
}

}  // namespace nibble::cuda
