// How many drafts of Pebble's MTP layer are right, as a gtest expectation.
#pragma once

#include "testing/golden.h"
#include "testing/test_session.h"

namespace nibble {

/// A trained layer, over the model's own text: as many drafts are right, by their place in a round,
/// as tools/oracle/mtp_acceptance.py counts, and as many rounds are the same; but for this share of
/// the places, by which a backend that rounds differently may differ.
struct AcceptanceBars {
  double places_share = 0.01;
};
void expect_acceptance_of_pebble(const BackendFactory& factory, const BackendOptions& options,
                                 const AcceptanceBars& bars);

}  // namespace nibble
