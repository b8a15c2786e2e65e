// Lists of experts' rows as routing has them, for the checks of groups and of their products.
#pragma once

#include <algorithm>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/quantized/expert_groups.h"

namespace nibble::checks {

/// Rows of experts, in entries of at most `most`, as the lists of prompts or of generated rows have
/// them.
struct Lists {
  std::vector<int32_t> entries, assignments, begins, shifts, positions;
  int width, total = 0;

  Lists(const std::vector<int>& rows, int most, int numbers, int spare) : width(numbers) {
    int scale_row = 0;
    for (size_t e = 0; e < rows.size(); ++e) {
      begins.push_back(total);
      shifts.push_back(scale_row - total);
      for (int done = 0; done < rows[e]; done += most) {
        entries.insert(entries.end(),
                       {static_cast<int32_t>(e), total + done, std::min(most, rows[e] - done)});
        if (width == 4) entries.push_back(0);
      }
      total += rows[e];
      scale_row += (rows[e] + 127) / 128 * 128;
    }
    // A permutation; the last `spare` assignments are of no row.
    assignments.resize(total);
    positions.assign(total + spare, -1);
    for (int i = 0; i < total; ++i) assignments[i] = i;
    for (int i = total - 1; i > 0; --i)
      std::swap(assignments[i], assignments[hash_bits(61, i) % (i + 1)]);
    for (int i = 0; i < total; ++i) positions[assignments[i]] = i;
  }
};

/// Lists and groups on the device.
struct DeviceLists {
  int32_t *entries, *count, *assignments;
  std::byte* memory;
  cuda::ExpertGroups groups;
  cuda::GroupRows rows;

  DeviceLists(const Lists& lists, int experts)
      : entries(to_device(lists.entries)),
        count(to_device(
            std::vector<int32_t>{static_cast<int32_t>(std::ssize(lists.entries) / lists.width)})),
        assignments(to_device(lists.assignments)),
        memory(device_array<std::byte>(cuda::group_bytes(experts, std::ssize(lists.positions)))) {
    cuda::DeviceCarver carver(memory);
    groups = cuda::cut_groups(experts, std::ssize(lists.positions), carver);
    rows = {.lists = {.list = entries, .stride = lists.width, .count = count},
            .assignments = assignments,
            .assignment_count = static_cast<int32_t>(std::ssize(lists.positions)),
            .groups = groups};
  }
  ~DeviceLists() {
    for (void* p : {static_cast<void*>(entries), static_cast<void*>(count),
                    static_cast<void*>(assignments), static_cast<void*>(memory)})
      cudaFree(p);
  }
};

inline std::vector<std::vector<int>> expert_rows() {
  std::vector<int> each(64);  // 1 .. 64 rows an expert
  for (int e = 0; e < 64; ++e) each[e] = e + 1;
  return {{0, 3, 0, 1, 17, 8, 0, 9, 5, 0}, {200, 0, 129, 128, 1, 300, 64, 33, 0}, each};
}

}  // namespace nibble::checks
