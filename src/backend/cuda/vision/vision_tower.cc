// Each piece is a short sequence of launches; formulas: model.md 4.2 and ops/vision.
#include "backend/cuda/vision/vision_tower.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/pool_copies.h"
#include "backend/cuda/weights/device_checks.h"

namespace nibble::cuda {
namespace {

int32_t count_of(const VisionPiece& piece) { return static_cast<int32_t>(piece.end - piece.begin); }
/// The row of the workspace that is the first of a piece.
int64_t first_of(const VisionPiece& piece) { return piece.frame->row_begin + piece.begin; }

}  // namespace

Result<void> CardTower::reserve(DeviceContext& device, const PoolSizes& sizes) {
  buffer_ = DeviceBuffer();
  memory_ = VisionMemory();
  host_rows_ = PinnedBuffer();
  if (sizes.media_rows == 0) return {};
  const int64_t bytes = VisionMemory::cut(config_, sizes, nullptr).bytes;
  buffer_ = TRY(DeviceBuffer::allocate(device, bytes, "the vision tower"));
  memory_ = VisionMemory::cut(config_, sizes, buffer_.as<std::byte>());
  host_rows_ = TRY(
      PinnedBuffer::allocate(sizes.host_media_rows * media_row_bytes(), "rows of encoded media"));
  vision_prepare(launcher_);
  fill_turns();
  return {};
}

Result<void> CardTower::wake() {
  TRY(buffer_.wake("the vision tower"));
  fill_turns();
  return {};
}

void CardTower::fill_turns() const {
  vision_turns(memory_.turns.as<float2>(), memory_.turn_places, config_.head_dim(), launcher_);
}

/// Pageable memory is read before the call returns.
void CardTower::upload(const DeviceSlice& to, const void* from, size_t bytes,
                       int64_t offset) const {
  CHECK(offset + static_cast<int64_t>(bytes) <= to.bytes(), bytes, " bytes at ", offset, " of ",
        to.bytes());
  CUDA_CHECK(cudaMemcpyAsync(to.as<std::byte>() + offset, from, bytes, cudaMemcpyHostToDevice,
                             launcher_.stream));
}

void CardTower::multiply(const BiasedWeights& linear, const uint16_t* x, int32_t rows,
                         const Output& output) const {
  vision_gemm({.packed_x = x,
               .x_stride = linear.weight.cols,
               .rows = rows,
               .weight = linear.weight,
               .output = output.shape,
               .bias = linear.bias,
               .y = output.y,
               .y_stride = output.stride},
              launcher_);
}

/// Zeroes the columns of rows of `narrow` that attention does not write.
void CardTower::clear_padding(uint16_t* narrow, int64_t stride, int32_t rows) const {
  if (stride == config_.hidden) return;
  const auto pitch = static_cast<size_t>(stride) * sizeof(uint16_t);
  const auto own = static_cast<size_t>(config_.hidden) * sizeof(uint16_t);
  CUDA_CHECK(cudaMemset2DAsync(narrow + config_.hidden, pitch, 0, pitch - own,
                               static_cast<size_t>(rows), launcher_.stream));
}

/// narrow [rows][stride] = the norm of the piece's rows.
void CardTower::norm(const LayerNormWeights& norm, const VisionPiece& piece, int64_t stride) const {
  vision_norm({.x = memory_.x.as<float>() + first_of(piece) * config_.hidden,
               .weight = norm.weight,
               .bias = norm.bias,
               .epsilon = VisionConfig::kNormEps,
               .width = config_.hidden,
               .rows = count_of(piece),
               .out = memory_.narrow.as<uint16_t>(),
               .stride = stride},
              launcher_);
}

void CardTower::upload_places(const VisionPiece& piece) const {
  const MediaGrid& grid = piece.frame->media->grid;
  std::vector<FramePlace> places;
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    const PatchPlace place = patch_place(i, grid.w, config_.merge);
    places.push_back({.row = static_cast<int16_t>(place.row),
                      .column = static_cast<int16_t>(place.column),
                      .rows = static_cast<int16_t>(grid.h),
                      .columns = static_cast<int16_t>(grid.w)});
  }
  constexpr int64_t kPlace = sizeof(FramePlace);
  upload(memory_.places, places.data(), places.size() * sizeof(FramePlace),
         first_of(piece) * kPlace);
}

void CardTower::embed(const VisionPiece& piece) const {
  const MediaPatches& media = *piece.frame->media;
  const int64_t values = config_.patch_values();
  const int64_t first = piece.frame->t * media.grid.frame_patches() + piece.begin;
  const int32_t rows = count_of(piece);
  upload_places(piece);
  upload(memory_.levels, &media.levels[static_cast<size_t>(first * values)],
         static_cast<size_t>(rows * values));
  upload(memory_.values, media.values.data(), sizeof media.values);
  auto* patches = memory_.wide.as<uint16_t>();
  vision_levels({.levels = memory_.levels.as<uint8_t>(),
                 .values = memory_.values.as<float>(),
                 .each = static_cast<int32_t>(values / VisionConfig::kChannels),
                 .rows = rows,
                 .patches = patches,
                 .stride = weights_.patches.weight.cols},
                launcher_);
  float* x = memory_.x.as<float>() + first_of(piece) * config_.hidden;
  vision_positions({.places = memory_.places.as<FramePlace>() + first_of(piece),
                    .table = weights_.positions,
                    .side = config_.table_side,
                    .width = config_.hidden,
                    .rows = rows,
                    .x = x},
                   launcher_);
  multiply(weights_.patches, patches, rows, {GemmOutput::add, x, config_.hidden});
}

