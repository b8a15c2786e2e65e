// Places follow one another in the memory, each at a multiple of 256 bytes.
#include "backend/cuda/gradient/transposed_weights.h"

#include "base/check.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kAlignment = 256;

int64_t placed(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t of_mlp(const MlpSources& mlp) {
  return transposed_bytes_of(mlp.gate) + transposed_bytes_of(mlp.up) +
         transposed_bytes_of(mlp.down);
}

}  // namespace

int64_t transposed_bytes_of(const LinearSource& linear) {
  return linear.present() ? placed(transposed_bytes(linear.rows, linear.cols, 1)) : 0;
}

int64_t transposed_bytes_of(const LayerSources& layer) {
  int64_t bytes = of_mlp(layer.dense_mlp) + of_mlp(layer.moe.shared);
  const AttentionSources& a = layer.attention;
  const DeltaNetSources& d = layer.delta_net;
  for (const LinearSource* one : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out,
                                  &layer.moe.router, &layer.moe.shared_gate})
    bytes += transposed_bytes_of(*one);
  for (const MlpSources& expert : layer.moe.experts) bytes += of_mlp(expert);
  return bytes;
}

void TransposedWeights::use(std::byte* memory, int64_t bytes, cudaStream_t stream) {
  memory_ = memory;
  bytes_ = bytes;
  stream_ = stream;
  forget();
}

void TransposedWeights::forget() {
  used_ = 0;
  made_.clear();
}

DeviceLinear TransposedWeights::of(const MatrixToTranspose& matrix) {
  const auto known = made_.find(matrix.weight.values);
  if (known != made_.end()) return known->second;
  const int64_t at = used_;
  used_ += placed(transposed_bytes(matrix.weight.rows, matrix.cols, matrix.stack));
  CHECK(used_ <= bytes_, "transposed weights of ", used_, " bytes, room for ", bytes_);
  const DeviceLinear made =
      transpose_matrices(matrix, reinterpret_cast<uint8_t*>(memory_ + at), stream_);
  made_.emplace(matrix.weight.values, made);
  return made;
}

}  // namespace nibble::cuda
