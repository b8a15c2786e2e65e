// This file fills weights from a checkpoint. The walk over the layers only notes what goes where;
// then many threads read parts of the files into page-locked buffers (two each) and send them to
// the device, so that the host never uses more than those buffers. The device checks the numbers
// that must be finite, and then reorders codes of 4 and 8 bits in their words (code_words.h).
#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/runtime/copy_threads.h"
#include "backend/cuda/weights/device_checks.h"
#include "backend/cuda/weights/weight_senders.h"
#include "backend/cuda/weights/weight_store.h"
#include "model/weights/sound_weights.h"
#include "tensor/activation_codec.h"
#include "tensor/float_formats.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kBufferBytes = WeightSender::kBufferBytes;

/// A RowCopy has rows of a tensor and their padded place.
struct RowCopy {
  StoredBytes stored;
  int64_t begin = 0;      // in `stored`
  int64_t row_bytes = 0;  // in the file
  int64_t rows = 0;
  uint8_t* to = nullptr;
  int64_t to_row_bytes = 0;
  int64_t bytes() const { return row_bytes * rows; }
};

/// Values of one or more modules that lie side by side.
struct ValueRange {
  const uint8_t* at = nullptr;
  int64_t bytes = 0;
  Soundness kind = Soundness::bf16;
  size_t module = 0;  // index of the first
};

/// Reads and sends copies that have at most WeightSender::kBufferBytes together.
Result<void> send(const Weights& weights, std::span<const RowCopy> copies, WeightSender& sender) {
  const std::span<std::byte> buffer = sender.next_buffer();
  size_t used = 0;
  for (const RowCopy& copy : copies) {
    const std::span<std::byte> bytes = buffer.subspan(used, static_cast<size_t>(copy.bytes()));
    TRY(weights.read(copy.stored, copy.begin, bytes));
    CUDA_CHECK(
        cudaMemcpy2DAsync(copy.to, static_cast<size_t>(copy.to_row_bytes), bytes.data(),
                          static_cast<size_t>(copy.row_bytes), static_cast<size_t>(copy.row_bytes),
                          static_cast<size_t>(copy.rows), cudaMemcpyHostToDevice, sender.stream()));
    used += bytes.size();
  }
  sender.sent();
  return {};
}

class FileFiller final : public WeightFiller {
 public:
  FileFiller(const Weights& weights, const Launcher& launcher, WeightSenders& senders)
      : weights_(weights), launcher_(launcher), senders_(senders) {}
  Result<void> linear(const LinearSource& source, const DeviceLinear& to) override;
  Result<void> vector(const VectorSource& source, Change change, float factor, float* to) override;
  bool is_wider(const LinearSource& source) const override {
    return weights_.values_of(source).entry->dtype != DType::bf16;
  }
  Result<void> finish() override;

 private:
  /// `to_row_bytes` apart at `to`; a row is never cut.
  void note(const StoredBytes& stored, int64_t rows, const uint8_t* to, int64_t to_row_bytes);
  void note_check(const uint8_t* at, int64_t bytes, Soundness kind);
  Result<void> convert(const LinearSource& source, const DeviceLinear& to);
  Result<void> send_rows();
  void send_small();
  void lay_codes();
  Result<void> check();
  Error not_sound(const ValueRange& merged, const DeviceBuffer& flag) const;

  struct Small {
    float* to = nullptr;
    std::vector<float> values;
  };
  const Weights& weights_;
  Launcher launcher_;
  WeightSenders& senders_;
  std::vector<RowCopy> copies_;
  std::vector<Small> small_;
  std::vector<ValueRange> checks_;
  std::vector<ValueRange> e2m1_;  // codes that need no check and are only reordered
  std::vector<std::string> modules_;
};

/// Joins adjacent ranges of one kind, such as the experts of a stack, sorted by where they lie.
std::vector<ValueRange> merge(std::vector<ValueRange>& parts) {
  std::ranges::sort(parts, {}, &ValueRange::at);
  std::vector<ValueRange> merged;
  for (const ValueRange& one : parts) {
    if (!merged.empty() && merged.back().kind == one.kind &&
        merged.back().at + merged.back().bytes == one.at) {
      merged.back().bytes += one.bytes;
    } else {
      merged.push_back(one);
    }
  }
  return merged;
}

/// Returns the factors of the weight alone.
std::vector<float> weight_factors(const LinearWeight& weight, const DeviceLinear& to) {
  if (to.format == Format::nvfp4) return {weight.global_scale.apply(1.0F)};
  const auto* scales = weight.scales.as<float>();
  const auto count = static_cast<size_t>(weight.scales.shape().count());
  if (to.layout != FactorLayout::block128) return {scales, scales + count};
  const int64_t from = (weight.cols + kFp8Block - 1) / kFp8Block;
  const int64_t width = to.cols / kFp8Block;
  std::vector<float> padded(static_cast<size_t>((weight.rows + kFp8Block - 1) / kFp8Block * width));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    padded[static_cast<size_t>(i / from * width + i % from)] = scales[i];
  return padded;
}

