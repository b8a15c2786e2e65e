// Limits of the kernels, and which of them run.
#include "backend/cuda/selection.h"

#include <algorithm>

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/delta_net/delta_net.h"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/route/route.h"
#include "model/kv_codec.h"

namespace nibble::cuda {

Architecture architecture_of(const Device& device, const CardLimit& limit) {
  Architecture card{.code = device.code,
                    .multiprocessors = device.multiprocessors,
                    .shared_bytes = device.shared_bytes};
  if (limit.shared_bytes > 0) card.shared_bytes = std::min(card.shared_bytes, limit.shared_bytes);
  if (limit.portable_kernels) card.kernels = Architecture::Kernels::portable;
  if (card.has_wgmma()) card.clusters = stream_clusters();
  return card;
}

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

std::string launch_lines(const LaunchLog& log, int32_t rows) {
  int64_t bytes = 0;
  for (const LaunchLog::Line& line : log.lines()) bytes += line.bytes;
  const auto gigabytes = [](int64_t count) {
    std::string text = concat((count + 5'000'000) / 10'000'000);
    if (text.size() < 3) text.insert(0, 3 - text.size(), '0');
    return text.insert(text.size() - 2, ".") + " GB";
  };
  std::string table = concat("  a pass of ", rows, rows == 1 ? " generated row" : " generated rows",
                             " reads ", gigabytes(bytes), " of weights:\n");
  for (const LaunchLog::Line& line : log.lines()) {
    std::string name = concat("    ", kStepNames[static_cast<int>(line.step)]);
    name.resize(18, ' ');
    table += concat(name, gigabytes(line.bytes), ", ", line.launches, " x ", line.text, "\n");
  }
  return table;
}

std::string kernel_table(const Architecture& card, const ModelConfig& config, KvFormat kv,
                         StateFormat state) {
  const char* matrix = card.has_wgmma() ? "wgmma" : "mma.sync";
  const auto line = [](std::string_view block, std::string_view text) {
    std::string name = concat("  ", block);
    name.resize(30, ' ');
    return concat(name, text, "\n");
  };
  std::string table = concat(
      "kernels of ", card.code.name(), ", ", card.multiprocessors, " SMs, ",
      card.shared_bytes >> 10,
      " KiB of shared memory a block (weights of 4 and 8 bits are widened to bf16, exactly; the "
      "share of its bound that each reaches: docs/kernels):\n");
  table += line("prompt matrices", concat(matrix, ", tiles of 256 x 128"));
  if (config.count(LayerKind::attention) > 0) {
    table += line("prompt attention",
                  concat(matrix, kv == KvFormat::fp8 ? ", FP8 pages widened to bf16" : ""));
    const char* pages = kv != KvFormat::fp8   ? ""
                        : card.converts_fp8() ? ", FP8 converted in hardware"
                                              : ", FP8 converted in software";
    table += line("generation attention", concat("mma.sync", pages));
  }
  if (config.count(LayerKind::delta_net) > 0)
    table += line("delta net", concat("mma.sync and F32",
                                      state == StateFormat::bf16 ? ", state rounded to bf16" : ""));
  return table;
}

std::string f32_kernel_table(const ModelConfig& config, KvFormat kv, StateFormat state) {
  std::string table =
      "kernels (activations f32: nothing is rounded; slow, for tests):\n"
      "  linears, experts            those of generation, each input as three in bf16\n"
      "  prompts                     as generated tokens\n";
  if (config.count(LayerKind::attention) > 0)
    table +=
        concat("  attention                   F32, portable, pages in ", kv_format_name(kv), "\n");
  if (config.count(LayerKind::delta_net) > 0)
    table += concat("  delta net                   F32, portable, state in ",
                    state == StateFormat::bf16 ? "bf16" : "f32", "\n");
  return table;
}

}  // namespace nibble::cuda
