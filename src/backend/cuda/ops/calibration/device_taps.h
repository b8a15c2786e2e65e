// DeviceTaps: the taps of one layer on the card. Blocks in prompt arithmetic show it the inputs of
// their linears; fetch() brings the sums back.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/ops/calibration/weighed_rows.h"
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
/// The linears of one input, when each has sums of its own: at most q, k and v, or qkv, z, b and a.
inline constexpr size_t kRoleLinears = 4;

class DeviceTaps {
 public:
  /// Scratch for passes of so many rows on `device`, which must outlive this. Errors: no_memory.
  enum class Tokens : uint8_t { alike, weighed };
  Result<void> reserve(DeviceContext& device, const ModelConfig& config, int64_t rows,
                       Tokens tokens);
  /// Begins to sum the inputs of `layer`'s linears that `taps` names, from zero.
  /// Errors: no_memory.
  Result<void> begin(const LayerSources& layer, Taps& taps, cudaStream_t stream);
  /// This shows the input of the head alone.
  Result<void> begin(InputStatistics& head, cudaStream_t stream);

  /// The token of row 0 of the passes that follow.
  void begin_pass(int64_t first_token) { first_token_ = first_token; }

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
  /// A linear of a role has one input, or one for each expert.
  struct Role {
    std::vector<InputStatistics*> wanted;  // nullptr: nobody asked
    int32_t cols = 0;
    SecondMoment kind = SecondMoment::none;
    int64_t first = 0;  // index of its first entry in seen_, pointers_ and weights_
    bool weighed = false;
  };
  std::span<const Role> linears(TapRole which) const {
    return std::span(roles_).subspan(static_cast<size_t>(which) * kRoleLinears, kRoleLinears);
  }
  void want(TapRole which, Taps& taps, std::initializer_list<const LinearSource*> linears);
  void want(Role& to, Taps& taps, const LinearSource& linear);
  Result<void> place(cudaStream_t stream);
  Result<void> place_weights(cudaStream_t stream);
  void sum(const Role& role, InputRows rows, const int32_t* pass_row, cudaStream_t stream) const;
  Result<void> find_room(int64_t bytes);
  void fetch_sums(const Role& role, const double*& from, cudaStream_t stream);

  DeviceContext* device_ = nullptr;
  std::array<Role, kTapRoles * kRoleLinears> roles_;
  int32_t experts_ = 0;
  int64_t first_token_ = 0;
  DeviceBuffer row_amax_, row_, segments_;
  DeviceBuffer weighed_x_, weighed_row_;  // of one input, or of all experts'
  DeviceTokenTable weights_;              // of the inputs of all roles
  DeviceBuffer seen_;                     // SeenRows [inputs of all roles]
  DeviceBuffer pointers_;                 // double* [the same]
  DeviceBuffer squares_;                  // F64 [inputs of a role, its columns]
  // F64; taps may hold the memory of one while the other is summed up.
  std::shared_ptr<DeviceBuffer> moments_ = nullptr, other_moments_ = nullptr;
};

}  // namespace nibble::cuda
