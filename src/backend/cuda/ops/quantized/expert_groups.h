// The rows of experts as groups, for products by tensor memory: an expert's rows lie one after the
// other in x and y, in order of experts, and their scales begin a block (scale_blocks.h). How many
// rows an expert has is known on the device alone, so the arguments of its product are made there.
//   group_rows -> quantize_rows (scale_shift) -> describe_groups -> the product -> return_rows
//   Oracle: the same on the host (checks/expert_groups_check.cu). Bytes moved: those of lists;
//   return_rows moves each row once. At most kGroupsMost experts.
#pragma once

#include <cstddef>

#include "backend/cuda/ops/quantized/quantized_gemm.h"
#include "backend/cuda/runtime/device_slice.h"

namespace nibble::cuda {

inline constexpr int kGroupsMost = 512;

/// The scales of a group as CUTLASS has their layout: blocks of rows and of columns, matrices, and
/// the bytes from one block of rows, and one matrix, to the next.
struct GroupScales {
  int32_t row_blocks, column_blocks, matrices, row_bytes, matrix_bytes;
};
struct GroupSizes {
  int32_t w_rows, x_rows, cols;
};

/// Arrays on the device with an entry for each expert, unless they say otherwise.
struct ExpertGroups {
  int32_t experts = 0;
  int32_t* begin = nullptr;     // the first row
  int32_t* count = nullptr;     // rows
  int32_t* shift = nullptr;     // row r has the scales of row r + shift
  int32_t* position = nullptr;  // [assignments] of generated rows: the row of each, or -1
  // The arguments of a product.
  GroupSizes* sizes = nullptr;
  const uint8_t** w = nullptr;
  const uint8_t** w_scales = nullptr;
  const uint8_t** x = nullptr;
  const uint8_t** x_scales = nullptr;
  void** y = nullptr;
  int64_t* x_stride = nullptr;  // that of W too
  int64_t* y_stride = nullptr;
  GroupScales* w_layout = nullptr;
  GroupScales* x_layout = nullptr;
  std::byte* maps = nullptr;  // kGroupMapBytes, of the kernel
};
/// Six of 128 bytes for each multiprocessor, of which no card of compute capability 10 has so many.
inline constexpr int64_t kGroupMapBytes = int64_t{6} * 128 * 192;

/// Cuts the arrays, positions last; without memory only the bytes mean anything.
ExpertGroups cut_groups(int32_t experts, int64_t assignments, DeviceCarver& carver);
int64_t group_bytes(int32_t experts, int64_t assignments);

struct GroupRows {
  QuantizedExperts lists;  // list, stride and count; entries of an expert are adjacent
  const int32_t* assignments = nullptr;  // of the rows of lists; null: there are no positions
  int32_t assignment_count = 0;
  ExpertGroups groups;
};
void group_rows(const GroupRows& rows, const Launcher& launcher);

/// The arguments of the product of gemm.x and `w`, into gemm.y, whose numbers have `number_bytes`.
void describe_groups(const QuantizedGemm& gemm, const DeviceLinear& w, int number_bytes,
                     const ExpertGroups& groups, const Launcher& launcher);

/// Row i of `to` is row position[i] of `from`, where that is not negative; `columns` is a multiple
/// of 4.
struct ReturnRows {
  const float* from = nullptr;
  const int32_t* position = nullptr;
  int32_t count = 0;
  int64_t columns = 0;
  float* to = nullptr;
  int64_t to_stride = 0;
};
void return_rows(const ReturnRows& rows, const Launcher& launcher);

}  // namespace nibble::cuda
