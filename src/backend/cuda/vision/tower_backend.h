// TowerBackend: the part of the CUDA backend that is the vision tower. CudaBackend is one.
#pragma once

#include <optional>

#include "backend/cuda/vision/vision_tower.h"
#include "model/backend.h"

namespace nibble::cuda {

class TowerBackend : public Backend {
 public:
  bool has_vision() const override { return tower_ && tower_->rows() != nullptr; }
  int64_t vision_piece_rows() const override { return kVisionPieceMost; }
  void embed_patches(const VisionPiece& piece) override { tower_->embed(piece); }
  void project_patches(int block, const VisionPiece& piece) override {
    tower_->project(block, piece);
  }
  void attend_patches(int block, const VisionPiece& piece) override {
    tower_->attend(block, piece);
  }
  void merge_patches(const VisionPiece& piece) override { tower_->merge(piece); }
  bool finite_media(std::span<const int32_t> rows) override { return tower_->finite(rows); }
  void move_media(CacheMove move, std::span<const IdPair> rows) override {
    tower_->move(move, rows);
  }
  void wait_vision() override { tower_->wait(); }
  void poison_media(std::span<const int32_t> rows) override { tower_->poison(rows); }

 protected:
  std::optional<CardTower> tower_;
};

}  // namespace nibble::cuda