/// The factors with the static scale of the inputs applied, and that scale after them
/// (DeviceLinear).
std::vector<float> factors_of(const LinearWeight& weight, const DeviceLinear& to) {
  std::vector<float> factors = weight_factors(weight, to);
  if (!has_input_scale(to.activations)) return factors;
  const bool nvfp4 = to.activations == ActivationFormat::nvfp4;
  const float scale =
      nvfp4 ? activation_global_scale(weight.input_scale).value : weight.input_scale.value;
  for (float& factor : factors) factor = nvfp4 ? factor / scale : factor * scale;
  factors.push_back(scale);
  return factors;
}

void FileFiller::note(const StoredBytes& stored, int64_t rows, const uint8_t* to,
                      int64_t to_row_bytes) {
  const int64_t row_bytes = stored.bytes / rows;
  const int64_t at_once = std::max<int64_t>(kBufferBytes / row_bytes, 1);
  CHECK(row_bytes <= kBufferBytes, "a row of ", row_bytes, " bytes");
  for (int64_t row = 0; row < rows; row += at_once)
    copies_.push_back({.stored = stored,
                       .begin = row * row_bytes,
                       .row_bytes = row_bytes,
                       .rows = std::min(at_once, rows - row),
                       .to = const_cast<uint8_t*>(to) + row * to_row_bytes,
                       .to_row_bytes = to_row_bytes});
}

void FileFiller::note_check(const uint8_t* at, int64_t bytes, Soundness kind) {
  checks_.push_back({.at = at, .bytes = bytes, .kind = kind, .module = modules_.size() - 1});
}

Result<void> FileFiller::linear(const LinearSource& source, const DeviceLinear& to) {
  modules_.push_back(source.module);
  const StoredBytes values = weights_.values_of(source);
  const int64_t padded = value_bytes(to.format, to.cols);
  if (to.format == Format::bf16 && values.entry->dtype != DType::bf16) return convert(source, to);
  note(values, source.rows, to.values, padded);
  if (to.format != Format::nvfp4)
    note_check(to.values, padded * source.rows,
               to.format == Format::bf16 ? Soundness::bf16 : Soundness::e4m3);
  if (to.format == Format::nvfp4) {
    e2m1_.push_back({.at = to.values, .bytes = padded * source.rows});
    const int64_t scales = to.cols / kNvfp4Group;
    note(weights_.block_scales_of(source), source.rows, to.scales, scales);
    note_check(to.scales, scales * source.rows, Soundness::nvfp4_scale);
  }
  if (to.factor_stride == 0) return {};
  const LinearWeight weight = TRY(weights_.load_factors(source));
  std::vector<float> factors = factors_of(weight, to);
  if (!std::ranges::all_of(factors, [](float x) { return std::isfinite(x); }))
    return not_sound({.module = modules_.size() - 1}, {});
  small_.push_back({.to = const_cast<float*>(to.factors), .values = std::move(factors)});
  return {};
}

/// F16 and F32 files are rounded once, or kept in parts.
Result<void> FileFiller::convert(const LinearSource& source, const DeviceLinear& to) {
  const LinearWeight weight = TRY(weights_.load(source));
  TRY(check_sound(weight));
  const auto count = static_cast<size_t>(weight.rows * weight.cols);
  std::vector<float> wide(count);
  dequantize_rows(weight, 0, weight.rows, wide.data());
  std::vector<uint16_t> narrow(count);
  const auto row_bytes = static_cast<size_t>(2 * weight.cols);
  for (int i = 0; i < kF32Parts; ++i) {
    const DeviceLinear part = rest_of(to, i);
    if (!part.present()) break;
    std::ranges::transform(wide, narrow.begin(), float_to_bf16);
    std::ranges::transform(wide, narrow, wide.begin(),
                           [](float x, uint16_t taken) { return x - bf16_to_float(taken); });
    CUDA_CHECK(cudaMemcpy2D(const_cast<uint8_t*>(part.values),
                            static_cast<size_t>(value_bytes(to.format, to.cols)), narrow.data(),
                            row_bytes, row_bytes, static_cast<size_t>(weight.rows),
                            cudaMemcpyHostToDevice));
  }
  return {};
}

Result<void> FileFiller::vector(const VectorSource& source, Change change, float factor,
                                float* to) {
  std::vector<float> values = TRY(weights_.load(source));
  for (float& value : values) {
    if (change == Change::add_one) value += 1.0F;
    if (change == Change::exponent)
      value = static_cast<float>(std::exp(static_cast<double>(value)));
    value *= factor;
  }
  small_.push_back({.to = to, .values = std::move(values)});
  return {};
}

