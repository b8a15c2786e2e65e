// Limits of the kernels, and the ledger against the driver's word.
#include "backend/cuda/runtime/card.h"

#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {
namespace {

/// Bytes that the driver takes for a process before it allocates anything: estimates, which
/// CudaMemoryTest prints beside the card's own figure. All other memory that is in use then counts
/// as that of other processes.
int64_t context_bytes(const Device& device) {
  constexpr int64_t kHopperMiB = 530;  // from what nvidia-smi showed beside a plan on an H200
  constexpr int64_t kUnknownMiB = 512;
  return (device.compute_major == 9 ? kHopperMiB : kUnknownMiB) << 20;
}

}  // namespace

Result<void> refuse_oversized(const ModelConfig& config) {
  const auto at_most = [](std::string_view what, int limit, int found) -> Result<void> {
    if (found <= limit) return {};
    return make_error(ErrorCode::unsupported, {.what = concat(what, " on the cuda backend"),
                                               .expected = concat("at most ", limit),
                                               .found = concat(found),
                                               .advice = "use --backend cpu"});
  };
  TRY(at_most("hidden size", kHiddenMax, config.hidden));
  if (config.moe) {
    TRY(at_most("experts", kRouteExpertsMax, config.moe->experts));
    TRY(at_most("experts per token", kRouteTopKMax, config.moe->top_k));
  }
  if (config.count(LayerKind::attention) > 0)
    TRY(at_most("head_dim", kHeadDimMax, config.attention.head_dim));
  if (config.count(LayerKind::delta_net) == 0) return {};
  TRY(at_most("key dimensions of the delta net", kDeltaDimMax, config.delta_net.k_dim));
  TRY(at_most("value dimensions of the delta net", kDeltaDimMax, config.delta_net.v_dim));
  return at_most("convolution taps", kConvTapsMax, config.delta_net.conv_kernel);
}

std::string kernel_table(const Device& device, const CardLimit& limit, const ModelConfig& config,
                         KvFormat kv, StateFormat state) {
  const bool hopper = device.compute_major == 9 && !limit.portable_kernels;
  const bool native_fp8 = device.compute_major >= 9 || device.compute_minor == 9;
  const char* matrix = hopper ? "wgmma, native" : "mma.sync, portable";
  const auto line = [](std::string_view block, std::string_view text) {
    std::string name = concat("  ", block);
    name.resize(30, ' ');
    return concat(name, text, "\n");
  };
  std::string table =
      "kernels (4-bit and 8-bit weights are widened to bf16, exactly; what share of its bound each "
      "reaches, and on which card: docs/kernels):\n";
  table += line("prompt linears, experts", matrix);
  if (config.count(LayerKind::attention) > 0) {
    table += line("prompt attention",
                  concat(matrix, kv == KvFormat::fp8 ? ", FP8 pages widened to bf16" : ""));
    const char* pages = kv != KvFormat::fp8 ? ""
                        : native_fp8        ? ", FP8 converted in hardware"
                                            : ", FP8 converted in software";
    table += line("generation attention", concat("mma.sync, native", pages));
  }
  if (config.count(LayerKind::delta_net) > 0)
    table += line("delta net", concat("mma.sync and F32, native",
                                      state == StateFormat::bf16 ? ", state rounded to bf16" : ""));
  table += line("generation linears, experts",
                hopper ? "wgmma for the head, else mma.sync, native" : "mma.sync, native");
  return table;
}

std::string_view kv_name(KvFormat format) {
  return format == KvFormat::fp8 ? "fp8 (e4m3)" : format == KvFormat::bf16 ? "bf16" : "f32";
}

std::string f32_kernel_table(const ModelConfig& config, KvFormat kv, StateFormat state) {
  std::string table =
      "kernels (activations f32: nothing is rounded; slow, for tests):\n"
      "  linears, experts            those of generation, each input as three in bf16\n"
      "  prompts                     as generated tokens\n";
  if (config.count(LayerKind::attention) > 0)
    table += concat("  attention                   F32, portable, pages in ", kv_name(kv), "\n");
  if (config.count(LayerKind::delta_net) > 0)
    table += concat("  delta net                   F32, portable, state in ",
                    state == StateFormat::bf16 ? "bf16" : "f32", "\n");
  return table;
}

int64_t recorded_bytes(const ModelConfig& config, int32_t passes) {
  // On an H200 12 passes of the 35B, 365 launches each, take 7 MB, kernels' code included: 1.6 KB a
  // launch. Rounding: cudaMalloc hands out 2 MiB at a time.
  constexpr int64_t kLaunchBytes = 4096;
  constexpr int64_t kRoundingBytes = int64_t{8} << 20;
  constexpr int64_t kLaunchesOfPass = 5;   // embedding, last norm, head, short lists
  constexpr int64_t kLaunchesOfMixer = 4;  // project, recur or attend in two, project out
  const int64_t feed_forward = config.moe ? 5 : 3;
  const int64_t launches =
      kLaunchesOfPass + config.layer_count() * (kLaunchesOfMixer + feed_forward);
  return kRoundingBytes + passes * launches * kLaunchBytes;
}

CudaMemory card_memory(const Device& device, const CardLimit& limit) {
  size_t free_now = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_now, &all));
  const bool limited = limit.memory_bytes > 0;
  CudaMemory memory{
      .card = limited ? std::min(limit.memory_bytes, device.memory_bytes) : device.memory_bytes,
      .free = static_cast<int64_t>(free_now),
      .driver = device.memory_bytes - device.free_bytes,
      .allocated = device_ledger().used_bytes,
      .allocations = device_ledger().allocations};
  memory.context = std::min(memory.driver, context_bytes(device));
  if (limited) memory.free = std::min(memory.free, memory.card - memory.driver - memory.allocated);
  return memory;
}

}  // namespace nibble::cuda
