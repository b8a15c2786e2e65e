// Names and shapes.
#include "quantize/dialect.h"

#include "quantize/scheme_words.h"

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
