// The table of element types, shapes, and one round trip per row of the table.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tensor/float_formats.h"
#include "tensor/fp8.h"
#include "tensor/tensor.h"

namespace nibble {
namespace {

TEST(DType, EveryRowRoundTripsByName) {
  for (const DTypeInfo& row : dtype_table()) {
    EXPECT_EQ(parse_dtype(row.name).value(), row.type) << row.name;
    EXPECT_EQ(&dtype_info(row.type), &row) << row.name << " is out of enum order";
    EXPECT_EQ(dtype_bytes(row.type, 16), 2 * row.bits) << row.name;
  }
  EXPECT_EQ(parse_dtype("F8_E5M2").error().code, ErrorCode::unsupported);
}

/// One exact value through a tensor of the type and back; how depends on the type.
double through(DType type, double value) {
  Tensor tensor(type, Shape{2});
  std::memset(tensor.span().data(), 0, tensor.span().size());
  const auto x = static_cast<float>(value);
  float out = 0;
  switch (type) {
    case DType::f64:
      tensor.as<double>()[0] = value;
      break;
    case DType::f32:
      tensor.as<float>()[0] = x;
      break;
    case DType::bf16:
      tensor.as<uint16_t>()[0] = float_to_bf16(x);
      break;
    case DType::f16:
      tensor.as<uint16_t>()[0] = float_to_f16(x);
      break;
    case DType::f8_e4m3:
      encode_fp8_row(&x, 1.0F, 1, tensor.as<uint8_t>());
      break;
    case DType::f4_e2m1:
      tensor.as<uint8_t>()[0] = float_to_e2m1(x);
      break;
    case DType::i64:
      tensor.as<int64_t>()[0] = static_cast<int64_t>(value);
      break;
    case DType::i32:
      tensor.as<int32_t>()[0] = static_cast<int32_t>(value);
      break;
    case DType::i16:
      tensor.as<int16_t>()[0] = static_cast<int16_t>(value);
      break;
    case DType::i8:
      tensor.as<int8_t>()[0] = static_cast<int8_t>(value);
      break;
    case DType::u8:
      tensor.as<uint8_t>()[0] = static_cast<uint8_t>(value);
      break;
    case DType::boolean:
      tensor.as<uint8_t>()[0] = value != 0;
      break;
  }
  if (is_plain_float(type)) {
    decode_plain(tensor.view().data, type, 1, &out);
    return static_cast<double>(out);
  }
  switch (type) {
    case DType::f8_e4m3:
      decode_fp8_row(tensor.as<uint8_t>(), 1.0F, 1, &out);
      break;
    case DType::f4_e2m1:
      out = e2m1_to_float(tensor.as<uint8_t>()[0]);
      break;
    case DType::i64:
      return static_cast<double>(tensor.as<int64_t>()[0]);
    case DType::i32:
      return static_cast<double>(tensor.as<int32_t>()[0]);
    case DType::i16:
      return static_cast<double>(tensor.as<int16_t>()[0]);
    case DType::i8:
      return static_cast<double>(tensor.as<int8_t>()[0]);
    default:
      return static_cast<double>(tensor.as<uint8_t>()[0]);
  }
  return static_cast<double>(out);
}

TEST(DType, EveryRowRoundTripsItsValues) {
  for (const DTypeInfo& row : dtype_table()) {
    const bool is_signed = row.type != DType::u8 && row.type != DType::boolean;
    EXPECT_EQ(through(row.type, 1), 1) << row.name;
    EXPECT_EQ(through(row.type, 0), 0) << row.name;
    if (is_signed) {
      EXPECT_EQ(through(row.type, -3), -3) << row.name;
    }
    if (row.type != DType::boolean) {
      EXPECT_EQ(through(row.type, 4), 4) << row.name;
    }
    if (is_plain_float(row.type)) {
      EXPECT_EQ(through(row.type, -0.375), -0.375) << row.name;
    }
  }
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{2, 0, 3}).count(), 0);
  EXPECT_EQ((Shape{2, 3}).text(), "[2, 3]");
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor(DType::u8, Shape{3}).view().data) % 64, 0U);
}

}  // namespace
}  // namespace nibble
