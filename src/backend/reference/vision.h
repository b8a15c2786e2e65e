// The vision tower: patches of frames to rows of the text model. Source: model.md 4.2.
#pragma once

#include <vector>

#include "backend/reference/linear.h"
#include "model/vision.h"

namespace nibble::reference {

/// y = (x - mean) / sqrt(variance + eps) * w + b, over vectors of weight.size().
struct LayerNorm {
  std::vector<float> weight, bias;

  static Result<LayerNorm> load(const Weights& weights, const LayerNormSource& source);
  std::vector<float> apply(const std::vector<float>& x) const;
};

/// y = W x + b, inputs of W rounded as the activation mode says.
struct Biased {
  Linear weight;
  std::vector<float> bias;

  static Result<Biased> load(const Weights& weights, const BiasedSource& source,
                             const LinearOptions& options);
  std::vector<float> apply(const std::vector<float>& x) const;
};

class Vision {
 public:
  static Result<Vision> load(const Weights& weights, const VisionConfig& config,
                             const LinearOptions& options);

  void reserve(int64_t workspace_rows, int32_t media_rows);
  void embed(const VisionPiece& piece);
  void project(int block, const VisionPiece& piece);
  void attend(int block, const VisionPiece& piece);
  void merge(const VisionPiece& piece);
  /// [out], of a row that merge() wrote.
  const float* media_row(int32_t place) const { return &media_[place_of(place)]; }
  float* media_row(int32_t place) { return &media_[place_of(place)]; }
  bool finite(std::span<const int32_t> places) const;
  void poison(std::span<const int32_t> places);
  bool reserved() const { return !media_.empty(); }

 private:
  struct Block {
    LayerNorm norm1, norm2;
    Biased qkv, proj, fc1, fc2;
  };
  size_t place_of(int32_t place) const {
    return static_cast<size_t>(place) * static_cast<size_t>(config_.out);
  }
  /// The residual stream of a piece.
  std::vector<float> rows(const VisionPiece& piece) const;
  void add(const VisionPiece& piece, const std::vector<float>& y);
  std::vector<float> attention(const VisionPiece& piece) const;
  void turn(float* head, PatchPlace place) const;

  VisionConfig config_;
  Biased patches_;
  std::vector<float> positions_;  // [table_side^2, hidden]
  std::vector<Block> blocks_;
  LayerNorm merger_norm_;
  Biased merger_fc1_, merger_fc2_;
  std::vector<float> x_;    // [workspace rows, hidden], the residual stream
  std::vector<float> qkv_;  // [workspace rows, 3 hidden]
  std::vector<float> media_;
};

}  // namespace nibble::reference
