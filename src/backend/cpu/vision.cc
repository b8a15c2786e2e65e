// The vision tower: patches of frames to rows of the text model. Attention is that of the text
// model's kernels, over pages of one frame. Bound: 4 N hidden multiplications per patch and block
// for attention over N patches, 2 hidden (4 hidden + 2 inner) for the products.
#include <algorithm>
#include <cmath>

#include "backend/cpu/context.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/split.h"

namespace nibble::cpu {
namespace {

/// A piece, and what the stages need of its model.
struct Vision {
  const Context& context;
  const VisionConfig& config;
  const VisionWeights& weights;
  VisionMemory& memory;
  const VisionPiece& piece;

  int64_t rows() const { return piece.end - piece.begin; }
  /// The row of the workspace that row `i` of the piece is.
  int64_t place(int64_t i) const { return piece.frame->row_begin + piece.begin + i; }
  PatchPlace patch(int64_t i) const {
    return patch_place(piece.begin + i, piece.frame->media->grid.w, config.merge);
  }
  /// task(i) for each row of the piece, on all threads.
  template <typename Task>
  void each_row(int64_t cost, const Task& task) const {
    split(context.pool, rows(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(i);
    });
  }
  /// y = W x, of the piece's first rows; without its bias.
  void multiply(const BiasedLinear& linear, Matrix& x, Matrix& y, int64_t count) const {
    const LinearCall call = product(linear.weight, x, y, count);
    context.linears.run({&call, 1});
  }
  /// hidden += W x + b.
  void add_product(const BiasedLinear& linear, Matrix& x) const {
    LinearCall call = product(linear.weight, x, memory.hidden, rows());
    call.y = memory.hidden.row(place(0));
    call.add = true;
    context.linears.run({&call, 1});
    each_row(config.hidden / 16, [&](int64_t i) {
      context.kernels.add_bias(memory.hidden.row(place(i)), linear.bias.data(), config.hidden);
    });
  }
  void norm(const LayerNormWeights& norm, int64_t i, float* y) const {
    context.kernels.layer_norm({.x = memory.hidden.row(place(i)),
                                .w = norm.weight.data(),
                                .y = y,
                                .n = config.hidden,
                                .eps = VisionConfig::kNormEps},
                               norm.bias.data());
  }
  void norm_rows(const LayerNormWeights& weights) const {
    each_row(config.hidden / 4, [&](int64_t i) { norm(weights, i, memory.normed.row(i)); });
  }

  void widen_levels(int64_t i) const;
  void add_position(int64_t i) const;
  void fill_angles(int64_t i) const;
  /// Numbers of one head in a page.
  int64_t head_floats() const { return int64_t{2} * config.head_dim() * kVisionPage; }
  void store_row(const std::vector<float>& bias, int64_t i) const;
  void attend(int64_t head, int64_t begin, int64_t end) const;
  void attend_all() const;
};

Vision of_piece(const Context& context, const VisionPiece& piece) {
  return {.context = context,
          .config = *context.config.vision,
          .weights = *context.weights.vision,
          .memory = context.media,
          .piece = piece};
}

void Vision::widen_levels(int64_t i) const {
  const MediaPatches& media = *piece.frame->media;
  const int64_t patch = piece.frame->t * media.grid.frame_patches() + piece.begin + i;
  const uint8_t* level = &media.levels[static_cast<size_t>(patch * config.patch_values())];
  float* to = memory.levels.row(i);
  const int channel = config.patch_values() / VisionConfig::kChannels;
  for (const auto& values : media.values)
    for (int k = 0; k < channel; ++k) *to++ = values[*level++];
}

void Vision::add_position(int64_t i) const {
  const TableTaps taps = table_taps(patch(i), piece.frame->media->grid, config.table_side);
  const float* from[4] = {};
  for (size_t tap = 0; tap < 4; ++tap)
    from[tap] =
        &weights
             .positions[static_cast<size_t>(taps.rows[tap]) * static_cast<size_t>(config.hidden)];
  float* row = memory.hidden.row(place(i));
  context.kernels.add_bias(row, weights.patches.bias.data(), config.hidden);
  context.kernels.add_weighted(row, from, taps.weights.data(), 4, config.hidden);
}

/// The first half of the angles is of the patch's row, the other of its column.
void Vision::fill_angles(int64_t i) const {
  const int half = config.head_dim() / 2;
  const PatchPlace at = patch(i);
  float* cos = memory.cos.row(place(i));
  float* sin = memory.sin.row(place(i));
  for (int k = 0; k < half; ++k) {
    const double exponent = -2.0 * (k % (half / 2)) / half;
    const double angle =
        (k < half / 2 ? at.row : at.column) * std::pow(VisionConfig::kRopeTheta, exponent);
    cos[k] = static_cast<float>(std::cos(angle));
    sin[k] = static_cast<float>(std::sin(angle));
  }
}

/// Turns queries and keys of a row of `qkv`, and puts keys and values into their page.
void Vision::store_row(const std::vector<float>& bias, int64_t i) const {
  const int dims = config.head_dim();
  const int64_t width = config.hidden;
  float* row = memory.qkv.row(i);
  context.kernels.add_bias(row, bias.data(), 3 * config.hidden);
  const float* cos = memory.cos.row(place(i));
  const float* sin = memory.sin.row(place(i));
  for (int head = 0; head < 2 * config.heads; ++head)  // the heads of q, then those of k
    rotate(row + int64_t{head} * dims, cos, sin, dims / 2);
  std::copy_n(row, width, memory.q.row(place(i)));
  float* page = memory.page(place(i) / kVisionPage);
  const int64_t slot = place(i) % kVisionPage;
  for (int64_t head = 0; head < config.heads; ++head) {
    const float* key = row + width + head * dims;
    float* keys = page + head * head_floats();
    for (int64_t d = 0; d < dims; ++d) keys[d * kVisionPage + slot] = key[d];
    std::copy_n(key + width, dims, keys + (kVisionPage + slot) * dims);
  }
}

/// Rows [begin, end) of the piece against the whole frame.
void Vision::attend(int64_t head, int64_t begin, int64_t end) const {
  const int64_t dims = config.head_dim();
  AttentionTile tile = {
      .queries = static_cast<int>(end - begin),
      .head_dim = config.head_dim(),
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims))),
      .pages = &memory.page_ids[static_cast<size_t>(piece.frame->row_begin / kVisionPage)],
      .cache = memory.pages.data(),
      .page_stride = memory.page_floats * int64_t{sizeof(float)},
      .k_offset = head * head_floats() * int64_t{sizeof(float)},
      .v_offset = (head * head_floats() + dims * kVisionPage) * int64_t{sizeof(float)}};
  for (int64_t i = begin; i < end; ++i) {
    tile.q[i - begin] = memory.q.row(place(i)) + head * dims;
    tile.out[i - begin] = memory.attention_out.row(i) + head * dims;
    tile.visible[i - begin] = static_cast<int32_t>(piece.frame->patches());
  }
  context.kernels.attention(tile);
}

