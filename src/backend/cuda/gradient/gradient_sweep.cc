// Memory, passes and the head; a layer is gradient_layer.h.
#include "backend/cuda/gradient/gradient_sweep.h"

#include <algorithm>
#include <future>
#include <numeric>

#include "backend/cuda/gradient/gradient_layer.h"
#include "backend/cuda/layer_loader.h"
#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/runtime/device_context.h"
#include "model/config/rope.h"
#include "model/weights/synthetic_weights.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kPassRowChoices[] = {16384, 4096, 1024, 256};  // with room for four in a group
constexpr int64_t kPassSamples = 128;
constexpr int64_t kLogitBytes = int64_t{2} << 30;  // of the rows whose logits are in memory
constexpr std::string_view kWhat = "the backward sweep";

class CudaGradientSweep final : public GradientDevice {
 public:
  explicit CudaGradientSweep(const GradientSweepRequest& request)
      : weights_(request.weights),
        config_(request.config),
        embedded_(request.embedded),
        launcher_(request.launcher),
        needs_(request.needs),
        senders_(request.senders),
        loader_(request.weights, request.config, request.senders) {
    loader_.use(launcher_, 1);
  }
  /// Takes the memory of the card.
  Result<void> reserve(int64_t layer_bytes, int64_t free_bytes);

  std::string description() const override;
  int64_t group_rows() const override { return group_rows_; }
  PassLimits pass_limits() const override { return limits_; }
  Result<void> begin(int64_t first_row, int64_t rows) override;
  Result<void> open(int layer, int next) override;
  void forward(const GradientPass& pass) override;
  void head(const GradientPass& pass, int draw, std::span<const double> random,
            const SquaresSeen& seen) override;
  void backward(const GradientPass& pass, int draw, const SquaresSeen& seen) override;
  void finish_layer() override { squares_.tell(); }

 private:
  int64_t row_bytes() const {
    return int64_t{config_.hidden} * (config_.layer_count() + 1 + needs_.draws) *
           int64_t{sizeof(float)};
  }
  /// Bytes of a row of logits and of its gradient in two parts.
  int64_t logit_bytes() const { return logit_row() + gradient_row(); }
  int64_t logit_row() const { return weights_.head().rows * int64_t{sizeof(float)}; }
  int64_t gradient_row() const {
    return 2 * int64_t{step_columns(weights_.head().rows)} * int64_t{sizeof(uint16_t)};
  }
  /// Rows whose logits are in memory: of whole tiles of the products.
  int64_t logit_rows() const {
    const int64_t most = std::max<int64_t>(kLogitBytes / logit_row() / kTileTokens, 1);
    return std::min(most * kTileTokens, std::max(limits_.rows, needs_.longest));
  }
  int64_t head_bytes() const {
    return weights_.head().rows * padded_columns(weights_.head().cols) * 2 +
           logit_rows() * logit_bytes();
  }
  int64_t transposed_needed() const {
    int64_t bytes = transposed_bytes_of(weights_.head());
    for (const LayerSources& layer : weights_.layers())
      bytes = std::max(bytes, transposed_bytes_of(layer));
    return bytes;
  }
  Result<void> upload_rope();
  Result<WeightStore> load_head() const;
  Result<void> open_head();
  /// Tells the card where samples are.
  GradientRows place(const GradientPass& pass);
  float* state(int layer, int64_t row) const {
    return streams_.as<float>() + (layer * group_rows_ + row) * config_.hidden;
  }
  float* gradient(int draw, int64_t row) const {
    return state(config_.layer_count() + 1 + draw, row);
  }
  void head_rows(const float* h, float* dh, std::span<const int32_t> ids);

  const Weights& weights_;
  const ModelConfig& config_;
  const uint16_t* embedded_;
  Launcher launcher_;
  GradientNeeds needs_;
  WeightSenders& senders_;
  LayerLoader loader_;
  int64_t group_rows_ = 0;
  PassLimits limits_;
  DeviceBuffer arena_, streams_, rope_memory_, sample_of_row_, samples_, logits_,
      transposed_memory_;
  TransposedWeights transposed_;
  GradientBuffers buffers_ = {};
  std::unique_ptr<GradientLayer> layer_;
  WeightStore head_store_;
  int open_ = -1;
  SquaresLog squares_;
  std::vector<SampleOfRow> host_rows_;
  std::vector<DeltaSample> host_samples_;
  std::future<Result<WeightStore>> next_head_;  // read while the last layer runs forward
};

