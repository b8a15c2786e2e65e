// A lane's memory is cut for the input in work; rows come in chunks that fill the rest.
#include "backend/cuda/ops/gptq/gptq_lanes.h"

#include <algorithm>
#include <cstring>

namespace nibble::cuda {
namespace {

constexpr int64_t kRowBytes = int64_t{128} << 20;  // of rows in work
constexpr int64_t kRowsLeast = 64;
constexpr int64_t kRowsMost = 8192;
constexpr int64_t kAlignment = 256;
constexpr int64_t kStagedBytes = int64_t{8} << 20;

/// Hands out parts of a lane's memory, or counts them.
class Cut {
 public:
  explicit Cut(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(int64_t count) {
    T* part = reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return part;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

/// `products` is room for those that come from the host.
GptqInput cut_input(int64_t cols, Cut& cut, double*& products) {
  products = cut.take<double>(cols * cols);
  GptqInput input{.cols = static_cast<int32_t>(cols)};
  input.square = cut.take<double>(cols * cols);
  input.roots = cut.take<double>(cols);
  input.factors = cut.take<float>(cols * cols);
  input.costs = cut.take<float>(cols);
  input.h = cut.take<float>(cols * cols);
  input.block_factors = cut.take<float>(cols * 16);
  input.order = cut.take<int32_t>(cols / 16);
  input.broken = cut.take<int32_t>(1);
  return input;
}

/// The memory of a chunk of rows, with the scales and exponents of FP8.
struct Chunk {
  void* weights;
  int32_t* exponents;
  float* fp8_scales;
  float* u;
  float* errors;
  float* gradient;
  uint8_t* codes;
  uint8_t* scales;
};

Chunk cut_chunk(int64_t rows, int64_t cols, Cut& cut) {
  Chunk chunk = {};
  chunk.weights = cut.take<float>(rows * cols);
  chunk.exponents = cut.take<int32_t>(rows);
  chunk.fp8_scales = cut.take<float>(rows * cols / 16);
  chunk.u = cut.take<float>(rows * cols);
  chunk.errors = cut.take<float>(rows * cols);
  chunk.gradient = cut.take<float>(rows * cols);
  chunk.codes = cut.take<uint8_t>(rows * cols);
  chunk.scales = cut.take<uint8_t>(rows * cols / 16);
  return chunk;
}

int64_t chunk_bytes(int64_t rows, int64_t cols) {
  Cut cut(nullptr);
  cut_chunk(rows, cols, cut);
  return cut.bytes();
}

/// Rows that are worked on together.
int64_t chunk_rows(int64_t cols) {
  const int64_t each = chunk_bytes(kRowsLeast, cols);
  return std::clamp(kRowBytes / each * kRowsLeast, kRowsLeast, kRowsMost);
}

}  // namespace

/// An input in a lane, which it gives back.
class GptqLanes::Input final : public FactorisedInput {
 public:
  Input(GptqLanes& lanes, Lane& lane, int64_t cols)
      : lanes_(lanes), lane_(lane), cols_(cols), cut_(lane.memory.as<std::byte>()) {
    input_ = cut_input(cols, cut_, products_);
    chunk_ = cut_chunk(chunk_rows(cols), cols, cut_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input() override { lanes_.give(lane_); }

  /// False: not positive definite.
  bool factorise(const GptqMoment& moment);
  void round_nvfp4(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                   std::span<uint8_t> scales) override;
  void round_fp8(const Fp8GptqRows& rows, std::span<uint8_t> codes) override;

 private:
  cudaStream_t stream() const { return lane_.stream.get(); }
  /// Both copy through the lane's page-locked memory, which the card reads ten times as fast and
  /// the threads fill side by side, and wait for the stream.
  void copy_in(void* to, const void* from, int64_t bytes) const;
  void copy_out(void* to, const void* from, int64_t bytes) const;
  /// Calls round(rows, index of the first) for chunk after chunk, weights loaded.
  template <typename Round>
  void for_each_chunk(const TensorView& weights, const Round& round);

  GptqLanes& lanes_;
  Lane& lane_;
  int64_t cols_;
  Cut cut_;
  double* products_ = nullptr;
  GptqInput input_;
  Chunk chunk_;
};

void GptqLanes::Input::copy_in(void* to, const void* from, int64_t bytes) const {
  for (int64_t done = 0; done < bytes; done += kStagedBytes) {
    const auto piece = static_cast<size_t>(std::min(kStagedBytes, bytes - done));
    lane_.stream.wait();
    std::memcpy(lane_.staged.as<std::byte>(), static_cast<const std::byte*>(from) + done, piece);
    CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, lane_.staged.as<std::byte>(),
                               piece, cudaMemcpyHostToDevice, stream()));
  }
}

void GptqLanes::Input::copy_out(void* to, const void* from, int64_t bytes) const {
  for (int64_t done = 0; done < bytes; done += kStagedBytes) {
    const auto piece = static_cast<size_t>(std::min(kStagedBytes, bytes - done));
    CUDA_CHECK(cudaMemcpyAsync(lane_.staged.as<std::byte>(),
                               static_cast<const std::byte*>(from) + done, piece,
                               cudaMemcpyDeviceToHost, stream()));
    lane_.stream.wait();
    std::memcpy(static_cast<std::byte*>(to) + done, lane_.staged.as<std::byte>(), piece);
  }
}

bool GptqLanes::Input::factorise(const GptqMoment& moment) {
  const std::vector<int32_t> order(moment.order.begin(), moment.order.end());
  copy_in(input_.order, order.data(), cols_ / 16 * int64_t{sizeof(int32_t)});
  input_.products = moment.products;
  if (moment.place == MomentPlace::host) {
    copy_in(products_, moment.products, cols_ * cols_ * int64_t{sizeof(double)});
    input_.products = products_;
  }
  for (const double damping : moment.dampings) {
    CUDA_CHECK(gptq_fill(input_, moment.unit, damping, stream()));
    CUDA_CHECK(gptq_factorise(input_, stream()));
    int32_t broken = 0;
    copy_out(&broken, input_.broken, sizeof broken);
    if (broken != 0) continue;
    CUDA_CHECK(gptq_invert(input_, stream()));
    return true;
  }
  return false;
}

template <typename Round>
void GptqLanes::Input::for_each_chunk(const TensorView& weights, const Round& round) {
  CHECK(weights.shape[1] == cols_, "columns ", weights.shape[1], " of ", cols_);
  lanes_.device_.use();
  const int64_t step = chunk_rows(cols_);
  for (int64_t first = 0; first < weights.shape[0]; first += step) {
    const int64_t count = std::min(step, weights.shape[0] - first);
    const int64_t bytes = dtype_bytes(weights.dtype, cols_);
    copy_in(chunk_.weights, weights.data + first * bytes, count * bytes);
    round(
        GptqRows{
            .rows = static_cast<int32_t>(count),
            .dtype = weights.dtype,
            .weights = chunk_.weights,
            .exponents = nullptr,
            .exponent = 0,
            .fp8_scales = chunk_.fp8_scales,
            .u = chunk_.u,
            .errors = chunk_.errors,
            .gradient = chunk_.gradient,
            .codes = chunk_.codes,
            .scales = chunk_.scales,
        },
        first);
  }
}

void GptqLanes::Input::round_nvfp4(const TensorView& weights, int exponent,
                                   std::span<uint8_t> codes, std::span<uint8_t> scales) {
  for_each_chunk(weights, [&](GptqRows rows, int64_t first) {
    rows.exponent = exponent;
    CUDA_CHECK(gptq_load(input_, rows, stream()));
    CUDA_CHECK(gptq_feed_back(input_, rows, stream()));
    CUDA_CHECK(gptq_gradient(input_, rows, stream()));
    CUDA_CHECK(gptq_descend(input_, rows, kDescentSweeps, stream()));
    CUDA_CHECK(gptq_encode(input_, rows, stream()));
    const int64_t code_bytes = cols_ / 2, scale_bytes = cols_ / 16;
    copy_out(codes.data() + first * code_bytes, rows.codes, rows.rows * code_bytes);
    copy_out(scales.data() + first * scale_bytes, rows.scales, rows.rows * scale_bytes);
  });
}

void GptqLanes::Input::round_fp8(const Fp8GptqRows& all, std::span<uint8_t> codes) {
  for_each_chunk(all.weights, [&](GptqRows rows, int64_t first) {
    const int64_t scales = cols_ / 16;
    copy_in(chunk_.exponents, all.exponents.data() + first, rows.rows * int64_t{sizeof(int32_t)});
    copy_in(chunk_.fp8_scales, all.scales.data() + first * scales,
            rows.rows * scales * int64_t{sizeof(float)});
    rows.exponents = chunk_.exponents;
    CUDA_CHECK(gptq_load(input_, rows, stream()));
    CUDA_CHECK(gptq_feed_back_fp8(input_, rows, stream()));
    copy_out(codes.data() + first * cols_, rows.codes, rows.rows * cols_);
  });
}

int64_t GptqLanes::lane_bytes(int64_t cols) {
  Cut cut(nullptr);
  double* products = nullptr;
  cut_input(cols, cut, products);
  return cut.bytes() + std::max(kRowBytes, chunk_bytes(kRowsLeast, cols)) + 16 * kAlignment;
}

Result<std::unique_ptr<GptqLanes>> GptqLanes::reserve(DeviceContext& device, int64_t cols,
                                                      int lanes) {
  CHECK(cols > 0 && cols % 16 == 0 && lanes > 0, cols, " columns, ", lanes, " lanes");
  const int64_t most = gptq_columns_max(device.facts().shared_bytes);
  if (cols > most)
    return make_error(ErrorCode::unsupported,
                      {.what = "GPTQ on the card",
                       .expected = concat("inputs of at most ", most, " columns"),
                       .found = concat(cols)});
  device.use();
  gptq_prepare(device);
  auto made = std::make_unique<GptqLanes>(device, cols);
  for (int i = 0; i < lanes; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->memory = TRY(DeviceBuffer::allocate(device, lane_bytes(cols), "rounding"));
    lane->staged = TRY(PinnedBuffer::allocate(kStagedBytes, "rounding"));
    lane->stream = Stream::create();
    made->free_.push_back(lane.get());
    made->lanes_.push_back(std::move(lane));
  }
  return made;
}

std::string GptqLanes::description() const {
  return concat(lanes_.size(), " at a time, ",
                static_cast<int64_t>(lanes_.size()) * lane_bytes(cols_) >> 20, " MiB");
}

GptqLanes::Lane& GptqLanes::take() {
  std::unique_lock lock(mutex_);
  given_.wait(lock, [this] { return !free_.empty(); });
  Lane* lane = free_.back();
  free_.pop_back();
  return *lane;
}

void GptqLanes::give(Lane& lane) {
  const std::lock_guard lock(mutex_);
  free_.push_back(&lane);
  given_.notify_one();
}

std::unique_ptr<FactorisedInput> GptqLanes::factorise(const GptqMoment& moment) {
  CHECK(takes(moment.cols) && moment.cols % 16 == 0, "columns ", moment.cols);
  device_.use();
  auto input = std::make_unique<Input>(*this, take(), moment.cols);
  if (!input->factorise(moment)) return nullptr;
  return input;
}

}  // namespace nibble::cuda
