// GPTQ on the card against the CPU's: the same bytes of codes and scales, for shapes small and
// real, odd counts of rows, columns that were always zero, moments that want more damping or allow
// none, and from several threads at once. Then, with `time`, the time of each step, and of many
// experts.
#include <cstdio>
#include <cstring>
#include <future>

#include "backend/cuda/checks/opened_device.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/ops/gptq/gptq_lanes.h"
#include "gptq_times.h"
#include "quantize/rounding/fp8_gptq.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble::cuda {
namespace {

int failures = 0;

void fail(const std::string& what) {
  ++failures;
  std::printf("WRONG %s\n", what.c_str());
}

struct Shape {
  int64_t cols;
  int64_t rows;
};

struct Bytes {
  std::vector<uint8_t> codes, scales, fp8;
  bool factorised = false;
};

/// The CPU's bytes. FP8 codes are those of one scale per row.
Bytes expected_of(const bench::GptqCase& one) {
  Bytes out;
  const auto rounder = make_gptq_rounder(one.statistics, best_round_path());
  out.factorised = rounder != nullptr;
  if (!out.factorised) return out;
  const TensorView weights = one.view();
  out.codes.resize(one.count() / 2);
  out.scales.resize(one.count() / 16);
  rounder->round(weights, one.exponent, out.codes, out.scales);
  if (!one.has_fp8()) return out;
  out.fp8.resize(one.count());
  Fp8GptqRounder(*make_gptq_factor(one.statistics), best_round_path())
      .round(weights, {.values = one.fp8_scales, .per_row = 1}, out.fp8);
  return out;
}

Bytes found_of(const bench::GptqCase& one, GptqDevice& device) {
  Bytes out;
  const auto input = device.factorise(one.moment());
  out.factorised = input != nullptr;
  if (!out.factorised) return out;
  out.codes.assign(one.count() / 2, 0xAA);
  out.scales.assign(one.count() / 16, 0xAA);
  input->round_nvfp4(one.view(), one.exponent, out.codes, out.scales);
  if (!one.has_fp8()) return out;
  out.fp8.assign(one.count(), 0xAA);
  input->round_fp8({.weights = one.view(), .exponents = one.exponents, .scales = one.block_scales},
                   out.fp8);
  return out;
}

void compare(const std::vector<uint8_t>& found, const std::vector<uint8_t>& expected,
             const std::string& what) {
  size_t different = 0, first = 0;
  for (size_t i = found.size(); i-- > 0;)
    if (found[i] != expected[i]) {
      ++different;
      first = i;
    }
  if (different > 0)
    fail(
        concat(what, ": ", different, " of ", found.size(), " bytes differ, the first at ", first));
}

void compare(const Bytes& found, const Bytes& expected, const std::string& what) {
  if (found.factorised != expected.factorised)
    return fail(concat(what, ": factorised ", found.factorised ? "here" : "on the CPU", " alone"));
  if (!expected.factorised) return;
  compare(found.scales, expected.scales, what + ", scales");
  compare(found.codes, expected.codes, what + ", codes");
  compare(found.fp8, expected.fp8, what + ", FP8 codes");
}

/// The CPU's part runs on all cores, and meanwhile the card's.
void check_all(GptqDevice& device) {
  std::vector<bench::GptqCase> cases;
  for (const auto& [cols, rows] :
       {Shape{4096, 5}, Shape{2048, 67}, Shape{512, 300}, Shape{16, 1}, Shape{48, 33},
        Shape{64, 16}, Shape{80, 1}, Shape{208, 130}, Shape{1040, 19}})
    cases.push_back(bench::gptq_case(cols, rows, bench::MomentShape::sound));
  for (const auto shape : {bench::MomentShape::wants_damping, bench::MomentShape::broken})
    cases.push_back(bench::gptq_case(176, 9, shape));
  for (const DType dtype : {DType::f32, DType::f16})
    cases.push_back(bench::gptq_case(112, 21, bench::MomentShape::sound, dtype));
  std::vector<std::future<Bytes>> expected;
  for (const auto& one : cases)
    expected.push_back(std::async(std::launch::async, [&one] { return expected_of(one); }));
  std::vector<Bytes> found;
  for (const auto& one : cases) found.push_back(found_of(one, device));
  for (size_t i = 0; i < cases.size(); ++i) compare(found[i], expected[i].get(), cases[i].name());
  std::printf("%zu shapes against the CPU, failures %d\n", cases.size(), failures);
  // Twelve threads at once: as each alone.
  std::vector<std::future<Bytes>> again;
  for (int i = 0; i < 12; ++i)
    again.push_back(std::async(std::launch::async, [&, i] {
      return found_of(cases[static_cast<size_t>(i % 4)], device);
    }));
  for (size_t i = 0; i < again.size(); ++i)
    compare(again[i].get(), found[i % 4], concat(cases[i % 4].name(), " among threads"));
  std::printf("12 at once, failures %d\n", failures);
}

}  // namespace
}  // namespace nibble::cuda

int main(int argc, char** argv) {
  using namespace nibble;
  if (const auto card = describe_cuda_device(); !card.ok()) {
    std::printf("skipped: %s\n", card.error().message.c_str());
    return 0;
  }
  cuda::DeviceContext& device = checks::opened_device();
  {
    auto lanes = cuda::GptqLanes::reserve(device, 4096, 4);
    if (!lanes.ok()) {
      std::printf("%s\n", lanes.error().message.c_str());
      return 2;
    }
    cuda::check_all(*lanes.value());
  }
  std::printf(cuda::failures == 0 ? "all equal\n" : "%d failures\n", cuda::failures);
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) bench::time_gptq(device);
  return cuda::failures == 0 ? 0 : 1;
}
