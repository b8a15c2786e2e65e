// Groups of experts' rows, the arguments of their products, inputs rounded into them and rows that
// go back to their assignments, against the same on the host.
#include <string>

#include "backend/cuda/checks/expert_lists.h"
#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "base/concat.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

template <typename T>
int64_t different(const T* device, const std::vector<T>& wanted) {
  const auto found = to_host(device, std::ssize(wanted));
  int64_t count = 0;
  for (size_t i = 0; i < wanted.size(); ++i) count += found[i] != wanted[i];
  return count;
}

/// Counts arguments of a product that are not those of the host.
int64_t wrong_arguments(const DeviceLists& lists, const std::vector<int>& rows, const Lists& host,
                        const Launcher& launcher) {
  constexpr int kN = 384;
  constexpr int kCols = 512;
  constexpr int64_t kStride = 400;
  // No address is read.
  const auto at = [](int64_t address) { return reinterpret_cast<uint8_t*>(address); };
  const DeviceLinear w{.values = at(1 << 20), .scales = at(1 << 21), .rows = kN, .cols = kCols};
  const QuantizedGemm gemm{
      .x = {.codes = at(1 << 22), .scales = at(1 << 23)}, .y = at(1 << 24), .y_stride = kStride};
  describe_groups(gemm, w, 2, lists.groups, launcher);
  must(cudaDeviceSynchronize(), "arguments");
  const ExpertGroups& groups = lists.groups;
  const auto experts = static_cast<int>(rows.size());
  const auto sizes = to_host(reinterpret_cast<const int32_t*>(groups.sizes), experts * 3);
  const auto layouts = to_host(reinterpret_cast<const int32_t*>(groups.x_layout), experts * 5);
  const auto w_layouts = to_host(reinterpret_cast<const int32_t*>(groups.w_layout), experts * 5);
  const auto wanted = [&](auto of) {
    std::vector<int64_t> all;
    for (int64_t e = 0; e < experts; ++e) all.push_back(of(e));
    return all;
  };
  const auto address = [](auto* array) { return reinterpret_cast<const int64_t*>(array); };
  int64_t wrong =
      different(address(groups.w),
                wanted([&](int64_t e) { return (1 << 20) + e * kN * kCols / 2; })) +
      different(address(groups.w_scales),
                wanted([&](int64_t e) { return (1 << 21) + e * kN * kCols / 16; })) +
      different(address(groups.x), wanted([&](int64_t e) {
                  return (1 << 22) + int64_t{host.begins[e]} * kCols / 2;
                })) +
      different(address(groups.x_scales), wanted([&](int64_t e) {
                  return (1 << 23) + int64_t{host.begins[e] + host.shifts[e]} * kCols / 16;
                })) +
      different(address(groups.y),
                wanted([&](int64_t e) { return (1 << 24) + host.begins[e] * kStride * 2; })) +
      different(groups.x_stride, wanted([&](int64_t) { return kCols; })) +
      different(groups.y_stride, wanted([&](int64_t) { return kStride; }));
  for (int e = 0; e < experts; ++e) {
    const int blocks = (rows[e] + 127) / 128;
    const int32_t size[] = {kN, rows[e], kCols};
    const int32_t layout[] = {blocks, 8, 1, 4096, blocks * 4096};
    const int32_t w_layout[] = {3, 8, 1, 4096, 12288};
    wrong += !std::equal(size, size + 3, &sizes[e * 3]) +
             !std::equal(layout, layout + 5, &layouts[e * 5]) +
             !std::equal(w_layout, w_layout + 5, &w_layouts[e * 5]);
  }
  return wrong;
}

/// Counts rows that did not come to their assignments, and numbers that were written elsewhere.
int64_t wrong_rows(const DeviceLists& lists, const Lists& host, const Launcher& launcher) {
  constexpr int kColumns = 132;
  constexpr int kStride = 140;
  const auto count = std::ssize(host.positions);
  std::vector<float> from(host.total * kColumns);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  float* from_device = to_device(from);
  float* to = to_device(std::vector<float>(count * kStride, -1.0F));
  return_rows({.from = from_device,
               .position = lists.groups.position,
               .count = static_cast<int32_t>(count),
               .columns = kColumns,
               .to = to,
               .to_stride = kStride},
              launcher);
  must(cudaDeviceSynchronize(), "rows");
  std::vector<float> wanted(count * kStride, -1.0F);
  for (int64_t i = 0; i < count; ++i)
    if (host.positions[i] >= 0)
      std::copy_n(&from[int64_t{host.positions[i]} * kColumns], kColumns, &wanted[i * kStride]);
  const int64_t wrong = different(to, wanted);
  cudaFree(from_device);
  cudaFree(to);
  return wrong;
}

