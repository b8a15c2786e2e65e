// The norm of rows and codes of the results in one launch: add_norm() or
// combine_norm(), then quantize_rows(), with the bits of both (norm.h,
// quantized_rows.h). The block of threads that makes a row of x rounds it, so
// nothing but codes is read again from far away.
//   Oracle: the two launches, byte for byte (checks/norm_rows_check.cu). Bytes
//   moved: those of the norm, and the codes once. rows.x and its stride are
//   those of the norm, one row of codes for each row of x in the same place; a
//   hidden size that is a multiple of 4.
#pragma once

#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/quantized/quantized_rows.h"

namespace nibble::cuda {

void add_norm_rows(const AddNormArgs& norm, const QuantizeRows& rows, const Launcher& launcher);
void combine_norm_rows(const CombineNormArgs& norm, const QuantizeRows& rows,
                       const Launcher& launcher);

}  // namespace nibble::cuda
