// The walk over the layers, once for every backend.
#pragma once

#include "model/backend.h"

namespace nibble {

/// All of a pass but its head: h = embed; per layer h += mixer(norm(h)), h += mlp(norm(h)); what
/// drafts will need is kept. A
/// backend with a device of its own may return before the work is done; head() waits for it.
Residual run_layers(BlockWalk& backend, const ModelConfig& config, const Batch& batch);

/// One pass: logits = head(norm(run_layers)).
/// `batch` must be consistent (validate_batch); its ids, pages and slots inside the pools.
HeadOutput forward(BlockWalk& backend, const ModelConfig& config, const Batch& batch);

/// CHECKs the shape of a batch: adjacent sequences, page tables long enough, rows in range.
void validate_batch(const Batch& batch, const ModelConfig& config, const PoolSizes& sizes);
/// The same of the batch of a draft.
void validate_draft(const DraftBatch& batch, const ModelConfig& config, const PoolSizes& sizes);

}  // namespace nibble
