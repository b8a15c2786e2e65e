// Sums over the linears and vectors of a model.
#include "plan/weight_tally.h"

#include <array>
#include <map>

namespace nibble {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kBf16 = 2;

int64_t tiles(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

/// Values and block scales of one row of `cols` columns.
int64_t row_bytes(WeightFormat format, int64_t cols) {
  if (format == WeightFormat::plain) return kBf16 * cols;
  return format == WeightFormat::nvfp4 ? cols / 2 + cols / kNvfp4Group : cols;
}

/// Scales of FP8 and global scales of a matrix.
int64_t factor_count(WeightFormat format, int64_t rows, int64_t cols) {
  switch (format) {
    case WeightFormat::plain:
      return 0;
    case WeightFormat::fp8_channel:
      return rows;
    case WeightFormat::fp8_block:
      return tiles(rows) * tiles(cols);
    default:
      return 1;
  }
}

/// On a card every buffer begins at a multiple of 256 bytes.
int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t linear_in_file(const LinearSource& source) {
  const WeightFormat format = source.scheme.weights;
  const int64_t input = source.input_scale.empty() ? 0 : kFloat;
  return source.rows * row_bytes(format, source.cols) + input +
         factor_count(format, source.rows, source.cols) * kFloat;
}

/// `count` matrices alike, in one stack.
int64_t linear_on_card(const LinearSource& source, int64_t count, const CardLayout& layout) {
  constexpr int64_t kColumnPad = 256;
  constexpr int64_t kF32Parts = 3;  // of backend/cuda/weights/device_weights.h
  const WeightFormat format = source.scheme.weights;
  const int64_t cols = (source.cols + kColumnPad - 1) / kColumnPad * kColumnPad;
  const int64_t scales = format == WeightFormat::nvfp4 ? cols / kNvfp4Group : 0;
  const bool wide = layout.activations == Activations::f32 && format == WeightFormat::plain &&
                    layout.is_wider && layout.is_wider(source);
  const int64_t values = (wide ? kF32Parts : 1) * (row_bytes(format, cols) - scales);
  const ActivationFormat inputs = source.scheme.activations;
  const bool scaled = layout.activations == Activations::declared &&
                      (inputs == ActivationFormat::nvfp4 || inputs == ActivationFormat::fp8_tensor);
  const int64_t factors = factor_count(format, source.rows, cols) + (scaled ? 1 : 0);
  return aligned(count * source.rows * values) + aligned(count * source.rows * scales) +
         aligned(count * factors * kFloat);
}

/// A matrix of the vision tower: BF16, rows and columns padded to 64.
int64_t tower_on_card(const LinearSource& source) {
  constexpr int64_t kPad = 64;  // the same as in backend/cuda/weights/vision_weights.h
  const auto padded = [](int64_t count) { return (count + kPad - 1) / kPad * kPad; };
  return aligned(padded(source.rows) * padded(source.cols) * kBf16);
}

class Tally {
 public:
  explicit Tally(const FileBytes* file) : file_(file) {}
  explicit Tally(const CardLayout& layout) : layout_(layout) {}

  void linear(WeightKind kind, const LinearSource& source) {
    if (source.present()) add(kind, source, 1, bytes_of(source));
  }
  void tower(const LinearSource& source) {
    const bool on_card = file_ == nullptr;
    add(WeightKind::vision, source, 1, on_card ? tower_on_card(source) : file_->linear(source));
  }
  /// `copies`: on a card, A_log has two.
  void vector(WeightKind kind, const VectorSource& source, int64_t copies = 1) {
    if (!source.present()) return;
    WeightRow& row = at(kind, WeightFormat::plain);
    const int64_t count = source.shape.count();
    row.parameters += count;
    row.bytes += file_ != nullptr ? file_->vector(source) : copies * aligned(count * kFloat);
  }
  void mlp(WeightKind kind, const MlpSources& sources) {
    for (const LinearSource* part : {&sources.gate, &sources.up, &sources.down})
      linear(kind, *part);
  }
  void layer(const LayerSources& layer);
  void model(const SyntheticWeights& weights);

  std::vector<WeightRow> take() const {
    std::vector<WeightRow> rows;
    for (const auto& [key, row] : rows_) rows.push_back(row);
    return rows;
  }

 private:
  /// Experts of one format are a stack on a card.
  void experts(const std::vector<MlpSources>& experts);
  int64_t bytes_of(const LinearSource& source) const {
    return file_ != nullptr ? file_->linear(source) : linear_on_card(source, 1, layout_);
  }
  void add(WeightKind kind, const LinearSource& source, int64_t count, int64_t bytes) {
    WeightRow& row = at(kind, source.scheme.weights);
    row.parameters += count * source.rows * source.cols;
    row.bytes += bytes;
  }
  WeightRow& at(WeightKind kind, WeightFormat format) {
    WeightRow& row = rows_[{kind, format}];
    row.kind = kind;
    row.format = format;
    return row;
  }

  const FileBytes* file_ = nullptr;  // null: on a card
  CardLayout layout_;
  std::map<std::pair<WeightKind, WeightFormat>, WeightRow> rows_;
};

void Tally::experts(const std::vector<MlpSources>& experts) {
  if (file_ != nullptr) {
    for (const MlpSources& expert : experts) mlp(WeightKind::experts, expert);
    return;
  }
  for (LinearSource MlpSources::*role : {&MlpSources::gate, &MlpSources::up, &MlpSources::down}) {
    std::map<WeightFormat, std::pair<const LinearSource*, int64_t>> alike;
    for (const MlpSources& expert : experts) {
      auto& [first, count] = alike[(expert.*role).scheme.weights];
      if (first == nullptr) first = &(expert.*role);
      ++count;
    }
    for (const auto& [format, stack] : alike)
      add(WeightKind::experts, *stack.first, stack.second,
          linear_on_card(*stack.first, stack.second, layout_));
  }
}

void Tally::layer(const LayerSources& layer) {
  vector(WeightKind::norms, layer.input_norm);
  vector(WeightKind::norms, layer.post_norm);
  const AttentionSources& a = layer.attention;
  for (const LinearSource* part : {&a.q, &a.k, &a.v, &a.o}) linear(WeightKind::attention, *part);
  vector(WeightKind::norms, a.q_norm);
  vector(WeightKind::norms, a.k_norm);
  const DeltaNetSources& d = layer.delta_net;
  for (const LinearSource* part : {&d.qkv, &d.z, &d.a, &d.b, &d.out})
    linear(WeightKind::delta_net, *part);
  vector(WeightKind::delta_net, d.conv);
  vector(WeightKind::delta_net, d.a_log, 2);
  vector(WeightKind::delta_net, d.dt_bias);
  vector(WeightKind::norms, d.norm);
  linear(WeightKind::router, layer.moe.router);
  linear(WeightKind::router, layer.moe.shared_gate);
  mlp(WeightKind::shared_expert, layer.moe.shared);
  experts(layer.moe.experts);
  mlp(WeightKind::dense_mlp, layer.dense_mlp);
}

void Tally::model(const SyntheticWeights& weights) {
  linear(WeightKind::embedding, weights.embedding);
  if (weights.head.values != weights.embedding.values) linear(WeightKind::head, weights.head);
  vector(WeightKind::norms, weights.final_norm);
  for (const LayerSources& sources : weights.layers) layer(sources);
  if (weights.vision)
    visit_vision(
        *weights.vision, [&](const LinearSource& part) { tower(part); },
        [&](const VectorSource& part) { vector(WeightKind::vision, part); });
  if (!weights.mtp) return;
  const MtpSources& mtp = *weights.mtp;
  for (const VectorSource* norm : {&mtp.embedding_norm, &mtp.hidden_norm, &mtp.norm})
    vector(WeightKind::norms, *norm);
  linear(WeightKind::mtp, mtp.joined);
  linear(WeightKind::mtp, mtp.head);
  const int64_t rows = mtp.head.rows;
  if (rows > 0 && rows < weights.head.rows && file_ == nullptr)  // the token of each row
    at(WeightKind::mtp, mtp.head.scheme.weights).bytes += aligned(rows * int64_t{sizeof(int32_t)});
  layer(mtp.layer);
}

}  // namespace

std::string_view weight_kind_name(WeightKind kind) {
  constexpr std::array<std::string_view, 11> kNames = {
      "experts", "shared expert", "dense MLP", "router", "attention",   "delta net",
      "norms",   "embedding",     "head",      "MTP",    "vision tower"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view weight_format_name(WeightFormat format) {
  if (format == WeightFormat::plain) return "BF16";
  return format == WeightFormat::nvfp4 ? "NVFP4" : "FP8";
}

FileBytes usual_file_bytes() {
  return {.linear = linear_in_file,
          .vector = [](const VectorSource& source) { return source.shape.count() * kBf16; }};
}

std::vector<WeightRow> tally_in_file(const SyntheticWeights& weights, const FileBytes& file) {
  Tally tally(&file);
  tally.model(weights);
  return tally.take();
}

std::vector<WeightRow> tally_on_card(const SyntheticWeights& weights, const CardLayout& layout) {
  Tally tally(layout);
  tally.model(weights);
  return tally.take();
}

int64_t total_bytes(const std::vector<WeightRow>& rows) {
  int64_t bytes = 0;
  for (const WeightRow& row : rows) bytes += row.bytes;
  return bytes;
}

}  // namespace nibble