void check_groups(Tally& tally, const std::vector<int>& rows, const Launcher& launcher) {
  for (const auto& [most, width] : {std::pair(128, 3), {8, 4}}) {
    const Lists host(rows, most, width, 5);
    const DeviceLists lists(host, static_cast<int>(rows.size()));
    group_rows(lists.rows, launcher);
    must(cudaDeviceSynchronize(), "groups");
    const std::vector<int32_t> counts(rows.begin(), rows.end());
    const int64_t wrong = different(lists.groups.count, counts) +
                          different(lists.groups.begin, host.begins) +
                          different(lists.groups.shift, host.shifts) +
                          different(lists.groups.position, host.positions);
    const std::string name =
        concat("groups of ", rows.size(), " experts, ", host.total, " rows in entries of ", most);
    tally.check(wrong == 0, name.c_str(), static_cast<double>(wrong));
    const int64_t arguments = wrong_arguments(lists, rows, host, launcher);
    tally.check(arguments == 0, (name + ": arguments").c_str(), static_cast<double>(arguments));
    const int64_t spread = wrong_rows(lists, host, launcher);
    tally.check(spread == 0, (name + ": rows").c_str(), static_cast<double>(spread));
  }
}

constexpr uint8_t kPoison = 0xA5;

void fill_inputs(uint16_t* x, int64_t count) {
  fill_kernel<<<256, 256>>>(
      [=] __device__(int64_t i) {
        x[i] = __bfloat16_as_ushort(__float2bfloat16_rn(hash_normal(3, i)));
      },
      count);
}

/// Rows that are rounded for experts, as memory of their own.
struct Rounding {
  static constexpr int kCols = 512;
  static constexpr int kScales = kCols / 16;
  int count, experts;
  uint16_t* x = device_array<uint16_t>(int64_t{count} * kCols);
  float* factors = nullptr;     // those of each expert differ
  int32_t* matrices = nullptr;  // [count]

  Rounding(const std::vector<int32_t>& matrix, int expert_count)
      : count(static_cast<int>(matrix.size())), experts(expert_count), matrices(to_device(matrix)) {
    std::vector<float> all;
    for (int e = 0; e < experts; ++e) all.insert(all.end(), {0.5F, 20.0F + e});
    factors = to_device(all);
    fill_inputs(x, int64_t{count} * kCols);
  }
  ~Rounding() {
    for (void* p :
         {static_cast<void*>(x), static_cast<void*>(factors), static_cast<void*>(matrices)})
      cudaFree(p);
  }
  /// Returns all bytes; with groups rows lie in them. What is not written stays kPoison.
  std::vector<uint8_t> run(const ExpertGroups* groups, const Launcher& launcher) const {
    const int64_t bytes = count * fp4_row_bytes(kCols) + fp4_filling_bytes(experts, kCols);
    auto* memory = device_array<uint8_t>(bytes);
    must(cudaMemset(memory, kPoison, static_cast<size_t>(bytes)), "poison");
    const auto order = groups == nullptr ? ScaleOrder::rows : ScaleOrder::blocks;
    QuantizedInput out = cut_fp4_rows(memory, count, kCols, order);
    if (groups != nullptr) out.scale_shift = groups->shift;
    quantize_rows({.weight = {.activations = ActivationFormat::nvfp4,
                              .factors = factors,
                              .cols = kCols,
                              .factor_stride = 2},
                   .count = count,
                   .x = x,
                   .x_stride = kCols,
                   .to = groups == nullptr ? nullptr : groups->position,
                   .matrix = matrices,
                   .out = out},
                  launcher);
    must(cudaDeviceSynchronize(), "rounding");
    std::vector<uint8_t> all = to_host(memory, bytes);
    cudaFree(memory);
    return all;
  }
};

/// Inputs rounded into groups are those rounded in rows, each at its position, and the rest stays
/// as it was.
void check_rounded(Tally& tally, const std::vector<int>& rows, const Launcher& launcher) {
  constexpr int kCols = Rounding::kCols;
  constexpr int kScales = Rounding::kScales;
  const Lists host(rows, 8, 4, 5);
  const DeviceLists lists(host, static_cast<int>(rows.size()));
  group_rows(lists.rows, launcher);
  std::vector<int32_t> matrices(host.positions.size(), 0);
  for (size_t e = 0; e < rows.size(); ++e)
    for (int row = host.begins[e]; row < host.begins[e] + rows[e]; ++row)
      matrices[host.assignments[row]] = static_cast<int32_t>(e);
  const Rounding rounding(matrices, static_cast<int>(rows.size()));
  const auto plain = rounding.run(nullptr, launcher);
  const auto found = rounding.run(&lists.groups, launcher);
  std::vector<uint8_t> wanted(plain.size(), kPoison);
  const int64_t codes = int64_t{rounding.count} * kCols / 2;
  for (int i = 0; i < rounding.count; ++i) {
    const int64_t to = host.positions[i];
    if (to < 0) continue;
    std::copy_n(&plain[i * kCols / 2], kCols / 2, &wanted[to * kCols / 2]);
    for (int64_t s = 0; s < kScales; ++s)
      wanted[codes + scale_place(to + host.shifts[matrices[i]], s, kScales)] =
          plain[codes + i * kScales + s];
  }
  int64_t wrong = 0;
  for (size_t i = 0; i < wanted.size(); ++i) wrong += found[i] != wanted[i];
  tally.check(wrong == 0, concat("inputs of ", rows.size(), " experts in groups").c_str(),
              static_cast<double>(wrong));
}

}  // namespace

void check_expert_groups(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  for (const auto& rows : expert_rows()) {
    check_groups(tally, rows, launcher);
    check_rounded(tally, rows, launcher);
  }
  check_groups(tally, {0, 0, 0}, launcher);
  check_groups(tally, std::vector<int>(kGroupsMost, 2), launcher);
}

}  // namespace nibble::checks