Result<void> CudaGradientSweep::upload_rope() {
  const RopeTable table = make_rope_table(config_.attention.rope);
  const auto pairs = static_cast<size_t>(table.pairs());
  const auto places = static_cast<size_t>(needs_.longest);
  std::vector<float> angles(2 * places * pairs);
  for (size_t t = 0; t < places; ++t) {
    const auto position = static_cast<int32_t>(t);
    rope_angles(table, {position, position, position}, std::span(angles).subspan(t * pairs, pairs),
                std::span(angles).subspan((places + t) * pairs, pairs));
  }
  const auto bytes = static_cast<int64_t>(angles.size() * sizeof(float));
  rope_memory_ = TRY(DeviceBuffer::allocate(*launcher_.device, bytes, kWhat));
  copy_to_device(rope_memory_.as<void>(), angles.data(), bytes);
  const GradientRope rope{.cos = rope_memory_.as<float>(),
                          .sin = rope_memory_.as<float>() + places * pairs,
                          .pairs = static_cast<int32_t>(pairs)};
  layer_ = std::make_unique<GradientLayer>(config_, buffers_, transposed_, launcher_);
  layer_->turn_by(rope);
  return {};
}

Result<void> CudaGradientSweep::reserve(int64_t layer_bytes, int64_t free_bytes) {
  const int64_t transposed = transposed_needed();
  int64_t weights = 0, arena = 0, left = 0;
  for (const int64_t choice : kPassRowChoices) {
    limits_ = {.rows = std::max(std::min(choice, needs_.rows), needs_.longest),
               .sequences = kPassSamples};
    weights = layer_bytes + std::max(layer_bytes, head_bytes()) + transposed;
    arena = GradientBuffers::cut(config_, limits_, nullptr, buffers_);
    left = free_bytes - weights - arena;
    group_rows_ = std::min(left / row_bytes(), needs_.rows);
    if (group_rows_ >= std::min(4 * limits_.rows, needs_.rows)) break;
  }
  if (group_rows_ < needs_.longest)
    return make_error(
        ErrorCode::no_memory,
        {.what = "memory of the card for weights of tokens",
         .expected = concat(weights + arena + needs_.longest * row_bytes(), " bytes: weights ",
                            weights, ", a pass of ", limits_.rows, " tokens ", arena,
                            ", streams of the longest sample ", needs_.longest * row_bytes()),
         .found = concat(std::max<int64_t>(free_bytes, 0)),
         .advice = "use shorter samples (--calib-length), or --backend cpu"});
  arena_ = TRY(DeviceBuffer::allocate(*launcher_.device, arena, kWhat));
  GradientBuffers::cut(config_, limits_, arena_.as<std::byte>(), buffers_);
  TRY(squares_.use(buffers_.squares, buffers_.squares_max, launcher_.stream));
  transposed_memory_ = TRY(DeviceBuffer::allocate(*launcher_.device, transposed, kWhat));
  transposed_.use(transposed_memory_.as<std::byte>(), transposed, launcher_.stream);
  gradient_product_prepare(launcher_);
  streams_ = TRY(DeviceBuffer::allocate(*launcher_.device, group_rows_ * row_bytes(), kWhat));
  sample_of_row_ = TRY(DeviceBuffer::allocate(*launcher_.device,
                                              limits_.rows * int64_t{sizeof(SampleOfRow)}, kWhat));
  samples_ = TRY(DeviceBuffer::allocate(*launcher_.device,
                                        kPassSamples * int64_t{sizeof(DeltaSample)}, kWhat));
  return upload_rope();
}

std::string CudaGradientSweep::description() const {
  return concat("weights of tokens there, passes of ", limits_.rows, " of ", group_rows_,
                " tokens, ", (arena_.bytes() + streams_.bytes()) >> 20, " MiB");
}

