// The bytes of one weight in the layout of this backend, by shape and format alone; what CpuWeights
// holds is held to their sum at every start of a server.
#pragma once

#include <cstdint>

#include "model/config/rope.h"
#include "model/weights/weights.h"
#include "tensor/dtype.h"

namespace nibble::cpu {

/// A matrix in panels. `stored`: the type of its values in the file.
int64_t linear_bytes(const LinearSource& source, DType stored);
/// The part of these that kernels can read where the file is mapped; 0: none.
int64_t readable_bytes(const LinearSource& source, DType stored);
/// An embedding that is not the head too: as its file stores it, with its scales in F32.
int64_t embedding_bytes(const LinearSource& source, DType stored);
/// A small tensor in F32.
int64_t vector_bytes(const VectorSource& source);
/// exp(A_log), in F64.
int64_t decay_bytes(const VectorSource& a_log);
/// Rotary frequencies and their axes.
int64_t table_bytes(const RopeTable& table);

}  // namespace nibble::cpu
