// The table of element types.
#include "tensor/dtype.h"

#include <array>

namespace nibble {

namespace {
constexpr std::array kTable = {
    DTypeInfo{DType::f64, "F64", 64},        DTypeInfo{DType::f32, "F32", 32},
    DTypeInfo{DType::bf16, "BF16", 16},      DTypeInfo{DType::f16, "F16", 16},
    DTypeInfo{DType::f8_e4m3, "F8_E4M3", 8}, DTypeInfo{DType::f4_e2m1, "F4", 4},
    DTypeInfo{DType::i64, "I64", 64},        DTypeInfo{DType::i32, "I32", 32},
    DTypeInfo{DType::i16, "I16", 16},        DTypeInfo{DType::i8, "I8", 8},
    DTypeInfo{DType::u8, "U8", 8},           DTypeInfo{DType::boolean, "BOOL", 8},
};
}  // namespace

const DTypeInfo& dtype_info(DType type) { return kTable[static_cast<size_t>(type)]; }
std::span<const DTypeInfo> dtype_table() { return kTable; }

Result<DType> parse_dtype(std::string_view name) {
  std::string known;
  for (const auto& row : kTable) {
    if (row.name == name) return row.type;
    known += concat(known.empty() ? "" : ", ", row.name);
  }
  return make_error(ErrorCode::unsupported, {.what = "unknown element type",
                                             .expected = concat("one of ", known),
                                             .found = concat("\"", name, "\"")});
}

int64_t dtype_bytes(DType type, int64_t count) {
  const int64_t bits = dtype_info(type).bits * count;
  CHECK(bits % 8 == 0, "an odd number of 4-bit elements: ", count);
  return bits / 8;
}

}  // namespace nibble