Result<void> CudaGradientSweep::begin(int64_t first_row, int64_t rows) {
  CHECK(rows <= group_rows_, rows, " rows of ", group_rows_);
  const int64_t count = rows * config_.hidden;
  // The stream after the last layer is not there yet: it lends its memory.
  auto* staged = reinterpret_cast<uint16_t*>(state(config_.layer_count(), 0));
  CUDA_CHECK(cudaMemcpyAsync(staged, embedded_ + first_row * config_.hidden,
                             static_cast<size_t>(count) * sizeof(uint16_t), cudaMemcpyDefault,
                             launcher_.stream));
  CUDA_CHECK(widen_rows(staged, count, state(0, 0), launcher_.stream));
  CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
  return {};
}

Result<WeightStore> CudaGradientSweep::load_head() const {
  ModelConfig config = config_;
  config.layers.clear();
  Launcher reading = launcher_;
  reading.device->use();
  reading.stream = launcher_.device->copy_stream();
  return WeightStore::load(
      Weights::made_up(weights_.tensors(),
                       {.head = weights_.head(), .final_norm = weights_.final_norm()}),
      config, reading, {.senders = &senders_});
}

/// The last layer stays where it is, since it comes next.
Result<void> CudaGradientSweep::open_head() {
  head_store_ = TRY(next_head_.valid() ? next_head_.get() : load_head());
  transposed_.forget();
  logits_ = TRY(DeviceBuffer::allocate(*launcher_.device, logit_rows() * logit_bytes(), kWhat));
  return {};
}

Result<void> CudaGradientSweep::open(int layer, int next) {
  if (open_ == config_.layer_count()) {
    head_store_ = WeightStore();
    logits_ = DeviceBuffer();
  }
  open_ = layer;
  if (layer == config_.layer_count()) return open_head();
  TRY(loader_.open(layer, next));
  if (next == config_.layer_count())
    next_head_ = std::async(std::launch::async, [this] { return load_head(); });
  layer_->open(loader_.store().layers.front(), weights_.layers()[static_cast<size_t>(layer)]);
  return {};
}

GradientRows CudaGradientSweep::place(const GradientPass& pass) {
  host_rows_.clear();
  host_samples_.clear();
  int32_t chunk = 0;
  for (const SampleRows& sample : pass.samples) {
    const auto begin = static_cast<int32_t>(sample.begin);
    const auto count = static_cast<int32_t>(sample.count);
    host_samples_.push_back({.begin = begin, .count = count, .chunk = chunk});
    host_rows_.resize(host_rows_.size() + static_cast<size_t>(count),
                      {.begin = begin, .end = begin + count});
    chunk += (count + kGradientChunk - 1) / kGradientChunk;
  }
  CHECK(pass.rows() <= limits_.rows && std::ssize(host_samples_) <= limits_.sequences, "a pass of ",
        pass.rows(), " rows, ", host_samples_.size(), " samples");
  const auto send = [&](const DeviceBuffer& to, const auto& from) {
    CUDA_CHECK(cudaMemcpyAsync(to.as<void>(), from.data(), from.size() * sizeof(from[0]),
                               cudaMemcpyHostToDevice, launcher_.stream));
  };
  send(sample_of_row_, host_rows_);
  send(samples_, host_samples_);
  return {.rows = static_cast<int32_t>(pass.rows()),
          .sample_of_row = sample_of_row_.as<SampleOfRow>(),
          .samples = samples_.as<DeltaSample>(),
          .sample_count = static_cast<int32_t>(host_samples_.size())};
}

void CudaGradientSweep::forward(const GradientPass& pass) {
  layer_->forward(place(pass), state(open_, pass.first_row), state(open_ + 1, pass.first_row));
  CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
}

void CudaGradientSweep::backward(const GradientPass& pass, int draw, const SquaresSeen& seen) {
  layer_->backward(place(pass), state(open_, pass.first_row), gradient(draw, pass.first_row),
                   squares_);
  squares_.send(seen);
}

