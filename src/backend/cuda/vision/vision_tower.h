// The vision tower on a card: the pieces of model/backend.h's VisionTower as launches. Between
// operations rows are BF16, the residual stream and the rows of media are F32.
#pragma once

#include <span>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/vision/vision_memory.h"
#include "backend/cuda/weights/vision_weights.h"
#include "model/vision.h"

namespace nibble::cuda {

class CardTower {
 public:
  /// `config` and `weights` must outlive it.
  CardTower(const VisionConfig& config, const VisionWeights& weights, const Launcher& launcher)
      : config_(config), weights_(weights), launcher_(launcher) {}

  /// Errors: no_memory.
  Result<void> reserve(DeviceContext& device, const PoolSizes& sizes);
  const DeviceBuffer& memory() const { return buffer_; }
  DeviceBuffer& memory() { return buffer_; }
  /// F32 [media rows][out].
  float* rows() const { return memory_.rows.as<float>(); }
  /// The memory slept: it comes back without its rows. Errors: no_memory.
  Result<void> wake();

  // The calls of VisionTower.
  void embed(const VisionPiece& piece) const;
  void project(int block, const VisionPiece& piece) const;
  void attend(int block, const VisionPiece& piece) const;
  void merge(const VisionPiece& piece) const;
  bool finite(std::span<const int32_t> rows) const;
  void move(CacheMove move, std::span<const IdPair> rows) const;
  void poison(std::span<const int32_t> rows) const;
  void wait() const;

 private:
  int64_t media_row_bytes() const { return int64_t{config_.out} * int64_t{sizeof(float)}; }
  struct Output {
    GemmOutput shape;
    void* y;
    int64_t stride;
  };
  void fill_turns() const;
  void upload(const DeviceSlice& to, const void* from, size_t bytes, int64_t offset = 0) const;
  void upload_places(const VisionPiece& piece) const;
  void multiply(const BiasedWeights& linear, const uint16_t* x, int32_t rows,
                const Output& output) const;
  void clear_padding(uint16_t* narrow, int64_t stride, int32_t rows) const;
  void norm(const LayerNormWeights& norm, const VisionPiece& piece, int64_t stride) const;

  const VisionConfig& config_;
  const VisionWeights& weights_;
  Launcher launcher_;
  DeviceBuffer buffer_;
  VisionMemory memory_;
  PinnedBuffer host_rows_;  // F32 [host media rows][out]
};

}  // namespace nibble::cuda
