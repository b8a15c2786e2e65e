// Allocation: which format each group of linears got under a budget, and what that costs, for the
// report, the screen and a picture. How it is chosen: allocate/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace nibble {

enum class AllocatedFormat : uint8_t { nvfp4, fp8, unquantized };
/// "NVFP4", "FP8", "as it was".
std::string_view allocated_format_name(AllocatedFormat format);

/// A format that a group can have: its bytes as stored, and the predicted share of the mean KL
/// divergence of a token, in nats.
struct AllocationChoice {
  AllocatedFormat format = AllocatedFormat::unquantized;
  int64_t bytes = 0;
  double loss = 0;
};

/// Linears that engines fuse, and so must have one format.
struct AllocationGroup {
  std::string name;  // "model.layers.3.mlp.experts", or the modules' names with commas between
  std::vector<AllocationChoice> choices;  // bytes ascend
  size_t chosen = 0;
};

/// A size and a divergence of the whole checkpoint.
struct AllocationPoint {
  int64_t bytes = 0;  // of tensors
  double loss = 0;    // predicted
};

struct Allocation {
  std::string recipe;     // whose quantized linears were the candidates
  std::string target;     // the option: "--target-bytes 20000000"
  std::string data_hash;  // of what the losses come from
  int64_t tokens = 0;     // of the data
  AllocationPoint total;  // what was chosen
  std::vector<AllocationGroup> groups;
  /// The best that each size can have, from the smallest checkpoint to the unquantized one.
  std::vector<AllocationPoint> curve;

  Json json() const;
  /// Lines for people: by kind of linear how many groups have which format; the total and bounds.
  std::string table() const;
  /// The curve and the chosen point as an SVG picture.
  std::string chart() const;
};

inline constexpr std::string_view kAllocationPicture = "allocation.svg";

}  // namespace nibble
