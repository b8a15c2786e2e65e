// The files of an output beside its weights: report, picture, recipe, card, hashes, declaration,
// and config.json last. How weights become what they are is quantize.cc.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "quantize/group_rounder.h"
#include "quantize/quantize.h"
#include "quantize/report/content_hashes.h"

namespace nibble {

/// For each of the plan's groups, one per linear.
using LinearOutcomes = std::vector<std::vector<LinearOutcome>>;

struct Papers {
  const Checkpoint& checkpoint;  // the source
  const QuantPlan& plan;
  const Recipe& recipe;
  const QuantizeOptions& options;
  const LinearOutcomes& outcomes;
  Hashes hashes;  // of the tensors that were written
};

/// Copies the source's other files, writes the new ones and finishes the output. Errors: io,
/// no_space.
Result<QuantizeReport> finish_output(Papers papers, CheckpointWriter& writer);

}  // namespace nibble