Result<void> FileFiller::finish() {
  TRY(send_rows());
  send_small();
  TRY(check());
  lay_codes();
  return {};
}

Result<void> FileFiller::send_rows() {
  std::vector<size_t> batches = {0};  // each fits a buffer
  int64_t bytes = 0;
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (bytes + copies_[i].bytes() > kBufferBytes) {
      batches.push_back(i);
      bytes = 0;
    }
    bytes += copies_[i].bytes();
  }
  batches.push_back(copies_.size());
  const size_t count = batches.size() - 1;
  std::atomic<size_t> next = 0;
  return on_copy_threads(*launcher_.device, [&]() -> Result<void> {
    Result<std::unique_ptr<WeightSender>> taken = senders_.take();
    if (!taken.ok()) {
      next = count;  // the other threads stop
      return std::move(taken).error();
    }
    std::unique_ptr<WeightSender> sender = std::move(taken).value();
    Result<void> sent;
    for (size_t i = next++; sent.ok() && i < count; i = next++)
      sent = send(weights_, std::span(copies_).subspan(batches[i], batches[i + 1] - batches[i]),
                  *sender);
    if (!sent.ok()) next = count;  // the other threads stop
    sender->finish();
    senders_.give(std::move(sender));
    return sent;
  });
}

/// Copies adjacent parts, such as the factors of experts, at once.
void FileFiller::send_small() {
  std::ranges::sort(small_, {}, &Small::to);
  for (size_t i = 0; i < small_.size();) {
    std::vector<float> run = std::move(small_[i].values);
    float* to = small_[i].to;
    for (++i; i < small_.size() && small_[i].to == to + run.size(); ++i)
      run.insert(run.end(), small_[i].values.begin(), small_[i].values.end());
    copy_to_device(to, run.data(), static_cast<int64_t>(run.size() * sizeof(float)));
  }
}

/// Runs once every part has come and codes have been checked in the order of a file.
void FileFiller::lay_codes() {
  const auto lay = [&](const ValueRange& run, Format format) {
    cuda::lay_codes(const_cast<uint8_t*>(run.at), run.bytes, format, launcher_);
  };
  for (const ValueRange& run : merge(checks_))
    if (run.kind == Soundness::e4m3) lay(run, Format::fp8);
  for (const ValueRange& run : merge(e2m1_)) lay(run, Format::nvfp4);
  CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
}

Result<void> FileFiller::check() {
  const std::vector<ValueRange> merged = merge(checks_);
  const auto bytes = static_cast<int64_t>((merged.size() + 1) * sizeof(int32_t));
  const DeviceBuffer flags =
      TRY(DeviceBuffer::allocate(*launcher_.device, bytes, "checking weights"));
  for (size_t i = 0; i < merged.size(); ++i)
    find_not_sound(merged[i].at, merged[i].bytes, merged[i].kind, flags.as<int32_t>() + i,
                   launcher_);
  std::vector<int32_t> found(merged.size() + 1);
  CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
  CUDA_CHECK(cudaMemcpy(found.data(), flags.as<int32_t>(), static_cast<size_t>(bytes),
                        cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < merged.size(); ++i)
    if (found[i] != 0) return not_sound(merged[i], flags);
  return {};
}

/// Names the first bad module of a run of adjacent ones.
Error FileFiller::not_sound(const ValueRange& merged, const DeviceBuffer& flag) const {
  size_t module = merged.module;
  for (const ValueRange& one : checks_) {
    if (one.at < merged.at || one.at >= merged.at + merged.bytes) continue;
    int32_t found = 0;
    zero_memory(flag.as<int32_t>(), sizeof found);
    find_not_sound(one.at, one.bytes, one.kind, flag.as<int32_t>(), launcher_);
    CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
    CUDA_CHECK(cudaMemcpy(&found, flag.as<int32_t>(), sizeof found, cudaMemcpyDeviceToHost));
    if (found == 0) continue;
    module = one.module;
    break;
  }
  return make_error(ErrorCode::corrupt, {.what = modules_[module],
                                         .expected = "finite weights and positive scales",
                                         .found = "NaN, infinity or a negative scale",
                                         .advice = "run nibble verify on the checkpoint"});
}

}  // namespace

Result<WeightStore> WeightStore::load(const Weights& weights, const ModelConfig& config,
                                      const Launcher& launcher, const WeightReading& reading) {
  WeightSenders own;
  FileFiller filler(weights, launcher, reading.senders == nullptr ? own : *reading.senders);
  WeightStore store = TRY(build(*launcher.device,
                                {.embedding = weights.embedding(),
                                 .head = weights.head(),
                                 .final_norm = weights.final_norm(),
                                 .layers = weights.layers(),
                                 .mtp = weights.mtp(),
                                 .vision = weights.vision(),
                                 .reading = reading},
                                config, filler));
  pack_vision(store.vision, launcher);
  return store;
}

}  // namespace nibble::cuda
