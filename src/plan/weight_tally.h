// This is what the weights of a text model take, by kind and format: as a file stores them, and as
// a card holds them (the layout of backend/cuda/weights/weight_store.cc, which a test on a card
// holds this to). Shapes and formats alone; no tensor is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {

enum class WeightKind : uint8_t {
  experts,
  shared_expert,
  dense_mlp,
  router,
  attention,
  delta_net,
  norms,
  embedding,
  head,
  // The product that joins the inputs of the layer that drafts, and its head; its own linears count
  // as those of a layer.
  mtp,
  vision,
};
/// "experts", "shared expert", ...: for tables.
std::string_view weight_kind_name(WeightKind kind);
/// "NVFP4", "FP8", "BF16".
std::string_view weight_format_name(WeightFormat format);

struct WeightRow {
  WeightKind kind = WeightKind::experts;
  WeightFormat format = WeightFormat::plain;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

/// Bytes of a tensor's values and scales in a file.
struct FileBytes {
  std::function<int64_t(const LinearSource&)> linear;
  std::function<int64_t(const VectorSource&)> vector;
};
/// It counts shapes and formats alone: BF16 where values are plain, F32 scales.
FileBytes usual_file_bytes();

/// One row for each kind and format, in the order of WeightKind. A head that is the embedding has
/// no row of its own.
std::vector<WeightRow> tally_in_file(const SyntheticWeights& weights, const FileBytes& file);
/// The precision of activations, which changes what a card holds of the same tensors: declared adds
/// an input scale to a linear that has one; f32 keeps plain values beyond BF16 in three parts.
struct CardLayout {
  Activations activations = Activations::bf16;
  std::function<bool(const LinearSource&)> is_wider;  // than BF16; empty: none is
};
/// It counts what a card holds: rows padded to 256 columns, tensors aligned, vectors in F32.
std::vector<WeightRow> tally_on_card(const SyntheticWeights& weights,
                                     const CardLayout& layout = {});
int64_t total_bytes(const std::vector<WeightRow>& rows);

/// This is what a file has beside the text model, in BF16.
struct OtherWeights {
  int64_t vision_bytes = 0;
  int64_t mtp_bytes = 0;
};
/// It reads a config.json. Errors: those of VisionConfig::parse.
Result<OtherWeights> other_weights(const Json& json, const ModelConfig& config);

}  // namespace nibble
