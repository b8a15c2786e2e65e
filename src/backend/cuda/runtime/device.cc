// Asks the driver for the facts. The runtime is linked statically, so this works, and says so,
// without a driver.
#include "backend/cuda/runtime/device.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_backend.h"

namespace nibble::cuda {
namespace {

Error unusable(std::string_view expected, const std::string& found) {
  return make_error(ErrorCode::unsupported, {.what = "backend cuda",
                                             .expected = expected,
                                             .found = found,
                                             .advice = "use --backend cpu"});
}

std::vector<CodeTarget> built_targets() {
  return parse_code_targets(NIBBLE_CUDA_TARGETS).value();  // CMake has checked the list
}

}  // namespace

Result<Device> open_device() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  TRY(check_driver(driver, CUDART_VERSION));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    return unusable("an NVIDIA card", status == cudaSuccess ? "none" : cudaGetErrorString(status));
  cudaDeviceProp properties = {};
  if (const cudaError_t failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess)
    return unusable("a card that answers", cudaGetErrorString(failed));
  const CardFacts facts{.name = properties.name,
                        .major = properties.major,
                        .minor = properties.minor,
                        .driver = driver};
  const CodeTarget code = TRY(code_for(facts, built_targets(), CUDART_VERSION));
  Device device{.name = properties.name,
                .compute_major = properties.major,
                .compute_minor = properties.minor,
                .multiprocessors = properties.multiProcessorCount,
                .shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin),
                .code = code};
  if (const cudaError_t failed = cudaSetDevice(0); failed != cudaSuccess)
    return unusable("a card that is free", cudaGetErrorString(failed));
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  if (const cudaError_t failed = cudaMemGetInfo(&free_bytes, &all_bytes); failed != cudaSuccess)
    return unusable("a card that is free", cudaGetErrorString(failed));
  device.memory_bytes = static_cast<int64_t>(all_bytes);
  device.free_bytes = static_cast<int64_t>(free_bytes);
  return device;
}

}  // namespace nibble::cuda

namespace nibble {

Result<std::string> describe_cuda_device() {
  const cuda::Device device = TRY(cuda::open_device());
  return concat(device.name, ", compute capability ", device.compute_major, ".",
                device.compute_minor, ", ", device.memory_bytes >> 20, " MiB, ",
                device.code.name());
}

std::string describe_cuda_code() {
  return concat(cuda::code_targets_text(cuda::built_targets()), " (CUDA ", CUDART_VERSION / 1000,
                ".", CUDART_VERSION % 1000 / 10, ")");
}

}  // namespace nibble
