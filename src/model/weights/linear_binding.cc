// The tensors of one linear, in every dialect. Formats: docs/formats.md.
#include "model/weights/linear_binding.h"

#include <array>

namespace nibble {
namespace {

constexpr std::array kPlainTypes = {DType::bf16, DType::f32, DType::f16};
constexpr std::array kScaleTypes = {DType::f32, DType::bf16, DType::f16};
constexpr std::array kByteTypes = {DType::u8};
constexpr std::array kE4m3Types = {DType::f8_e4m3};

int64_t tiles(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

Error contradiction(const LinearSource& source, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::corrupt,
                    {.what = source.module, .expected = expected, .found = found});
}

}  // namespace

bool LinearBinder::has(std::string_view module) const {
  return checkpoint_->find(concat(module, ".weight")) != nullptr ||
         checkpoint_->find(concat(module, ".weight_packed")) != nullptr;
}

Result<LinearSource> LinearBinder::bind(const LinearShape& shape) const {
  LinearSource source{.module = shape.module, .rows = shape.rows, .cols = shape.cols};
  const TensorEntry* weight = checkpoint_->find(shape.module + ".weight");
  if (checkpoint_->find(shape.module + ".weight_packed") != nullptr) {
    TRY(bind_packed(source));
  } else if (weight == nullptr) {
    return missing(shape);
  } else if (weight->dtype == DType::u8) {
    TRY(bind_modelopt(source));
  } else if (weight->dtype == DType::f8_e4m3) {
    TRY(bind_fp8(source));
  } else {
    source.values = weight->name;
    TRY(checkpoint_->expect(weight->name, kPlainTypes, {shape.rows, shape.cols}));
  }
  TRY(refuse_extras(source, shape.kind));
  TRY(bind_activations(source));
  return source;
}

Result<VectorSource> LinearBinder::bind_vector(std::string name, const Shape& shape) const {
  TRY(checkpoint_->expect(name, kPlainTypes, shape));
  return VectorSource{.name = std::move(name), .shape = shape};
}

Result<void> LinearBinder::bind_packed(LinearSource& source) const {
  source.scheme.weights = WeightFormat::nvfp4;
  source.direction = GlobalScale::Direction::divide;
  source.values = source.module + ".weight_packed";
  source.scales = source.module + ".weight_scale";
  if (source.cols % kNvfp4Group != 0)
    return contradiction(source, "columns in groups of 16", concat(source.cols, " columns"));
  TRY(checkpoint_->expect(source.values, kByteTypes, {source.rows, source.cols / 2}));
  TRY(checkpoint_->expect(source.scales, kE4m3Types, {source.rows, source.cols / kNvfp4Group}));
  source.global_scale = TRY(bind_scalar(source.module + ".weight_global_scale"));
  return {};
}

Result<void> LinearBinder::bind_modelopt(LinearSource& source) const {
  source.scheme.weights = WeightFormat::nvfp4;
  source.direction = GlobalScale::Direction::multiply;
  source.values = source.module + ".weight";
  source.scales = source.module + ".weight_scale";
  if (source.cols % kNvfp4Group != 0)
    return contradiction(source, "columns in groups of 16", concat(source.cols, " columns"));
  TRY(checkpoint_->expect(source.values, kByteTypes, {source.rows, source.cols / 2}));
  TRY(checkpoint_->expect(source.scales, kE4m3Types, {source.rows, source.cols / kNvfp4Group}));
  source.global_scale = TRY(bind_scalar(source.module + ".weight_scale_2"));
  return {};
}

Result<void> LinearBinder::bind_fp8(LinearSource& source) const {
  source.values = source.module + ".weight";
  TRY(checkpoint_->expect(source.values, kE4m3Types, {source.rows, source.cols}));
  const TensorEntry* scales = checkpoint_->find(source.module + ".weight_scale_inv");
  if (scales == nullptr) scales = checkpoint_->find(source.module + ".weight_scale");
  if (scales == nullptr)
    return make_error(ErrorCode::not_found,
                      {.what = source.module,
                       .expected = "weight_scale or weight_scale_inv beside its FP8 weight",
                       .found = "neither"});
  return bind_fp8_scales(source, *scales);
}

/// The format by the shape of the scales: [] or [1]; [N, 1] or [N]; [ceil(N/128), ceil(K/128)].
Result<void> LinearBinder::bind_fp8_scales(LinearSource& source, const TensorEntry& scales) const {
  const Shape grid = {tiles(source.rows), tiles(source.cols)};
  const Shape& found = scales.shape;
  source.scales = scales.name;
  if (found == Shape{} || found == Shape{1}) {
    source.scheme.weights = WeightFormat::fp8_tensor;
  } else if (found == grid && !(found == Shape{source.rows, 1})) {
    source.scheme.weights = WeightFormat::fp8_block;
  } else if (found == Shape{source.rows, 1} || found == Shape{source.rows}) {
    source.scheme.weights = WeightFormat::fp8_channel;
  } else {
    const std::string expected = concat("[1], [", source.rows, ", 1] or ", grid.text(),
                                        " scales for [", source.rows, ", ", source.cols, "]");
    return make_error(ErrorCode::corrupt,
                      {.what = scales.name, .expected = expected, .found = found.text()});
  }
  TRY(checkpoint_->expect(scales.name, kScaleTypes, found));
  return {};
}

/// A global or static scale: F32 (BF16 in some files), one element.
Result<std::string> LinearBinder::bind_scalar(std::string name) const {
  const TensorEntry* entry = checkpoint_->find(name);
  if (entry != nullptr && entry->shape == Shape{}) {
    TRY(checkpoint_->expect(name, kScaleTypes, {}));
    return name;
  }
  TRY(checkpoint_->expect(name, kScaleTypes, {1}));
  return name;
}

Result<void> LinearBinder::bind_activations(LinearSource& source) const {
  if (source.scheme.weights == WeightFormat::plain) return {};
  const int bits = source.scheme.weights == WeightFormat::nvfp4 ? 4 : 8;
  const DeclaredScheme* declared = quantization_->find(source.module);
  if (declared == nullptr)
    return contradiction(source,
                         quantization_->empty() ? "a quantization_config in config.json"
                                                : "its scheme in quantization_config",
                         concat("none for its ", bits, "-bit tensors"));
  if (declared->weight_bits != bits)
    return contradiction(source, concat(declared->weight_bits, " bits as in ", declared->where),
                         concat(bits, "-bit tensors"));
  source.scheme.activations = declared->activations;
  if (declared->activations == ActivationFormat::nvfp4) {
    const bool divides = source.direction == GlobalScale::Direction::divide;
    source.input_scale =
        TRY(bind_scalar(source.module + (divides ? ".input_global_scale" : ".input_scale")));
  }
  if (declared->activations == ActivationFormat::fp8_tensor)
    source.input_scale = TRY(bind_scalar(source.module + ".input_scale"));
  return {};
}

/// Tensors that would change the arithmetic and are not known here.
Result<void> LinearBinder::refuse_extras(const LinearSource& source, LinearKind kind) const {
  for (const std::string_view suffix :
       {".bias", ".pre_quant_scale", ".weight_zero_point", ".weight_g_idx", ".input_zero_point"}) {
    const std::string name = concat(source.module, suffix);
    if (suffix == ".bias" && kind == LinearKind::biased) continue;
    if (checkpoint_->find(name) != nullptr)
      return make_error(ErrorCode::unsupported,
                        {.what = name, .expected = "a linear without this tensor"});
  }
  return {};
}

Error LinearBinder::missing(const LinearShape& shape) const {
  std::string found;
  for (const auto& entry : checkpoint_->entries()) {
    if (!entry.name.starts_with(shape.module + ".")) continue;
    found = concat("only ", entry.name, " ", dtype_info(entry.dtype).name, entry.shape.text());
    break;
  }
  if (found.empty()) found = "no tensor under that name";
  return make_error(ErrorCode::not_found,
                    {.what = shape.module + ".weight",
                     .expected = concat("BF16, F16, F32 or F8_E4M3 [", shape.rows, ", ", shape.cols,
                                        "], or NVFP4 of that shape"),
                     .found = found});
}

}  // namespace nibble
