// The cards of this machine, asked through the driver's management library (libnvidia-ml.so.1,
// opened at run time): every build can ask, one without CUDA too, and no card is touched.
#pragma once

#include <string>
#include <vector>

#include "plan/machine_report.h"

namespace nibble {

struct DriverFacts {
  std::string version;  // "580.159.03"; empty: no library, so no driver
  int32_t cuda = 0;     // 13000
  std::vector<GpuFacts> gpus;
  std::string trouble;  // why cards could not be asked though the library is there
};
DriverFacts ask_driver();

}  // namespace nibble
