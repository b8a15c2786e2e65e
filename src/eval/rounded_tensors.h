// RoundedTensors: a checkpoint whose linears are rounded as another format would, in memory alone:
// for comparisons with formats that this program does not write.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/tensor_source.h"

namespace nibble {

/// A symmetric format without zero points, each group of columns of a row under a scale of its own.
struct SimulatedFormat {
  std::string_view name;
  std::string_view rule;  // for people: group, scale and codes
  int64_t group = 0;      // columns; 0: the whole row
  int32_t code_bits = 0;
  int32_t scale_bits = 0;
  /// Rounds the weights of one group in place.
  void (*round)(std::span<float> group);
};

/// int8, int4 and mxfp4.
std::span<const SimulatedFormat> simulated_formats();

class RoundedTensors final : public TensorSource {
 public:
  /// `columns`: the tensors to round, of BF16, F16 or F32, with the length of their rows, the
  /// matrices' input dimension. They are read as F32. `source` must outlive this.
  RoundedTensors(const TensorSource& source, const SimulatedFormat& format,
                 const std::map<std::string, int64_t>& columns);

  const TensorEntry* find(std::string_view name) const override;
  /// Errors: those of the source.
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override;

 private:
  struct Rounded {
    TensorEntry entry;  // as it is given: F32
    const TensorEntry* source = nullptr;
    int64_t columns = 0;
  };
  /// Row `row` of a tensor, rounded, into values [columns].
  Result<void> read_row(const Rounded& tensor, int64_t row, std::span<float> values) const;

  const TensorSource& source_;
  const SimulatedFormat& format_;
  std::map<std::string, Rounded, std::less<>> rounded_;
};

}  // namespace nibble
