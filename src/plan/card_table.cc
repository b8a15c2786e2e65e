// The rows. Memory as nvidia-smi prints it, less what CUDA does not give (headless): the difference
// to the total that programs see, as their error messages print it. A desktop's windows take about
// 1 GiB with that (on a GB300, whose driver alone keeps as much, beside it). The bandwidth of an
// H200 is what this program measured; its data sheet has 4,800 GB/s.
#include "plan/card_table.h"

#include <array>

namespace nibble {
namespace {

constexpr CardUse kDesktop = CardUse::desktop;
constexpr CardUse kHeadless = CardUse::headless;
constexpr FigureSource kSmi = FigureSource::nvidia_smi;
constexpr FigureSource kCuda = FigureSource::cuda;
constexpr FigureSource kSheet = FigureSource::data_sheet;
constexpr FigureSource kMeasured = FigureSource::measured;

// Columns: names, words of the driver's name; capability; MiB: all, kept by the driver, with a
// desktop; GB/s; KiB of shared memory.
constexpr auto kCards = std::to_array<CardRow>({
    {"rtx3090", "GeForce RTX 3090", "rtx 3090", 86, 24576, 330, 1024, 936, 99, kSmi, kSheet,
     kDesktop},
    {"rtx3090ti", "GeForce RTX 3090 Ti", "rtx 3090 ti", 86, 24564, 330, 1024, 1008, 99, kSmi,
     kSheet, kDesktop},
    {"rtx4080", "GeForce RTX 4080", "rtx 4080", 89, 16376, 330, 1024, 717, 99, kSmi, kSheet,
     kDesktop},
    {"rtx4090", "GeForce RTX 4090", "rtx 4090", 89, 24564, 360, 1024, 1008, 99, kSmi, kSheet,
     kDesktop},
    {"rtx5070ti", "GeForce RTX 5070 Ti", "rtx 5070 ti", 120, 16303, 400, 1024, 896, 99, kSmi,
     kSheet, kDesktop},
    {"rtx5080", "GeForce RTX 5080", "rtx 5080", 120, 16303, 400, 1024, 960, 99, kSmi, kSheet,
     kDesktop},
    {"rtx5090", "GeForce RTX 5090", "rtx 5090", 120, 32607, 500, 1024, 1792, 99, kSmi, kSheet,
     kDesktop},
    {"rtx-a6000", "RTX A6000", "rtx a6000", 86, 49140, 480, 1024, 768, 99, kSmi, kSheet, kDesktop},
    {"rtx-6000-ada", "RTX 6000 Ada", "rtx 6000 ada", 89, 49140, 550, 1024, 960, 99, kSmi, kSheet,
     kDesktop},
    {"rtx-pro-6000", "RTX PRO 6000 Blackwell", "rtx pro 6000", 120, 97887, 640, 1024, 1792, 99,
     kSmi, kSheet, kDesktop},
    {"a10", "A10", "a10", 86, 23028, 510, 1024, 600, 99, kSmi, kSheet, kHeadless},
    {"a40", "A40", "a40", 86, 46068, 480, 1024, 696, 99, kSmi, kSheet, kHeadless},
    {"l4", "L4", "l4", 89, 23034, 560, 1024, 300, 99, kSmi, kSheet, kHeadless},
    {"l40s", "L40S", "l40s", 89, 46068, 610, 1024, 864, 99, kSmi, kSheet, kHeadless},
    {"a30", "A30", "a30", 80, 24576, 480, 1024, 933, 163, kSmi, kSheet, kHeadless},
    {"a100-40gb", "A100 40 GB", "a100", 80, 40960, 625, 1024, 1555, 163, kSmi, kSheet, kHeadless},
    {"a100-80gb", "A100 80 GB", "a100", 80, 81920, 870, 1024, 2039, 163, kSmi, kSheet, kHeadless},
    {"h100", "H100 SXM", "h100", 90, 81559, 561, 1024, 3350, 227, kSmi, kSheet, kHeadless},
    {"h100-pcie", "H100 PCIe", "h100 pcie", 90, 81559, 561, 1024, 2039, 227, kSmi, kSheet,
     kHeadless},
    {"h100-nvl", "H100 NVL", "h100 nvl", 90, 95830, 600, 1024, 3938, 227, kSmi, kSheet, kHeadless},
    {"gh200", "GH200 96 GB", "gh200", 90, 97871, 640, 1024, 4000, 227, kSmi, kSheet, kHeadless},
    {"h200", "H200", "h200", 90, 143771, 615, 1024, 4300, 227, kSmi, kMeasured, kHeadless},
    {"b200", "B200", "b200", 100, 182630, 0, 1024, 7700, 227, kCuda, kSheet, kHeadless},
    {"gb200", "GB200", "gb200", 100, 189471, 738, 1024, 8000, 227, kSmi, kSheet, kHeadless},
    {"b300", "B300", "b300", 103, 275040, 925, 1024, 8000, 227, kSmi, kSheet, kHeadless},
    {"gb300", "GB300", "gb300", 103, 284208, 1072, 2096, 8000, 227, kSmi, kSheet, kHeadless},
    {"dgx-spark", "DGX Spark (GB10)", "gb10", 121, 124610, 4096, 8192, 273, 99, kCuda, kSheet,
     kHeadless, CardMemoryKind::unified},
});

// `nvidia-smi mig -lgip` prints these sizes, in GiB with two digits, which differ a little from
// driver to driver: A30 5.81, 11.69, 23.50; A100 80 GB 9.50, 19.50, 39.25; H100 PCIe 9.75, 19.62,
// 39.50; GH200 96 GB 11.00, 23.00, 46.50; H100 NVL 10.75, 21.62, 46.38
// (github.com/NVIDIA/mig-parted/pull/101); GB200 22.00, 45.50
// (github.com/NVIDIA/mig-parted/issues/227; the first drivers made 1g.24gb of 20.00, see
// github.com/NVIDIA/gpu-operator/pull/1303); RTX PRO 6000 Server Edition 23.12, 46.50
// (github.com/bigstack-oss/cubecos/issues/312). Slices whose size nobody printed in public have no
// row: 3g and 4g of B200 and GB200, and those of B300 and GB300.
constexpr auto kSlices = std::to_array<MigSlice>({
    {"a30", "1g.6gb", 5952, 2},
    {"a30", "2g.12gb", 11968, 4},
    {"a30", "4g.24gb", 24064, 8},
    {"a100-40gb", "1g.5gb", 4864, 1},
    {"a100-40gb", "2g.10gb", 9856, 2},
    {"a100-40gb", "3g.20gb", 19968, 4},
    {"a100-40gb", "4g.20gb", 19968, 4},
    {"a100-80gb", "1g.10gb", 9728, 1},
    {"a100-80gb", "1g.20gb", 19968, 2},
    {"a100-80gb", "2g.20gb", 19968, 2},
    {"a100-80gb", "3g.40gb", 40192, 4},
    {"a100-80gb", "4g.40gb", 40192, 4},
    {"h100", "1g.10gb", 9856, 1},
    {"h100", "1g.20gb", 19968, 2},
    {"h100", "2g.20gb", 19968, 2},
    {"h100", "3g.40gb", 40192, 4},
    {"h100", "4g.40gb", 40192, 4},
    {"h100-pcie", "1g.10gb", 9984, 1},
    {"h100-pcie", "1g.20gb", 20096, 2},
    {"h100-pcie", "2g.20gb", 20096, 2},
    {"h100-pcie", "3g.40gb", 40448, 4},
    {"h100-pcie", "4g.40gb", 40448, 4},
    {"h100-nvl", "1g.12gb", 11008, 1},
    {"h100-nvl", "1g.24gb", 22138, 2},
    {"h100-nvl", "2g.24gb", 22138, 2},
    {"h100-nvl", "3g.47gb", 47493, 4},
    {"gh200", "1g.12gb", 11264, 1},
    {"gh200", "1g.24gb", 23552, 2},
    {"gh200", "2g.24gb", 23552, 2},
    {"gh200", "3g.48gb", 47616, 4},
    {"gh200", "4g.48gb", 47616, 4},
    {"h200", "1g.18gb", 16384, 1},
    {"h200", "1g.35gb", 33024, 2},
    {"h200", "2g.35gb", 33024, 2},
    {"h200", "3g.71gb", 71168, 4},
    {"h200", "4g.71gb", 71168, 4},
    {"b200", "1g.23gb", 20992, 1},
    {"b200", "1g.45gb", 45312, 2},
    {"b200", "2g.45gb", 45312, 2},
    {"gb200", "1g.23gb", 22528, 1},
    {"gb200", "1g.24gb", 20480, 1},
    {"gb200", "1g.47gb", 46592, 2},
    {"gb200", "2g.47gb", 46592, 2},
    {"rtx-pro-6000", "1g.24gb", 23674, 2},
    {"rtx-pro-6000", "2g.48gb", 47616, 4},
});

}  // namespace

std::span<const CardRow> card_rows() { return kCards; }
std::span<const MigSlice> mig_slices() { return kSlices; }

std::string_view figure_source_name(FigureSource source) {
  switch (source) {
    case FigureSource::nvidia_smi:
      return "nvidia-smi";
    case FigureSource::cuda:
      return "the total that CUDA reports";
    case FigureSource::data_sheet:
      return "NVIDIA's data sheet";
    case FigureSource::measured:
      return "measured with this program";
  }
  return "";
}

std::string_view native_formats(int32_t capability) {
  if (capability == 0) return "not known";
  if (capability < 89) return "BF16";
  return capability < 100 ? "BF16, FP8" : "BF16, FP8, FP4";
}

std::string capability_text(int32_t capability) {
  return concat(capability / 10, ".", capability % 10);
}

int64_t card_context_bytes(int32_t capability) {
  constexpr int64_t kHopperMib = 530;  // from what nvidia-smi showed beside a plan on an H200
  constexpr int64_t kUnknownMib = 512;
  return (capability == 90 ? kHopperMib : kUnknownMib) << 20;
}

}  // namespace nibble