void CardTower::project(int block, const VisionPiece& piece) const {
  const VisionBlockWeights& w = weights_.blocks[static_cast<size_t>(block)];
  const int32_t rows = count_of(piece);
  auto* qkv = memory_.wide.as<uint16_t>();
  norm(w.norm1, piece, w.qkv.weight.cols);
  multiply(w.qkv, memory_.narrow.as<uint16_t>(), rows,
           {GemmOutput::bias, qkv, int64_t{3} * config_.hidden});
  vision_rotate({.qkv = qkv,
                 .places = memory_.places.as<FramePlace>() + first_of(piece),
                 .turns = memory_.turns.as<float2>(),
                 .heads = config_.heads,
                 .head_dim = config_.head_dim(),
                 .rows = rows,
                 .out = memory_.heads.as<uint16_t>(),
                 .row_begin = first_of(piece),
                 .out_rows = memory_.patches},
                launcher_);
}

void CardTower::attend(int block, const VisionPiece& piece) const {
  const VisionBlockWeights& w = weights_.blocks[static_cast<size_t>(block)];
  const int32_t rows = count_of(piece);
  auto* narrow = memory_.narrow.as<uint16_t>();
  auto* inner = memory_.wide.as<uint16_t>();
  float* x = memory_.x.as<float>() + first_of(piece) * config_.hidden;
  const auto frame = static_cast<int32_t>(piece.frame->row_begin);
  vision_attention({.qkv = memory_.heads.as<uint16_t>(),
                    .rows = memory_.patches,
                    .query_begin = static_cast<int32_t>(first_of(piece)),
                    .query_end = static_cast<int32_t>(first_of(piece)) + rows,
                    .frame_begin = frame,
                    .frame_end = frame + static_cast<int32_t>(piece.frame->patches()),
                    .heads = config_.heads,
                    .head_dim = config_.head_dim(),
                    .out = narrow,
                    .stride = w.proj.weight.cols},
                   launcher_);
  clear_padding(narrow, w.proj.weight.cols, rows);
  multiply(w.proj, narrow, rows, {GemmOutput::add, x, config_.hidden});
  norm(w.norm2, piece, w.fc1.weight.cols);
  multiply(w.fc1, narrow, rows, {GemmOutput::gelu_tanh, inner, w.fc2.weight.cols});
  multiply(w.fc2, inner, rows, {GemmOutput::add, x, config_.hidden});
}

void CardTower::merge(const VisionPiece& piece) const {
  const int64_t patches = config_.merged_patches();
  CHECK(piece.begin % patches == 0 && piece.end % patches == 0, "patches ", piece.begin, " to ",
        piece.end, " are not whole rows");
  const auto rows = static_cast<int32_t>(count_of(piece) / patches);
  norm(weights_.merger_norm, piece, config_.hidden);
  auto* inner = memory_.wide.as<uint16_t>();
  multiply(weights_.merger_fc1, memory_.narrow.as<uint16_t>(), rows,
           {GemmOutput::gelu_erf, inner, config_.merged_width()});
  auto* merged = memory_.merged.as<float>();
  CUDA_CHECK(cudaMemsetAsync(merged, 0, size_t(rows) * size_t(config_.out) * sizeof(float),
                             launcher_.stream));
  multiply(weights_.merger_fc2, inner, rows, {GemmOutput::add, merged, config_.out});
  upload(memory_.merged_places, &piece.frame->places[static_cast<size_t>(piece.begin / patches)],
         static_cast<size_t>(rows) * sizeof(int32_t));
  vision_scatter(merged, memory_.merged_places.as<int32_t>(), config_.out, rows, this->rows(),
                 launcher_);
}

bool CardTower::finite(std::span<const int32_t> rows) const {
  auto* flag = memory_.flag.as<int32_t>();
  CUDA_CHECK(cudaMemsetAsync(flag, 0, sizeof(int32_t), launcher_.stream));
  const int64_t bytes = media_row_bytes();
  find_not_finite({.base = reinterpret_cast<const uint8_t*>(this->rows()),
                   .stride = bytes,
                   .bytes = bytes,
                   .format = KvFormat::f32,
                   .ids = rows},
                  flag, launcher_);
  int32_t found = 0;
  CUDA_CHECK(cudaMemcpyAsync(&found, flag, sizeof found, cudaMemcpyDeviceToHost, launcher_.stream));
  wait();
  return found == 0 && device_failure() == cudaSuccess;
}

void CardTower::move(CacheMove move, std::span<const IdPair> rows) const {
  queue_moves(
      {.device = memory_.rows.span(), .host = host_rows_.span(), .bytes_each = media_row_bytes()},
      move, rows, launcher_.stream);
}

void CardTower::poison(std::span<const int32_t> rows) const {
  const auto bytes = static_cast<size_t>(media_row_bytes());
  for (const int32_t row : rows)
    CUDA_CHECK(
        cudaMemsetAsync(this->rows() + int64_t{row} * config_.out, 0xFF, bytes, launcher_.stream));
}

void CardTower::wait() const { CUDA_CHECK(cudaStreamSynchronize(launcher_.stream)); }

}  // namespace nibble::cuda
