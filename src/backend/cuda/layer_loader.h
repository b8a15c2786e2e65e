// LayerLoader: the weights of one layer on the card, and those of the next, read meanwhile.
#pragma once

#include <future>

#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/weight_senders.h"
#include "backend/cuda/weights/weight_store.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

class LayerLoader {
 public:
  /// All must outlive it.
  LayerLoader(const Weights& weights, const ModelConfig& config, WeightSenders& senders)
      : weights_(weights), config_(config), senders_(senders) {}
  ~LayerLoader();
  LayerLoader(const LayerLoader&) = delete;
  LayerLoader& operator=(const LayerLoader&) = delete;

  /// The card; and how often a store has its one layer.
  void use(const Launcher& launcher, size_t copies);
  /// store() becomes the weights of `layer` unless it has them already; begins to read `next`
  /// unless that is no layer, or another one is being read. Errors: those of reading.
  Result<void> open(int layer, int next);
  /// Gives back the memory of both.
  void close();
  const WeightStore& store() const { return store_; }

 private:
  Result<WeightStore> load(int layer) const;
  void load_next(int layer);

  const Weights& weights_;
  const ModelConfig& config_;
  WeightSenders& senders_;
  Launcher reading_;
  size_t copies_ = 1;
  WeightStore store_;
  int layer_ = -1;  // the layer whose weights are in store_
  std::future<Result<WeightStore>> next_;
  int next_layer_ = -1;
};

}  // namespace nibble::cuda
