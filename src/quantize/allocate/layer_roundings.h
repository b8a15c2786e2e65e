// LayerRoundings: the linears of one layer in NVFP4 and in FP8, rounded without data when they are
// first asked for, and kept as codes until a linear of another layer comes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "quantize/gradient/dense_linear.h"

namespace nibble {

/// "model.layers.3." of a linear in it; what stands in no layer is a layer of its own.
std::string_view layer_part(std::string_view module);

/// Work on bands of at most 128 rows, so that sums do not depend on threads.
void each_band(ThreadPool& threads, int64_t rows,
               const std::function<void(int64_t row, int64_t count)>& work);

class LayerRoundings {
 public:
  struct Both {
    std::optional<LinearWeight> nvfp4;  // nothing: its columns are no multiple of 16
    LinearWeight fp8;
  };
  explicit LayerRoundings(ThreadPool& threads) : threads_(threads) {}

  /// nullptr if the weights are not all finite.
  const Both* of(const gradient::DenseLinear& linear);
  gradient::DenseLinear decoded(const LinearWeight& weight);

 private:
  LinearWeight round_nvfp4(const gradient::DenseLinear& linear, float amax);
  LinearWeight round_fp8(const gradient::DenseLinear& linear, float amax);

  ThreadPool& threads_;
  std::string layer_;
  std::map<std::string, Both, std::less<>> rounded_;  // of that layer
};

}  // namespace nibble
