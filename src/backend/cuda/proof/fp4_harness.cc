// The device compares all cases with the software there (products in FP8: with double), and the
// host each 61st of what the device made of 4-bit codes.
#include "backend/cuda/proof/fp4_harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cuda/ops/quantized/fp4_proof.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/selection.h"

namespace nibble {
namespace {

using namespace cuda;

constexpr int kHostStep = 61;  // no divisor of the selectors: each of them is met
constexpr int kHostCases = (fp4_cases() + kHostStep - 1) / kHostStep;

template <typename T>
void read_back(T* to, const DeviceBuffer& from, int64_t count, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from.as<void>(), static_cast<size_t>(count) * sizeof(T),
                             cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

int64_t different_sums(const Fp4Sums& found, const Fp4Sums& wanted) {
  int64_t different = 0;
  for (int i = 0; i < 4; ++i)
    for (int lane = 0; lane < 32; ++lane) {
      const float want = wanted.of[i][lane];
      const float got = found.of[i][lane];
      different += std::isnan(want) ? !std::isnan(got) : std::memcmp(&got, &want, sizeof got) != 0;
    }
  return different;
}

void add(int64_t different, int32_t number, Fp4HarnessResult& result) {
  if (different == 0) return;
  result.first_case = result.different == 0 ? number : std::min(result.first_case, number);
  result.different += different;
}

/// Sums that the machine may round in its own way were compared on the device.
Result<void> compare_on_host(const Launcher& launcher, Fp4HarnessResult& result) {
  const DeviceBuffer memory = TRY(DeviceBuffer::allocate(
      *launcher.device, kHostCases * int64_t{sizeof(Fp4Sums)}, "products of 4-bit codes"));
  multiply_fragments({.step = kHostStep, .count = kHostCases, .sums = memory.as<Fp4Sums>()},
                     launcher);
  std::vector<Fp4Sums> found(kHostCases);
  read_back(found.data(), memory, kHostCases, launcher.stream);
  const bool machine = launcher.card.fp4 == cuda::Architecture::Fp4::machine;
  for (int i = 0; i < kHostCases; ++i) {
    const Fp4Case of = fp4_case(i * kHostStep);
    if (machine && of.kind == Fp4CaseKind::any) continue;
    add(different_sums(found[static_cast<size_t>(i)], fp4_on_host(of)), i * kHostStep, result);
  }
  return {};
}

Result<void> compare_on_device(const Launcher& launcher, Fp4Fault fault, Fp4HarnessResult& result) {
  Fp4Differences found{.first_case = fp4_cases() + fp8_cases()};
  const DeviceBuffer memory = TRY(
      DeviceBuffer::allocate(*launcher.device, sizeof found, "comparing products of 4-bit codes"));
  copy_to_device(memory.as<void>(), &found, sizeof found);
  compare_fragments(memory.as<Fp4Differences>(), fault, launcher);
  compare_fp8_fragments(memory.as<Fp4Differences>(), fault, launcher);
  read_back(&found, memory, 1, launcher.stream);
  add(static_cast<int64_t>(found.sums), found.first_case, result);
  return {};
}

}  // namespace

Result<CardIdentity> card_identity(const CardLimit& limit) {
  const Device device = TRY(open_device());
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index));
  CardIdentity facts{.name = device.name,
                     .capability = device.compute_major * 10 + device.compute_minor,
                     .multiprocessors = device.multiprocessors,
                     .memory_bytes = device.memory_bytes,
                     .runtime_cuda = CUDART_VERSION,
                     .code = device.code.name()};
  for (const char byte : properties.uuid.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    facts.uuid += kDigits[static_cast<uint8_t>(byte) >> 4];
    facts.uuid += kDigits[static_cast<uint8_t>(byte) & 15U];
  }
  CUDA_CHECK(cudaDriverGetVersion(&facts.driver_cuda));
  cuda::Architecture card{.code = device.code};
  if (limit.portable_kernels) card.kernels = cuda::Architecture::Kernels::portable;
  facts.has_fp4_instruction = card.has_fp4_mma();
  facts.has_tensor_memory = card.has_tensor_memory();
  return facts;
}

Result<Fp4HarnessResult> run_fp4_harness(Fp4Products way, Fp4Fault fault) {
  const auto device = TRY(DeviceContext::open({}));
  Launcher launcher = launcher_of(*device, {});
  if (way == Fp4Products::instruction && !launcher.card.has_fp4_mma())
    return make_error(ErrorCode::unsupported,
                      {.what = "the instruction for products of 4-bit codes",
                       .expected = "a card of compute capability 12.0 or 12.1",
                       .found = concat("code for ", launcher.card.code.name())});
  launcher.card.fp4 = way == Fp4Products::instruction ? cuda::Architecture::Fp4::machine
                                                      : cuda::Architecture::Fp4::software;
  Fp4HarnessResult result{.cases = fp4_cases() + (launcher.card.converts_fp8() ? fp8_cases() : 0)};
  const auto begin = std::chrono::steady_clock::now();
  TRY(compare_on_device(launcher, fault, result));
  TRY(compare_on_host(launcher, result));
  TRY(device->alive());
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  result.milliseconds = spent.count();
  return result;
}

}  // namespace nibble
