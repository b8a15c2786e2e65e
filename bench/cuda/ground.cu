// The ground the kernels stand on, measured: bandwidth by size, the gaps between kernels, barriers.
//   cuda_ground
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECKED(call)                                                       \
  do {                                                                      \
    const cudaError_t status_ = (call);                                     \
    if (status_ != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (false)

namespace {

constexpr int kThreads = 256;

__global__ void fill(uint4* to, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    const auto x = static_cast<uint32_t>(i * 2654435761ULL);
    to[i] = make_uint4(x, x ^ 0x5555U, x * 3, ~x);
  }
}

/// Reads everything once, kUnroll loads of 16 bytes in flight per thread.
template <int kUnroll>
__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* from, int64_t count, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += stride * kUnroll) {
    uint4 v[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int64_t at = i + j * stride;
      v[j] = make_uint4(0, 0, 0, 0);
      if (at < count)
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                     : "l"(from + at));
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678U) *out = sum;
}

__global__ void copy_all(const uint4* from, uint4* to, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x})
    to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) nothing() {}
__global__ void __launch_bounds__(kThreads) nothing_overlapped() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// `rounds` barriers over all blocks; the counter only grows.
__global__ void __launch_bounds__(kThreads) barriers(unsigned* counter, int rounds) {
  for (int r = 1; r <= rounds; ++r) {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
      unsigned seen = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      } while (seen < static_cast<unsigned>(r) * gridDim.x);
    }
    __syncthreads();
  }
}

/// Two blocks hand a flag to each other `rounds` times.
__global__ void hand_off(volatile unsigned* flag, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    const unsigned mine = 2 * r + blockIdx.x;
    unsigned seen = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    } while (seen != mine);
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(mine + 1) : "memory");
  }
}

template <typename Call>
float median_us(const Call& call, int repeats = 9) {
  cudaEvent_t begin, end;
  CHECKED(cudaEventCreate(&begin));
  CHECKED(cudaEventCreate(&end));
  std::vector<float> times;
  call();
  for (int i = 0; i < repeats; ++i) {
    CHECKED(cudaEventRecord(begin, 0));
    call();
    CHECKED(cudaEventRecord(end, 0));
    CHECKED(cudaEventSynchronize(end));
    float ms = 0;
    CHECKED(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e3F);
  }
  CHECKED(cudaGetLastError());
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// A recorded chain of `count` kernels.
template <typename Launch>
cudaGraphExec_t chain(int count, const Launch& launch) {
  cudaStream_t stream;
  CHECKED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECKED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) launch(stream, i);
  cudaGraph_t graph;
  CHECKED(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECKED(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

template <typename Kernel, typename... Arguments>
void launch_with(cudaStream_t stream, bool overlap, int blocks, Kernel kernel,
                 Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = kThreads;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  CHECKED(cudaLaunchKernelEx(&config, kernel, arguments...));
}

void time_host_copies(const uint4* pool) {
  void* host = nullptr;
  CHECKED(cudaMallocHost(&host, int64_t{256} << 20));
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{64} << 20}) {
    const float us =
        median_us([&] { CHECKED(cudaMemcpyAsync(host, pool, bytes, cudaMemcpyDeviceToHost, 0)); });
    std::printf("device to page-locked host, %lld MiB: %.1f GB/s (%.1f us)\n",
                static_cast<long long>(bytes >> 20), bytes / us * 1e-3, us);
  }
}

}  // namespace

int main() {
  cudaDeviceProp p;
  CHECKED(cudaGetDeviceProperties(&p, 0));
  std::printf("%s, %d multiprocessors, L2 %d MiB, shared %zu KiB a block\n", p.name,
              p.multiProcessorCount, p.l2CacheSize >> 20, p.sharedMemPerBlockOptin >> 10);
  const int sm = p.multiProcessorCount;
  constexpr int64_t kPool = int64_t{8} << 30;
  uint4* pool = nullptr;
  uint32_t* out = nullptr;
  unsigned* counter = nullptr;
  CHECKED(cudaMalloc(&pool, kPool));
  CHECKED(cudaMalloc(&out, 4));
  CHECKED(cudaMalloc(&counter, 256));
  fill<<<sm * 8, kThreads>>>(pool, kPool / 16);
  CHECKED(cudaDeviceSynchronize());

  std::printf("\nread bandwidth by tensor size (TB/s), a chain of different tensors:\n");
  std::printf("%8s %14s %14s\n", "MB", "recorded", "overlapped");
  for (const int64_t kb : {512, 1024, 2048, 4096, 8192, 16384, 25600, 65536, 262144, 2097152}) {
    const int64_t bytes = kb << 10;
    const int count = static_cast<int>(std::clamp<int64_t>(kPool / bytes, 1, 256));
    float us[2];
    for (const bool overlap : {false, true}) {
      const cudaGraphExec_t exec = chain(count, [&](cudaStream_t s, int i) {
        launch_with(s, overlap, sm * 4, read_all<4>,
                    static_cast<const uint4*>(pool + i * (bytes / 16)), bytes / 16, out);
      });
      us[overlap] = median_us([&] { CHECKED(cudaGraphLaunch(exec, 0)); }, 5) / count;
    }
    std::printf("%8.1f %14.2f %14.2f   (%.2f, %.2f us each)\n", kb / 1024.0, bytes / us[0] * 1e-6,
                bytes / us[1] * 1e-6, us[0], us[1]);
  }
  const float copy_us =
      median_us([&] { copy_all<<<sm * 8, kThreads>>>(pool, pool + kPool / 32, kPool / 32); }, 5);
  std::printf("copy of 4 GiB: %.2f TB/s, read and written\n", kPool / copy_us * 1e-6);

  std::printf("\nempty kernels, us each:\n");
  for (const int blocks : {1, sm, sm * 4}) {
    const cudaGraphExec_t plain =
        chain(400, [&](cudaStream_t s, int) { launch_with(s, false, blocks, nothing); });
    const cudaGraphExec_t overlapped =
        chain(400, [&](cudaStream_t s, int) { launch_with(s, true, blocks, nothing_overlapped); });
    std::printf("  %4d blocks: graph node %.2f, with programmatic overlap %.2f\n", blocks,
                median_us([&] { CHECKED(cudaGraphLaunch(plain, 0)); }) / 400,
                median_us([&] { CHECKED(cudaGraphLaunch(overlapped, 0)); }) / 400);
  }

  for (const int per_sm : {1, 2}) {
    constexpr int kRounds = 1000;
    const float us = median_us([&] {
      CHECKED(cudaMemsetAsync(counter, 0, 4, 0));
      int rounds = kRounds;
      void* arguments[] = {&counter, &rounds};
      CHECKED(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(barriers), sm * per_sm,
                                          kThreads, arguments, 0, 0));
    });
    std::printf("grid barrier, %d blocks: %.2f us\n", sm * per_sm, us / kRounds);
  }
  constexpr int kRounds = 2000;
  const float flag_us = median_us([&] {
    CHECKED(cudaMemsetAsync(counter, 0, 4, 0));
    hand_off<<<2, 1>>>(counter, kRounds);
  });
  std::printf("flag hand-off between two multiprocessors: %.2f us\n", flag_us / (2 * kRounds));

  time_host_copies(pool);
  return 0;
}
