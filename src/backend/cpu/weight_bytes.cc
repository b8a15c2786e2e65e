// Each format has its own size of values and scales.
#include "backend/cpu/weight_bytes.h"

#include "backend/cpu/packed_linear.h"

namespace nibble::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t tiles(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

}  // namespace

int64_t linear_bytes(const LinearSource& source, DType stored) {
  return PackedLinear(source, stored).room();
}

int64_t readable_bytes(const LinearSource& source, DType stored) {
  const PackedLinear linear(source, stored);
  return linear.reads_stored_rows() ? linear.stored_bytes() : 0;
}

int64_t embedding_bytes(const LinearSource& source, DType stored) {
  const int64_t count = source.rows * source.cols;
  switch (source.scheme.weights) {
    case WeightFormat::plain:
      return dtype_bytes(stored, count);
    case WeightFormat::nvfp4:
      return count / 2 + count / kNvfp4Group;
    case WeightFormat::fp8_tensor:
      return count + kFloat;
    case WeightFormat::fp8_channel:
      return count + source.rows * kFloat;
    case WeightFormat::fp8_block:
      return count + tiles(source.rows) * tiles(source.cols) * kFloat;
  }
  CHECK(false, "weight format ", static_cast<int>(source.scheme.weights));
}

int64_t vector_bytes(const VectorSource& source) { return source.shape.count() * kFloat; }

int64_t decay_bytes(const VectorSource& a_log) {
  return a_log.shape.count() * int64_t{sizeof(double)};
}

int64_t table_bytes(const RopeTable& table) {
  return static_cast<int64_t>(table.inverse_frequencies.size() * sizeof(double) +
                              table.axes.size() * sizeof(uint8_t));
}

}  // namespace nibble::cpu
