// linear() for matrices whose inputs are held in shared memory (held.cuh); linear.cu chooses.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// Two rows and more. All outputs held(); those in front of one format, those behind it BF16, if
/// any.
void linear_held(const LinearArgs& args, const Launcher& launcher);
/// The same of many rows. False: nothing was launched, since there are too few rows or tiles or too
/// little shared memory.
bool linear_tiles(const LinearArgs& args, const Launcher& launcher);
/// The same of a single row, which may be the norm of another (LinearArgs::norm).
void linear_row(const LinearArgs& args, const Launcher& launcher);
/// The same of several rows that are norms, if norms_rows().
void linear_norm(const LinearArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
