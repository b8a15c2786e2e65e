// The next layer is read by a thread of its own.
#include "backend/cuda/layer_loader.h"

#include "backend/cuda/runtime/device_context.h"

namespace nibble::cuda {

LayerLoader::~LayerLoader() {
  if (next_.valid()) next_.wait();
}

void LayerLoader::use(const Launcher& launcher, size_t copies) {
  copies_ = copies;
  reading_ = launcher;
  reading_.stream = launcher.device->copy_stream();
}

Result<WeightStore> LayerLoader::load(int layer) const {
  ModelConfig one = config_;
  one.layers = {config_.layers[static_cast<size_t>(layer)]};
  WeightStore store =
      TRY(WeightStore::load(weights_.only(layer), one, reading_, {.senders = &senders_}));
  store.layers.resize(copies_, store.layers.front());
  return store;
}

void LayerLoader::load_next(int layer) {
  if (layer < 0 || layer >= config_.layer_count()) return;
  next_layer_ = layer;
  next_ = std::async(std::launch::async, [this, layer] {
    reading_.device->use();
    return load(layer);
  });
}

void LayerLoader::close() {
  if (next_.valid()) (void)next_.get();
  layer_ = -1;
  store_ = WeightStore();
}

Result<void> LayerLoader::open(int layer, int next) {
  if (layer == layer_) {
    if (!next_.valid()) load_next(next);
    return {};
  }
  layer_ = -1;
  store_ = WeightStore();
  if (next_.valid()) {
    Result<WeightStore> read = next_.get();
    if (next_layer_ == layer) store_ = TRY(std::move(read));
  }
  if (store_.layers.empty()) store_ = TRY(load(layer));
  layer_ = layer;
  load_next(next);
  return {};
}

}  // namespace nibble::cuda
