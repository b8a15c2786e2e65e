// How many drafts of Pebble's MTP layer are right, as a gtest expectation.
#pragma once

#include "testing/golden.h"
#include "testing/test_session.h"

namespace nibble {

/// A trained layer, over the model's own text: as many drafts are right, by their place in a round,
/// as tools/oracle/mtp_acceptance.py counts, and as many rounds are those of the checkpoint's own
/// layer in PyTorch; but for this share of the places, by which a backend that rounds differently
/// may differ.
struct AcceptanceBars {
  double places_share = 0.01;
  double rounds_share = 0.01;       // share of rounds that are another one
  DraftVariant variant = {};        // the layer's variant, and
  std::vector<int32_t> right = {};  // its counts; empty: those of the checkpoint's own layer
};
void expect_acceptance_of_pebble(const BackendFactory& factory, const BackendOptions& options,
                                 const AcceptanceBars& bars);

/// Pebble with its layer in NVFP4 and a head of some tokens: the logits of its drafts are within
/// `error_max` of those that the reference computes with F32 activations (relative_error), and its
/// first draft is one of those tokens.
void expect_drafts_of_the_reference(const BackendFactory& factory, const BackendFactory& reference,
                                    const BackendOptions& options, double error_max);

}  // namespace nibble
