// GPTQ's rounders where a device does the work (model/devices/gptq_device.h): the same bytes and
// the same sums of errors as those of the CPU.
#pragma once

#include <memory>

#include "model/devices/gptq_device.h"
#include "quantize/rounding/fp8_gptq.h"
#include "quantize/rounding/rounding.h"

namespace nibble {

/// They round as make_gptq_rounder and Fp8GptqRounder, or are nullptr; device.takes() the columns.
std::unique_ptr<RowRounder> make_device_gptq_rounder(const InputStatistics& statistics,
                                                     GptqDevice& device, RoundPath path);
std::unique_ptr<Fp8Rounder> make_device_fp8_rounder(const InputStatistics& statistics,
                                                    GptqDevice& device);

}  // namespace nibble
