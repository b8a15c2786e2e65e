// The scales that a checkpoint declares for an FP8 cache of keys and values: one number of each
// attention layer for its keys and one for its values. Pages then keep number / scale, and
// attention reads that times the scale (docs/formats.md).
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/kv_format.h"

namespace nibble {

/// The scales of each attention layer of `config`, in order. ModelOpt names them k_proj.k_scale and
/// v_proj.v_scale, compressed-tensors k_scale and v_scale of the module of attention. Errors:
/// not_found (a layer has none), unsupported (more than one number), corrupt (not a number from
/// kKvScaleLeast to kKvScaleMost); those of reading.
Result<std::vector<KvScale>> read_kv_scales(const Checkpoint& checkpoint,
                                            const ModelConfig& config);

}  // namespace nibble
