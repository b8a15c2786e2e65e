// The row rounders of rounding.h that need data, one file each, and what they share.
#pragma once

#include <memory>
#include <vector>

#include "model/devices/gptq_device.h"
#include "quantize/rounding/rounding.h"

namespace nibble {

/// Added to the second moment's diagonal, as a share of its mean: GPTQ's usual damping. It keeps
/// columns whose input was always zero from being rounded at random, and the factorisation sound.
inline constexpr double kDamping = 0.01;
/// GPTQ tries these in turn, until the moment can be factorised.
inline constexpr double kDampings[] = {kDamping, 10 * kDamping, 100 * kDamping};

/// Mean of x_i^2 over tokens and columns. Zero or not finite: the statistics say nothing.
double mean_square(const InputStatistics& statistics);

/// Weights of the columns' squared errors: square(i) over the mean, plus the damping.
std::vector<float> column_weights(const InputStatistics& statistics);

/// Statistics must hold what moment_needed() says, and a mean square above zero.
std::unique_ptr<RowRounder> make_diagonal_rounder(const InputStatistics& statistics,
                                                  RoundPath path);
std::unique_ptr<RowRounder> make_block_rounder(const InputStatistics& statistics, RoundPath path);
/// nullptr if the moment cannot be factorised even with a hundred times the damping.
std::unique_ptr<RowRounder> make_gptq_rounder(const InputStatistics& statistics, RoundPath path,
                                              int sweeps = kDescentSweeps);

}  // namespace nibble
