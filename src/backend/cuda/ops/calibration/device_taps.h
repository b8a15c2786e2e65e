// DeviceTaps: the taps of one layer on the card. Blocks in prompt arithmetic show it the inputs of
// their linears; fetch() brings the sums back.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/config/config.h"
#include "model/taps.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

/// The inputs a layer's linears share.
enum class TapRole : uint8_t {
  mixer_in,     // q, k, v; qkv, z, a, b
  mixer_out,    // o; out
  mlp_in,       // gate and up of a dense or shared MLP, router
  mlp_down,     // down of that MLP
  expert_in,    // gate and up of the experts
  expert_down,  // down of the experts
};
inline constexpr size_t kTapRoles = 6;

class DeviceTaps {
 public:
  /// Scratch for passes of so many rows on `device`, which must outlive this. Errors: no_memory.
  Result<void> reserve(DeviceContext& device, const ModelConfig& config, int64_t rows);
  /// Begins to sum the inputs of `layer`'s linears that `taps` names, from zero.
  /// Errors: no_memory.
  Result<void> begin(const LayerSources& layer, Taps& taps, cudaStream_t stream);
  /// This shows the input of the head alone.
  Result<void> begin(InputStatistics& head, cudaStream_t stream);

  /// The input that a block passes on: `rows` rows of packed x.
  struct Input {
    const uint16_t* x = nullptr;
    int64_t stride = 0;
    int32_t rows = 0;
  };
  void add(TapRole role, const Input& input, cudaStream_t stream) const;
  /// Experts have tiles of route_sort over assignments, and `gather` as PrefillGemm has it.
  struct Routed {
    const ExpertTile* tiles = nullptr;
    const int32_t* tile_count = nullptr;
    const int32_t* token = nullptr;
    int32_t assignments = 0;
  };
  void add_experts(const Input& in, const Input& down, const Routed& routed,
                   cudaStream_t stream) const;
  /// Adds what was summed up to the taps that begin() named; sums that are kept stay in memory that
  /// the taps then hold. Waits for the stream.
  void fetch(cudaStream_t stream);

 private:
  /// A role has one input, or one for each expert.
  struct Role {
    std::vector<InputStatistics*> wanted;  // nullptr: nobody asked
    int32_t cols = 0;
    SecondMoment kind = SecondMoment::none;
    int64_t first = 0;  // index of its first entry in seen_ and pointers_
  };
  Role& role(TapRole which) { return roles_[static_cast<size_t>(which)]; }
  const Role& role(TapRole which) const { return roles_[static_cast<size_t>(which)]; }
  void want(TapRole which, Taps& taps, const LinearSource& linear);
  Result<void> place(cudaStream_t stream);
  void sum(const Role& role, InputRows rows, cudaStream_t stream) const;
  Result<void> find_room(int64_t bytes);
  void fetch_sums(const Role& role, const double*& from, cudaStream_t stream);

  DeviceContext* device_ = nullptr;
  std::array<Role, kTapRoles> roles_;
  int32_t experts_ = 0;
  DeviceBuffer row_amax_, row_, segments_;
  DeviceBuffer seen_;      // SeenRows [inputs of all roles]
  DeviceBuffer pointers_;  // double* [the same]
  DeviceBuffer squares_;   // F64 [inputs of a role, its columns]
  // F64; taps may hold the memory of one while the other is summed up.
  std::shared_ptr<DeviceBuffer> moments_ = nullptr, other_moments_ = nullptr;
};

}  // namespace nibble::cuda