/// `ids`: rows of the pass that follow one another; h and dh are theirs.
void CudaGradientSweep::head_rows(const float* h, float* dh, std::span<const int32_t> ids) {
  const auto rows = static_cast<int32_t>(ids.size());
  const LinearSource& source = weights_.head();
  const int64_t hidden = config_.hidden;
  const GradientNorm norm{.weight = head_store_.final_norm,
                          .eps = config_.rms_eps,
                          .rows = rows,
                          .width = config_.hidden};
  const DeviceLinear& head = head_store_.head;
  const DeviceLinear back =
      transposed_.of({.weight = head, .cols = static_cast<int32_t>(source.cols)});
  auto* split = logits_.as<uint16_t>();  // before the logits: its rows are multiples of 256 bytes
  auto* logits = reinterpret_cast<float*>(logits_.as<std::byte>() + logit_rows() * gradient_row());
  const LabelRows labels{.logits = logits,
                         .random = buffers_.random + ids.front(),
                         .rows = rows,
                         .vocabulary = static_cast<int32_t>(source.rows),
                         .padded = back.cols};
  CUDA_CHECK(norm_forward(norm, {h, hidden, 0}, {buffers_.x, hidden, 0}, launcher_.stream));
  CUDA_CHECK(
      split_rows({buffers_.x, rows, config_.hidden, head.cols}, buffers_.split, launcher_.stream));
  gradient_product({.x = {buffers_.split, head.cols}, .weight = head, .out = logits, .rows = rows},
                   launcher_);
  squares_.note({.linear = &source,
                 .inputs = squares_.lengths(buffers_.x, nullptr, rows, hidden),
                 .gradients = squares_.labels(labels, split),
                 .count = rows,
                 .rows = ids});
  gradient_product({.x = {split, back.cols}, .weight = back, .out = buffers_.dx, .rows = rows},
                   launcher_);
  CUDA_CHECK(
      cudaMemsetAsync(dh, 0, static_cast<size_t>(rows * hidden) * sizeof(float), launcher_.stream));
  CUDA_CHECK(norm_backward(norm, {h, hidden, 0}, {buffers_.dx, hidden, 0}, {dh, hidden, 0},
                           launcher_.stream));
}

void CudaGradientSweep::head(const GradientPass& pass, int draw, std::span<const double> random,
                             const SquaresSeen& seen) {
  CHECK(std::ssize(random) == pass.rows(), random.size(), " numbers for ", pass.rows(), " rows");
  squares_.begin();
  CUDA_CHECK(cudaMemcpyAsync(buffers_.random, random.data(), random.size_bytes(),
                             cudaMemcpyHostToDevice, launcher_.stream));
  const int64_t most = logit_rows();
  std::vector<int32_t> ids(static_cast<size_t>(pass.rows()));
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t first = 0; first < pass.rows(); first += most) {
    const int64_t row = pass.first_row + first, count = std::min(most, pass.rows() - first);
    head_rows(state(config_.layer_count(), row), gradient(draw, row),
              std::span<const int32_t>(ids).subspan(static_cast<size_t>(first),
                                                    static_cast<size_t>(count)));
  }
  squares_.send(seen);
  squares_.tell();
}

Result<void> refuse_unsupported(const Weights& weights, const ModelConfig& config) {
  const AttentionConfig& a = config.attention;
  const DeltaNetConfig& d = config.delta_net;
  const bool heads = a.head_dim <= kGradientHeadMax &&
                     a.q_heads / std::max(1, a.kv_heads) <= kQueryGroupMax &&
                     d.k_dim <= kGradientDeltaMax && d.v_dim <= kGradientDeltaMax &&
                     weights.head().rows <= kVocabularyMax;
  const auto is_bf16 = [&](const LinearSource& linear) {
    return linear.scheme.weights == WeightFormat::plain &&
           weights.values_of(linear).entry->dtype == DType::bf16;
  };
  const bool plain =
      is_bf16(weights.head()) && std::ranges::all_of(weights.layers(), [&](const auto& layer) {
        return is_bf16(layer.attention.o.present() ? layer.attention.o : layer.delta_net.out);
      });
  if (heads && plain && (!config.moe || config.moe->top_k <= 32)) return {};
  return make_error(ErrorCode::unsupported,
                    {.what = "weights of tokens on the backend cuda",
                     .expected = "a BF16 model with heads that its kernels hold",
                     .found = "another",
                     .advice = "calibrate with --backend cpu"});
}

}  // namespace

Result<std::unique_ptr<GradientDevice>> make_gradient_sweep(const GradientSweepRequest& request) {
  TRY(refuse_unsupported(request.weights, request.config));
  auto sweep = std::make_unique<CudaGradientSweep>(request);
  TRY(sweep->reserve(request.layer_bytes, request.free_bytes));
  return std::unique_ptr<GradientDevice>(std::move(sweep));
}

}  // namespace nibble::cuda
