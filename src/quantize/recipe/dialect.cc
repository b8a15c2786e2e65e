// Names and shapes.
#include "quantize/recipe/dialect.h"

#include "quantize/recipe/scheme_words.h"

namespace nibble {

std::string_view dialect_name(Dialect dialect) {
  return dialect == Dialect::modelopt ? "modelopt" : "compressed-tensors";
}

Result<Dialect> parse_dialect(std::string_view name) {
  for (const Dialect dialect : {Dialect::compressed_tensors, Dialect::modelopt})
    if (dialect_name(dialect) == name) return dialect;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "format", .expected = "compressed-tensors or modelopt", .found = name});
}

Result<Dialect> dialect_of(const Checkpoint& checkpoint) {
  const Json* declared = checkpoint.config().find("quantization_config");
  const Json* method = declared == nullptr ? nullptr : declared->find("quant_method");
  if (method != nullptr && *method == Json("compressed-tensors"))
    return Dialect::compressed_tensors;
  if (method != nullptr && *method == Json("modelopt")) return Dialect::modelopt;
  return make_error(ErrorCode::unsupported,
                    {.what = checkpoint.folder().string(),
                     .expected = "a compressed-tensors or ModelOpt checkpoint",
                     .found = method == nullptr ? "no quant_method" : method->dump()});
}

GlobalScale::Direction scale_direction(Dialect dialect) {
  return dialect == Dialect::modelopt ? GlobalScale::Direction::multiply
                                      : GlobalScale::Direction::divide;
}

Shape scale_shape(Dialect dialect) { return dialect == Dialect::modelopt ? Shape{} : Shape{1}; }

bool dialect_can_say(const QuantScheme& scheme, Dialect dialect) {
  const SchemeWords* found = find_words(scheme);
  return found != nullptr &&
         (dialect == Dialect::compressed_tensors || !found->modelopt_algorithm.empty());
}

Shape fp8_scale_shape(WeightFormat format, int64_t rows, Dialect dialect) {
  CHECK(format == WeightFormat::fp8_tensor || format == WeightFormat::fp8_channel, "format ",
        static_cast<int>(format));
  if (format == WeightFormat::fp8_tensor) return scale_shape(dialect);
  return dialect == Dialect::modelopt ? Shape{rows} : Shape{rows, 1};
}

QuantScheme dialect_scheme(const QuantScheme& scheme, Dialect dialect, std::string_view module) {
  constexpr QuantScheme kStatic = {WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor};
  if (!(scheme == kStatic) || dialect != Dialect::compressed_tensors) return scheme;
  const bool by_row = is_routed_expert(module) || module == "lm_head";
  return {by_row ? WeightFormat::fp8_channel : WeightFormat::fp8_tensor,
          ActivationFormat::fp8_token};
}

bool is_routed_expert(std::string_view module) {
  return module.find(".experts.") != std::string_view::npos;
}

std::vector<TensorPlan> stored_tensors(std::string_view module, int64_t rows, int64_t cols,
                                       const QuantScheme& scheme, Dialect dialect) {
  CHECK(dialect_can_say(scheme, dialect), module);
  const Shape scalar = scale_shape(dialect);
  if (scheme.weights == WeightFormat::nvfp4) {
    const Nvfp4Names names = nvfp4_names(module, dialect);
    std::vector<TensorPlan> out = {{names.codes, DType::u8, {rows, cols / 2}},
                                   {names.scales, DType::f8_e4m3, {rows, cols / kNvfp4Group}},
                                   {names.global, DType::f32, scalar}};
    if (scheme.activations == ActivationFormat::nvfp4)
      out.push_back({names.input_scale, DType::f32, scalar});
    return out;
  }
  const auto tiles = [](int64_t size) { return (size + kFp8Block - 1) / kFp8Block; };
  const Shape scales = scheme.weights == WeightFormat::fp8_block
                           ? Shape{tiles(rows), tiles(cols)}
                           : fp8_scale_shape(scheme.weights, rows, dialect);
  std::vector<TensorPlan> out = {{concat(module, ".weight"), DType::f8_e4m3, {rows, cols}},
                                 {concat(module, ".weight_scale"), DType::f32, scales}};
  if (scheme.activations == ActivationFormat::fp8_tensor)
    out.push_back({concat(module, ".input_scale"), DType::f32, scalar});
  return out;
}

int64_t stored_bytes(int64_t rows, int64_t cols, const QuantScheme& scheme, Dialect dialect) {
  int64_t bytes = 0;
  for (const TensorPlan& tensor : stored_tensors("", rows, cols, scheme, dialect))
    bytes += dtype_bytes(tensor.dtype, tensor.shape.count());
  return bytes;
}

Nvfp4Names nvfp4_names(std::string_view module, Dialect dialect) {
  if (dialect == Dialect::modelopt)
    return {.codes = concat(module, ".weight"),
            .scales = concat(module, ".weight_scale"),
            .global = concat(module, ".weight_scale_2"),
            .input_scale = concat(module, ".input_scale")};
  return {.codes = concat(module, ".weight_packed"),
          .scales = concat(module, ".weight_scale"),
          .global = concat(module, ".weight_global_scale"),
          .input_scale = concat(module, ".input_global_scale")};
}

}  // namespace nibble
