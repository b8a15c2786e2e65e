// Checks the memory of groups of experts: arrays lie one after the other, and those of a shorter
// list of assignments where those of a longer one do. No card takes part.
#include "backend/cuda/ops/quantized/expert_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nibble::cuda {
namespace {

std::byte* const kBase = reinterpret_cast<std::byte*>(int64_t{1} << 40);  // never read

struct Part {
  const void* begin;
  int64_t bytes;
};
std::vector<Part> parts_of(const ExpertGroups& g, int64_t assignments) {
  const int64_t n = g.experts;
  const auto ints = [&](const int32_t* array) { return Part{array, n * 4}; };
  const auto words = [&](const void* array) { return Part{array, n * 8}; };
  return {ints(g.begin),
          ints(g.count),
          ints(g.shift),
          {g.sizes, n * 12},
          words(g.w),
          words(g.w_scales),
          words(g.x),
          words(g.x_scales),
          words(g.y),
          words(g.x_stride),
          words(g.y_stride),
          {g.w_layout, n * 20},
          {g.x_layout, n * 20},
          {g.maps, kGroupMapBytes},
          {g.position, assignments * 4}};
}

TEST(ExpertGroups, ArraysLieApartInTheBytesThatAreCounted) {
  for (const auto& [experts, assignments] : {std::pair(1, 1), {128, 64}, {512, 8192}}) {
    DeviceCarver carver(kBase);
    const std::vector<Part> parts = parts_of(cut_groups(experts, assignments, carver), assignments);
    EXPECT_EQ(carver.used(), group_bytes(experts, assignments));
    const auto* end = kBase;
    for (const Part& part : parts) {
      const auto* begin = static_cast<const std::byte*>(part.begin);
      EXPECT_GE(begin - end, 0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 256, 0U) << "CUTLASS wants maps at 64";
      end = begin + part.bytes;
    }
    EXPECT_LE(end - kBase, carver.used());
  }
}

TEST(ExpertGroups, PositionsAreLastSoThatTheirNumberMovesNothing) {
  DeviceCarver some(kBase);
  DeviceCarver none(kBase);
  const std::vector<Part> with = parts_of(cut_groups(256, 2048, some), 0);
  const std::vector<Part> without = parts_of(cut_groups(256, 0, none), 0);
  for (size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i].begin, without[i].begin) << i;
}

}  // namespace
}  // namespace nibble::cuda
