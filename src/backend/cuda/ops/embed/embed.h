// h[i] = row tokens[i] of the embedding table in F32, or the row of media that the batch names
// instead (BatchView::tokens); x = norm(h) for the first block.
//   Oracle: reference::embed. Bytes moved: the rows of the table once, h and x written once. Any
//   number of rows; padding rows are those of token 0.
#pragma once

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

struct EmbedArgs {
  BatchView batch;
  DeviceLinear table;  // [vocabulary][hidden]
  int32_t hidden = 0;
  float* h = nullptr;           // [rows][hidden]
  const float* norm = nullptr;  // [hidden]
  uint16_t* x = nullptr;        // [rows][x_stride]
  int64_t x_stride = 0;
  float eps = 0.0F;
  int32_t packed_from = INT32_MAX;  // rows from here on get x in packed column order
};
void embed(const EmbedArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
