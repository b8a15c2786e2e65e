// The instruction for 4-bit codes on all cases of fp4_cases.h: every one against the software on
// the device, and every one against the host; and faults, planted, that must be seen.
#include <algorithm>
#include <bit>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/ops/quantized/fp4_proof.h"
#include "backend/cuda/proof/fp4_harness.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr const char* kKinds[kFp4CaseKinds] = {"all pairs of codes", "random codes, integers",
                                               "all scale bytes", "scales that are powers of two",
                                               "random scales"};

/// Sums of one kind that are not the host's. Of random scales on the machine, which may round in
/// its own way, the distance counts.
struct Found {
  int64_t different = 0;
  double worst = 0.0;
  double largest = 1e-30;
};

void compare(const Fp4Sums& got, const Fp4Sums& want, Found& found) {
  for (int i = 0; i < 4; ++i)
    for (int lane = 0; lane < 32; ++lane) {
      const float a = got.of[i][lane];
      const float b = want.of[i][lane];
      found.different +=
          std::isnan(b) ? !std::isnan(a) : std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b);
      if (std::isnan(b)) continue;
      const double error = std::fabs(double{a} - b);
      found.worst = error <= found.worst ? found.worst : error;  // NaN stays
      found.largest = std::max(found.largest, std::fabs(double{b}));
    }
}

}  // namespace

void check_instruction(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  auto* sums = device_array<Fp4Sums>(fp4_cases());
  multiply_fragments({.count = fp4_cases(), .sums = sums}, launcher);
  must(cudaDeviceSynchronize(), "fragments");
  const auto got = to_host(sums, fp4_cases());
  cudaFree(sums);
  Found found[kFp4CaseKinds];
  for (int number = 0; number < fp4_cases(); ++number) {
    const Fp4Case of = fp4_case(number);
    compare(got[static_cast<size_t>(number)], fp4_on_host(of), found[static_cast<int>(of.kind)]);
  }
  const bool machine = launcher.card.fp4 == cuda::Architecture::Fp4::machine;
  for (int kind = 0; kind < kFp4CaseKinds; ++kind) {
    const bool rounded = machine && kind == static_cast<int>(Fp4CaseKind::any);
    const double value = rounded ? found[kind].worst / found[kind].largest
                                 : static_cast<double>(found[kind].different);
    tally.check(rounded ? value < 0x1p-10 : value == 0,
                (std::string("instruction: ") + kKinds[kind]).c_str(), value);
  }
}

void check_harness(Tally& tally) {
  const auto way = fp4_launcher().card.fp4 == cuda::Architecture::Fp4::machine
                       ? Fp4Products::instruction
                       : Fp4Products::software;
  const std::pair<Fp4Fault, const char*> faults[] = {{Fp4Fault::none, "nothing planted"},
                                                     {Fp4Fault::last_bit, "a last bit"},
                                                     {Fp4Fault::scales, "lanes of scales"},
                                                     {Fp4Fault::lost_code, "a lost code"}};
  for (const auto& [fault, name] : faults) {
    const auto result = run_fp4_harness(way, fault);
    CHECK(result.ok(), result.error().message);
    tally.print("harness, %s: %s, %.1f ms", name, result.value().text().c_str(),
                result.value().milliseconds);
    tally.check(result.value().equal() == (fault == Fp4Fault::none),
                (std::string("harness: ") + name).c_str(),
                fault == Fp4Fault::none ? static_cast<double>(result.value().different) : 0.0);
  }
}

}  // namespace nibble::checks
