// SyntheticNumbers: the random numbers of every tensor of a made-up model, deterministic in the
// seed. They are cut from some blocks of 8 MiB, so a model of any size takes little memory.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/tensor_source.h"
#include "model/synthetic/synthetic_checkpoint.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {

/// A tensor and the block its numbers come from.
struct SyntheticTensor {
  TensorPlan plan;
  const std::vector<std::byte>* block = nullptr;  // null: `scalar`
  float scalar = 0.0F;
};

class SyntheticNumbers {
 public:
  /// `options` must outlive it.
  explicit SyntheticNumbers(const SyntheticOptions& options);
  SyntheticNumbers(const SyntheticNumbers&) = delete;
  SyntheticNumbers& operator=(const SyntheticNumbers&) = delete;

  /// All tensors of a model.
  void add(const SyntheticWeights& weights, const ModelConfig& config);

  const std::vector<SyntheticTensor>& tensors() const { return tensors_; }
  /// Bits of the inputs of what ends so.
  const std::map<std::string, int>& declared() const { return declared_; }
  /// Calls take(bytes) -> Result<void> for pieces that make up [begin, begin + count) of a tensor.
  template <typename Take>
  Result<void> pieces(const SyntheticTensor& tensor, int64_t begin, int64_t count,
                      const Take& take) const {
    if (tensor.block == nullptr)
      return take(std::as_bytes(std::span(&tensor.scalar, 1))
                      .subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    const std::span block(*tensor.block);
    size_t at = (first_byte(tensor) + static_cast<size_t>(begin)) % block.size();
    for (auto left = static_cast<size_t>(count); left > 0; at = 0) {
      const size_t some = std::min(block.size() - at, left);
      TRY(take(block.subspan(at, some)));
      left -= some;
    }
    return {};
  }

 private:
  using Block = std::vector<std::byte>;

  void linear(const LinearSource& source, float deviation);
  void declare_inputs(const LinearSource& source);
  /// A BF16 tensor of normal numbers.
  void vector(const VectorSource& source, float mean, float deviation) {
    tensors_.push_back(
        {.plan = {source.name, DType::bf16, source.shape}, .block = normals(mean, deviation)});
  }
  void scalar(const std::string& name, float value) {
    tensors_.push_back({.plan = {name, DType::f32, {1}}, .scalar = value});
  }
  void mlp(const MlpSources& sources);
  /// A linear of deviation 1 / sqrt(columns).
  void usual(const LinearSource& source);
  void layer(const LayerSources& layer, const ModelConfig& config);
  void vision(const VisionSources& tower, const VisionConfig& config);
  size_t first_byte(const SyntheticTensor& tensor) const;
  const Block* normals(float mean, float deviation);
  /// F32 around a mean, within a tenth of it.
  const Block* floats(float mean);

  const SyntheticOptions& options_;
  std::map<std::pair<float, float>, Block> normals_;
  std::map<float, Block> floats_;
  Block codes_, e4m3_, scales_;
  std::vector<SyntheticTensor> tensors_;
  std::map<std::string, int> declared_;
};

/// A made-up model without a file: the numbers that write_synthetic_checkpoint would write with
/// SyntheticScope::weights and this seed.
class SyntheticTensors final : public TensorSource {
 public:
  SyntheticTensors(const SyntheticWeights& weights, const ModelConfig& config, uint64_t seed);

  const TensorEntry* find(std::string_view name) const override;
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override;
  /// The bytes of all tensors.
  int64_t bytes() const;

 private:
  SyntheticOptions options_;
  SyntheticNumbers numbers_;
  std::vector<TensorEntry> entries_;                                 // sorted by name
  std::unordered_map<std::string, const SyntheticTensor*> tensors_;  // by name
};

}  // namespace nibble
