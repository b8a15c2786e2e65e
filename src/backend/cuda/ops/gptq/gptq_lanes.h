// GptqLanes: places on a card in which inputs are factorised and rows rounded, each with memory and
// a stream of its own, so that several threads keep the card busy: one linear alone does not.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/ops/gptq/gptq.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/devices/gptq_device.h"

namespace nibble::cuda {

class GptqLanes final : public GptqDevice {
 public:
  /// The device memory of one place for inputs of at most `cols` columns.
  static int64_t lane_bytes(int64_t cols);
  /// `lanes` places on `device`, which must outlive this. Errors: no_memory, unsupported if the
  /// descent has no shared memory for so many columns.
  static Result<std::unique_ptr<GptqLanes>> reserve(DeviceContext& device, int64_t cols, int lanes);

  /// It has no places; reserve() makes them.
  GptqLanes(DeviceContext& device, int64_t cols) : device_(device), cols_(cols) {}

  std::string description() const override;
  bool takes(int64_t cols) const override { return cols <= cols_; }
  std::unique_ptr<FactorisedInput> factorise(const GptqMoment& moment) override;

 private:
  struct Lane {
    Stream stream;
    DeviceBuffer memory;
    PinnedBuffer staged;
  };
  class Input;
  Lane& take();
  void give(Lane& lane);

  DeviceContext& device_;
  int64_t cols_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<Lane*> free_;
};

}  // namespace nibble::cuda
