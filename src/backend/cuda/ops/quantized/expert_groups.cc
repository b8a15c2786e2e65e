// The memory of groups, which a plan counts without a card.
#include "backend/cuda/ops/quantized/expert_groups.h"

namespace nibble::cuda {

ExpertGroups cut_groups(int32_t experts, int64_t assignments, DeviceCarver& carver) {
  const auto take = [&]<typename T>(T*& array, int64_t count) {
    array = carver.take(count * int64_t{sizeof(T)}).template as<T>();
  };
  ExpertGroups groups{.experts = experts};
  for (int32_t** array : {&groups.begin, &groups.count, &groups.shift}) take(*array, experts);
  take(groups.sizes, experts);
  for (const uint8_t*** array : {&groups.w, &groups.w_scales, &groups.x, &groups.x_scales})
    take(*array, experts);
  take(groups.y, experts);
  take(groups.x_stride, experts);
  take(groups.y_stride, experts);
  take(groups.w_layout, experts);
  take(groups.x_layout, experts);
  take(groups.maps, kGroupMapBytes);
  take(groups.position, assignments);
  return groups;
}

int64_t group_bytes(int32_t experts, int64_t assignments) {
  DeviceCarver counter(nullptr);
  cut_groups(experts, assignments, counter);
  return counter.used();
}

}  // namespace nibble::cuda
