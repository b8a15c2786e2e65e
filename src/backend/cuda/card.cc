// Limits of the kernels, and the ledger against the driver's word.
#include "backend/cuda/card.h"

#include <algorithm>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels.h"

namespace nibble::cuda {

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
  const bool measured = hopper && device.name.find("H200") != std::string::npos;
  const auto share = [&](const char* text) {
    return measured ? concat(", ", text) : std::string(", share of the bound not measured here");
  };
  const auto line = [](std::string_view block, const std::string& text) {
    std::string name = concat("  ", block);
    name.resize(30, ' ');
    return concat(name, text, "\n");
  };
  std::string table = "kernels (4-bit and 8-bit weights are widened to bf16, exactly):\n";
  table += line("prompt linears, experts", concat(matrix, share("see docs/kernels/prefill.md")));
  if (config.count(LayerKind::attention) > 0) {
    table +=
        line("prompt attention",
             concat(matrix, kv == KvFormat::fp8 ? ", FP8 pages widened to bf16" : "",
                    share(kv == KvFormat::fp8 ? "40 % of FLOPs at 8K" : "52 % of FLOPs at 8K")));
    const char* pages = kv != KvFormat::fp8 ? ""
                        : native_fp8        ? ", FP8 converted in hardware"
                                            : ", FP8 converted in software";
    table += line(
        "generation attention",
        concat("mma.sync, native", pages,
               share(kv == KvFormat::fp8 ? "68 % of bytes at 128K" : "87 % of bytes at 128K")));
  }
  if (config.count(LayerKind::delta_net) > 0)
    table += line("delta net", state == StateFormat::bf16
                                   ? concat("mma.sync and F32, native, state rounded to bf16",
                                            share("see docs/kernels/decode.md"))
                                   : concat("mma.sync and F32, native", share("65 % of bytes")));
  table += line("generation linears, experts",
                concat(hopper ? "wgmma for the head, else mma.sync, native" : "mma.sync, native",
                       share("see docs/kernels/decode.md")));
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

CudaMemory card_memory(const Device& device, const CardLimit& limit, int64_t weight_bytes) {
  // At least what recorded passes, and the driver's rounding, add on an H200.
  constexpr int64_t kRecordedBytes = int64_t{24} << 20;
  size_t free_now = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_now, &all));
  const bool limited = limit.memory_bytes > 0;
  CudaMemory memory{
      .card = limited ? std::min(limit.memory_bytes, device.memory_bytes) : device.memory_bytes,
      .free = static_cast<int64_t>(free_now),
      .weights = weight_bytes,
      .driver = device.memory_bytes - device.free_bytes,
      .recorded = kRecordedBytes,
      .allocated = device_ledger().used_bytes,
      .allocations = device_ledger().allocations};
  if (limited) memory.free = std::min(memory.free, memory.card - memory.driver - memory.allocated);
  return memory;
}

}  // namespace nibble::cuda
