// Reads bound tensors: linears in their file format, small tensors as F32.
#include <algorithm>

#include "model/weights/linear_binding.h"
#include "model/weights/weights.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

std::vector<float> widen(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.count()));
  decode_plain(view.data, view.dtype, view.shape.count(), values.data());
  return values;
}

const TensorEntry& bound_entry(const TensorSource& tensors, const std::string& name) {
  const TensorEntry* entry = tensors.find(name);
  CHECK(entry != nullptr, "tensor ", name, " was bound but is gone");
  return *entry;
}

int64_t packed_cols(const LinearSource& source) {
  return source.scheme.weights == WeightFormat::nvfp4 ? source.cols / 2 : source.cols;
}

/// The rows of a 2-D or fused 3-D tensor that one linear owns, in the file's type.
StoredBytes stored_rows(const TensorSource& tensors, const LinearSource& source) {
  const TensorEntry& entry = bound_entry(tensors, source.values);
  return {.entry = &entry,
          .begin = dtype_bytes(entry.dtype, source.row_begin * packed_cols(source)),
          .bytes = dtype_bytes(entry.dtype, source.rows * packed_cols(source))};
}

Result<Tensor> read_rows(const TensorSource& tensors, const LinearSource& source) {
  const StoredBytes stored = stored_rows(tensors, source);
  Tensor values(stored.entry->dtype, {source.rows, packed_cols(source)});
  TRY(tensors.read_bytes(*stored.entry, stored.begin, values.span()));
  return values;
}

Result<Tensor> read_fp8_scales(const TensorSource& tensors, const LinearSource& source) {
  const TensorEntry& entry = bound_entry(tensors, source.scales);
  const Tensor raw = TRY(tensors.read(entry));
  const std::vector<float> values = widen(raw.view());
  const bool grid = source.scheme.weights == WeightFormat::fp8_block;
  Tensor scales(DType::f32, grid ? entry.shape : Shape{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), scales.as<float>());
  return scales;
}

Result<GlobalScale> read_scalar(const TensorSource& tensors, const std::string& name,
                                GlobalScale::Direction direction) {
  const TensorEntry& entry = bound_entry(tensors, name);
  const Tensor raw = TRY(tensors.read(entry));
  const float value = widen(raw.view())[0];
  if (!(value > 0.0F) || value > 3e38F)
    return make_error(ErrorCode::corrupt,
                      {.what = name, .expected = "a positive scale", .found = concat(value)});
  return GlobalScale{.value = value, .direction = direction};
}

Result<LinearWeight> read_factors(const TensorSource& tensors, const LinearSource& source) {
  LinearWeight weight{
      .module = source.module, .rows = source.rows, .cols = source.cols, .scheme = source.scheme};
  if (source.scheme.weights == WeightFormat::nvfp4) {
    weight.global_scale = TRY(read_scalar(tensors, source.global_scale, source.direction));
  } else if (!source.scales.empty()) {
    weight.scales = TRY(read_fp8_scales(tensors, source));
  }
  if (!source.input_scale.empty())
    weight.input_scale = TRY(read_scalar(tensors, source.input_scale, source.direction));
  return weight;
}

}  // namespace

Result<LinearWeight> load_linear(const TensorSource& tensors, const LinearSource& source) {
  CHECK(source.present(), "load of an absent linear");
  LinearWeight weight = TRY(read_factors(tensors, source));
  weight.values = TRY(read_rows(tensors, source));
  if (source.scheme.weights == WeightFormat::nvfp4)
    weight.scales = TRY(tensors.read(bound_entry(tensors, source.scales)));
  return weight;
}

Result<std::vector<float>> load_vector(const TensorSource& tensors, const VectorSource& source) {
  CHECK(source.present(), "load of an absent tensor");
  const Tensor raw = TRY(tensors.read(bound_entry(tensors, source.name)));
  return widen(raw.view());
}

Weights Weights::over(const TensorSource& tensors) const {
  Weights other = *this;
  other.tensors_ = &tensors;
  return other;
}

Weights Weights::with_mtp(const TensorSource& tensors, MtpSources mtp) const {
  Weights other = over(tensors);
  other.mtp_ = std::move(mtp);
  return other;
}

Result<LinearWeight> Weights::load(const LinearSource& source) const {
  return load_linear(*tensors_, source);
}
Result<std::vector<float>> Weights::load(const VectorSource& source) const {
  return load_vector(*tensors_, source);
}

Result<LinearWeight> Weights::load_rows(const LinearSource& source, int64_t row_begin,
                                        int64_t row_end) const {
  CHECK(0 <= row_begin && row_begin < row_end && row_end <= source.rows, "rows ", row_begin, " to ",
        row_end, " of ", source.rows);
  LinearSource part = source;
  part.row_begin += row_begin;
  part.rows = row_end - row_begin;
  LinearWeight weight{
      .module = source.module, .rows = part.rows, .cols = source.cols, .scheme = source.scheme};
  weight.values = TRY(read_rows(*tensors_, part));
  if (source.scheme.weights != WeightFormat::nvfp4) return weight;
  const int64_t groups = source.cols / kNvfp4Group;
  weight.scales = Tensor(DType::f8_e4m3, {part.rows, groups});
  TRY(read(block_scales_of(source), row_begin * groups, weight.scales.span()));
  return weight;
}

StoredBytes Weights::values_of(const LinearSource& source) const {
  return stored_rows(*tensors_, source);
}
StoredBytes Weights::block_scales_of(const LinearSource& source) const {
  const TensorEntry& entry = bound_entry(*tensors_, source.scales);
  return {.entry = &entry, .bytes = entry.bytes};
}
Result<LinearWeight> Weights::load_factors(const LinearSource& source) const {
  return read_factors(*tensors_, source);
}
Result<void> Weights::read(const StoredBytes& stored, int64_t begin,
                           std::span<std::byte> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= stored.bytes, "bytes ", begin,
        "+", out.size(), " of ", stored.bytes);
  return tensors_->read_bytes(*stored.entry, stored.begin + begin, out);
}

}  // namespace nibble
