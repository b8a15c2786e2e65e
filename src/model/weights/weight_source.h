// The places of single tensors in a checkpoint, without their numbers.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble {

/// The place of one linear [rows = N, cols = K] in the files. For a fused 3-D expert tensor,
/// `row_begin` is the first of its rows in the tensor seen as [E * rows_per_expert, K].
struct LinearSource {
  std::string module;  // for messages and reports: "model.layers.0.mlp.experts.3.gate_proj"
  int64_t rows = 0;
  int64_t cols = 0;
  QuantScheme scheme;
  std::string values;  // tensor name
  int64_t row_begin = 0;
  std::string scales;        // nvfp4, fp8: tensor name
  std::string global_scale;  // nvfp4: tensor name
  std::string input_scale;   // static activation scale: tensor name, or empty
  GlobalScale::Direction direction = GlobalScale::Direction::multiply;
  bool present() const { return !values.empty(); }
};

/// A small tensor (norm weight, conv, A_log ...), always loaded as F32.
struct VectorSource {
  std::string name;
  Shape shape;
  bool present() const { return !name.empty(); }
};

}  // namespace nibble
