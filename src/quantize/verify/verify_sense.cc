// A checkpoint is its own measure: most of its numbers are right, so the few that stand apart are
// not. Thresholds leave room for every recipe and for files of llm-compressor and ModelOpt.
#include "quantize/verify/verify_sense.h"

#include <algorithm>
#include <cmath>

#include "quantize/recipe/model_linears.h"
#include "tensor/fp8.h"

namespace nibble {

namespace {

constexpr size_t kAlikeLeast = 8;      // scales that make a habit
constexpr double kHabitShare = 0.9;    // of them that have it
constexpr float kKindFactor = 256.0F;  // an input's range differs between layers by less
constexpr double kClippedShare = 0.4;  // of codes at +-6: 6 to 10 % are usual
constexpr int64_t kCodesLeast = 4096;  // of a matrix, some of which then reach +-6
// Cache scales are the largest key or value over 448.
constexpr float kCacheScaleLeast = 1e-6F;
constexpr float kCacheScaleMost = 1e3F;

struct Scale {
  const TensorEntry* entry = nullptr;
  float value = 0;
};

/// The value of a scalar that other checks found to be a positive number, else nothing.
Result<void> add_scale(const Checkpoint& checkpoint, const TensorEntry* entry,
                       std::vector<Scale>& scales) {
  if (entry == nullptr || entry->shape.count() != 1 || !is_plain_float(entry->dtype)) return {};
  const Tensor raw = TRY(checkpoint.read(*entry));
  Scale scale{.entry = entry};
  decode_plain(raw.view().data, entry->dtype, 1, &scale.value);
  if (std::isfinite(scale.value) && scale.value > 0.0F) scales.push_back(scale);
  return {};
}

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5F;
}

void check_powers_of_two(const std::vector<Scale>& scales, Findings& findings) {
  const auto powers = std::ranges::count_if(scales, is_power_of_two, &Scale::value);
  const auto all = static_cast<double>(scales.size());
  if (scales.size() < kAlikeLeast || static_cast<double>(powers) < kHabitShare * all) return;
  for (const Scale& scale : scales)
    if (!is_power_of_two(scale.value))
      findings.push_back({Severity::error, scale.entry->name,
                          concat("expected a power of two, as ", powers, " of ", scales.size(),
                                 " global scales of this checkpoint are, found ", scale.value)});
}

/// Scales of one kind that are far from the median of that kind. Where all but a few are the same
/// number, nothing was measured, and the others are wrong.
void check_kind(std::string_view what, std::vector<Scale> scales, Findings& findings) {
  if (scales.size() < kAlikeLeast) return;
  std::ranges::sort(scales, {}, &Scale::value);
  const float median = scales[scales.size() / 2].value;
  const auto same = std::ranges::count(scales, median, &Scale::value);
  const auto all = static_cast<double>(scales.size());
  const bool constant = static_cast<double>(same) >= kHabitShare * all;
  for (const Scale& scale : scales) {
    const float ratio = scale.value / median;
    if (ratio <= kKindFactor && ratio >= 1.0F / kKindFactor) continue;
    findings.push_back({constant ? Severity::error : Severity::warning, scale.entry->name,
                        concat("an absurd ", what, ": ", scale.value, ", where the median of its ",
                               scales.size(), " like is ", median)});
  }
}

void check_cache_range(const std::vector<Scale>& scales, Findings& findings) {
  for (const Scale& scale : scales) {
    if (scale.value >= kCacheScaleLeast && scale.value <= kCacheScaleMost) continue;
    findings.push_back({Severity::error, scale.entry->name,
                        concat("expected a cache scale between ", kCacheScaleLeast, " and ",
                               kCacheScaleMost, ", found ", scale.value)});
  }
}

bool is_nvfp4(const StoredModule& module) {
  return module.values != nullptr && module.scheme.weights == WeightFormat::nvfp4;
}

}  // namespace

Result<void> check_scale_agreement(const VerifySubject& subject, Findings& findings) {
  std::vector<Scale> globals, keys, values;
  std::map<std::string, std::vector<Scale>> inputs;
  for (const StoredModule& module : subject.modules) {
    if (is_nvfp4(module)) TRY(add_scale(subject.checkpoint, module.global_scale, globals));
    TRY(add_scale(subject.checkpoint, module.input_scale, inputs[linear_kind(module.name)]));
    for (const TensorEntry* entry : module.others) {
      if (entry->name.ends_with(".k_scale")) TRY(add_scale(subject.checkpoint, entry, keys));
      if (entry->name.ends_with(".v_scale")) TRY(add_scale(subject.checkpoint, entry, values));
    }
  }
  check_powers_of_two(globals, findings);
  for (auto& [kind, scales] : inputs) check_kind("input scale", std::move(scales), findings);
  check_cache_range(keys, findings);
  check_cache_range(values, findings);
  check_kind("cache scale", std::move(keys), findings);
  check_kind("cache scale", std::move(values), findings);
  return {};
}

void check_code_ranges(const VerifySubject& subject, Findings& findings) {
  for (const StoredModule& module : subject.modules) {
    if (!is_nvfp4(module)) continue;
    const auto codes = subject.facts.find(module.values);
    const auto scales = subject.facts.find(module.scales);
    if (codes == subject.facts.end() || scales == subject.facts.end()) continue;
    const auto count = static_cast<double>(2 * module.values->bytes);
    const auto clipped = static_cast<double>(codes->second.top_codes);
    if (clipped > kClippedShare * count)
      findings.push_back({Severity::warning, module.values->name,
                          concat(std::lround(100 * clipped / count),
                                 " % of its codes are at the end of their range: block scales "
                                 "that are too small have clipped it")});
    const bool enough = 2 * module.values->bytes >= kCodesLeast;
    if (enough && codes->second.top_codes == 0 && !codes->second.all_zero)
      findings.push_back({Severity::warning, module.values->name,
                          "no code is at the end of its range: block scales are too large"});
    if (scales->second.zero_codes > 0)
      findings.push_back({Severity::warning, module.scales->name,
                          concat(scales->second.zero_codes,
                                 " block scales are zero, and their weights with them")});
  }
}

}  // namespace nibble
