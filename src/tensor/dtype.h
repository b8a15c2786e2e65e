// Element types: one table row each. A packed type (F4) counts bits, not bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace nibble {

enum class DType : uint8_t {
  f64,
  f32,
  bf16,
  f16,
  f8_e4m3,
  f4_e2m1,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean
};

struct DTypeInfo {
  DType type;
  std::string_view name;  // as safetensors writes it: "BF16", "F8_E4M3"
  int bits;               // of one element
};

/// The row of a type. Every row has a round-trip test.
const DTypeInfo& dtype_info(DType type);
/// All rows, in enum order.
std::span<const DTypeInfo> dtype_table();
/// Finds an element type by its safetensors name. Errors: unsupported, naming the known ones.
Result<DType> parse_dtype(std::string_view name);

/// Bytes of `count` packed elements (F4: two to a byte, count must be even).
int64_t dtype_bytes(DType type, int64_t count);

}  // namespace nibble