void Vision::attend_all() const {
  const int64_t tile = context.kernels.queries_per_tile;
  const int64_t tiles = (rows() + tile - 1) / tile;
  const int64_t cost = piece.frame->patches() * config.head_dim() * tile / 8;
  split(context.pool, config.heads * tiles, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % tiles * tile;
      attend(t / tiles, first, std::min(rows(), first + tile));
    }
  });
}

}  // namespace

void embed_patches(const Context& context, const VisionPiece& piece) {
  const Vision vision = of_piece(context, piece);
  VisionMemory& memory = context.media;
  vision.each_row(vision.config.patch_values() / 4, [&](int64_t i) { vision.widen_levels(i); });
  LinearCall call =
      product(vision.weights.patches.weight, memory.levels, memory.hidden, vision.rows());
  call.y = memory.hidden.row(vision.place(0));
  context.linears.run({&call, 1});
  vision.each_row(vision.config.hidden, [&](int64_t i) {
    vision.add_position(i);
    vision.fill_angles(i);
  });
}

void project_patches(const Context& context, int block, const VisionPiece& piece) {
  const Vision vision = of_piece(context, piece);
  VisionMemory& memory = context.media;
  const VisionBlockWeights& weights = vision.weights.blocks[static_cast<size_t>(block)];
  vision.norm_rows(weights.norm1);
  vision.multiply(weights.qkv, memory.normed, memory.qkv, vision.rows());
  vision.each_row(vision.config.hidden, [&](int64_t i) { vision.store_row(weights.qkv.bias, i); });
}

void attend_patches(const Context& context, int block, const VisionPiece& piece) {
  const Vision vision = of_piece(context, piece);
  VisionMemory& memory = context.media;
  const VisionBlockWeights& weights = vision.weights.blocks[static_cast<size_t>(block)];
  vision.attend_all();
  vision.add_product(weights.proj, memory.attention_out);
  vision.norm_rows(weights.norm2);
  vision.multiply(weights.fc1, memory.normed, memory.inner, vision.rows());
  vision.each_row(2 * vision.config.inner, [&](int64_t i) {
    context.kernels.gelu_tanh(memory.inner.row(i), weights.fc1.bias.data(), vision.config.inner);
  });
  vision.add_product(weights.fc2, memory.inner);
}

void merge_patches(const Context& context, const VisionPiece& piece) {
  const Vision vision = of_piece(context, piece);
  VisionMemory& memory = context.media;
  const VisionConfig& config = vision.config;
  const int64_t patches = config.merged_patches();
  CHECK(piece.begin % patches == 0 && piece.end % patches == 0, "patches ", piece.begin, " to ",
        piece.end, " are not whole rows");
  const int64_t count = vision.rows() / patches;
  vision.each_row(config.hidden / 4, [&](int64_t i) {
    vision.norm(vision.weights.merger_norm, i,
                memory.merged.row(i / patches) + i % patches * config.hidden);
  });
  vision.multiply(vision.weights.merger_fc1, memory.merged, memory.merged_inner, count);
  split(context.pool, count, 2 * config.merged_width(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      context.kernels.gelu_exact(memory.merged_inner.row(r), vision.weights.merger_fc1.bias.data(),
                                 config.merged_width());
  });
  vision.multiply(vision.weights.merger_fc2, memory.merged_inner, memory.out, count);
  for (int64_t r = 0; r < count; ++r) {
    float* to =
        memory.rows.row(piece.frame->places[static_cast<size_t>(piece.begin / patches + r)]);
    std::copy_n(memory.out.row(r), config.out, to);
    context.kernels.add_bias(to, vision.weights.merger_fc2.bias.data(), config.out);
  }
}

}  // namespace nibble::cpu
