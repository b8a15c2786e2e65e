// Checks of scales: single, per block, and between the linears of a fused group.
#include <array>
#include <cmath>

#include "checkpoint/safetensors_header.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/verify/verify_checks.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {

namespace {

// Largest magnitudes that a trained matrix or its input can have; an inverted scale is off by 1e5
// and more.
constexpr double kWeightAmaxLeast = 1e-6;
constexpr double kWeightAmaxMost = 1e4;

Result<std::vector<float>> read_floats(const Checkpoint& checkpoint, const TensorEntry& entry) {
  const Tensor raw = TRY(checkpoint.read(entry));
  std::vector<float> values(static_cast<size_t>(entry.shape.count()));
  decode_plain(raw.view().data, entry.dtype, entry.shape.count(), values.data());
  return values;
}

void refuse(Findings& findings, const TensorEntry& entry, std::string text) {
  findings.push_back({Severity::error, entry.name, std::move(text)});
}

/// Every element finite and above zero.
Result<void> check_positive(const Checkpoint& checkpoint, const TensorEntry* entry,
                            Findings& findings) {
  if (entry == nullptr) return {};
  if (!is_plain_float(entry->dtype)) {
    refuse(findings, *entry,
           concat("expected a scale in F32 or BF16, found ", dtype_info(entry->dtype).name));
    return {};
  }
  const std::vector<float> values = TRY(read_floats(checkpoint, *entry));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] > 0.0F) continue;
    const std::string where = values.size() == 1 ? "" : concat(" at ", i);
    refuse(findings, *entry, concat("expected a positive finite scale, found ", values[i], where));
    return {};
  }
  return {};
}

Result<void> check_block_scales(const VerifySubject& subject, const StoredModule& module,
                                Findings& findings) {
  const auto found = subject.facts.find(module.scales);
  if (found == subject.facts.end()) return {};
  const ValueFacts& facts = found->second;
  if (facts.bad > 0) {
    refuse(findings, *module.scales,
           concat(facts.bad, " block scales are negative or NaN, first at ", facts.first_bad));
    return {};
  }
  if (module.global_scale == nullptr || module.global_scale->shape.count() != 1) {
    refuse(findings, *module.values,
           "expected one global scale beside the NVFP4 codes, found none");
    return {};
  }
  if (!is_plain_float(module.global_scale->dtype) || facts.all_zero) return {};
  const float value = TRY(read_floats(subject.checkpoint, *module.global_scale))[0];
  const GlobalScale global = {.value = value, .direction = module.direction};
  const double amax = 6.0 * static_cast<double>(global.apply(e4m3_to_float(facts.largest_code)));
  if (!(value > 0.0F) || !std::isfinite(value)) return {};  // check_positive names it
  if (amax >= kWeightAmaxLeast && amax <= kWeightAmaxMost) return {};
  refuse(findings, *module.global_scale,
         concat("implausible: expected weights between ", kWeightAmaxLeast, " and ",
                kWeightAmaxMost, ", found up to ", amax, "; is the scale inverted?"));
  return {};
}

/// Compares one scalar of each linear; `name` picks its tensor.
template <typename Pick>
Result<void> check_shared(const Checkpoint& checkpoint,
                          const std::vector<const LinearSource*>& group, Severity severity,
                          std::string_view what, Pick pick, Findings& findings) {
  const LinearSource* first = nullptr;
  float first_value = 0;
  for (const LinearSource* linear : group) {
    const TensorEntry* entry = checkpoint.find(pick(*linear));
    if (entry == nullptr || entry->shape.count() != 1) continue;
    const float value = TRY(read_floats(checkpoint, *entry))[0];
    if (first == nullptr) {
      first = linear;
      first_value = value;
    } else if (value != first_value) {
      findings.push_back({severity, entry->name,
                          concat(what, " differs inside a fused group: expected ", first_value,
                                 " as of ", first->module, ", found ", value)});
    }
  }
  return {};
}

}  // namespace

Result<void> check_scales(const VerifySubject& subject, Findings& findings) {
  const Checkpoint& checkpoint = subject.checkpoint;
  for (const StoredModule& module : subject.modules) {
    for (const TensorEntry* entry : module.others) {
      if (!entry->name.ends_with(".k_scale") && !entry->name.ends_with(".v_scale")) continue;
      TRY(check_positive(checkpoint, entry, findings));
    }
    if (module.values == nullptr) continue;  // check_declaration names it
    TRY(check_positive(checkpoint, module.global_scale, findings));
    TRY(check_positive(checkpoint, module.input_scale, findings));
    if (module.scheme.weights == WeightFormat::nvfp4) {
      TRY(check_block_scales(subject, module, findings));
    } else {
      TRY(check_positive(checkpoint, module.scales, findings));
    }
  }
  return {};
}

Result<void> check_fused_groups(const VerifySubject& subject, const Weights& weights,
                                Findings& findings) {
  for (const auto& group : fused_linears(weights)) {
    // Some engines take one linear's global scale for all: the others come out wrong.
    TRY(check_shared(
        subject.checkpoint, group, Severity::error, "global scale",
        [](const LinearSource& linear) { return linear.global_scale; }, findings));
    // Engines round the others again under the largest: a second loss, and not what was measured.
    TRY(check_shared(
        subject.checkpoint, group, Severity::warning, "FP8 scale",
        [](const LinearSource& linear) {
          return linear.scheme.weights == WeightFormat::fp8_tensor ? linear.scales : std::string();
        },
        findings));
    TRY(check_shared(
        subject.checkpoint, group, Severity::warning, "input scale",
        [](const LinearSource& linear) { return linear.input_scale; }, findings));
  }
  return {};
}

void check_decoder(Findings& findings) {
  constexpr std::array<uint8_t, 8> kCodes = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};
  constexpr std::array<float, 16> kValues = {0, 0.5,  1,  1.5,  2,  3,  4,  6,
                                             0, -0.5, -1, -1.5, -2, -3, -4, -6};
  constexpr uint8_t kSix = 0x4C;  // E4M3 of 6
  for (const auto direction : {GlobalScale::Direction::divide, GlobalScale::Direction::multiply}) {
    const bool divide = direction == GlobalScale::Direction::divide;
    std::array<float, 16> decoded = {};
    decode_nvfp4_row(kCodes.data(), &kSix, {.value = divide ? 4.0F : 0.25F, .direction = direction},
                     16, decoded.data());
    for (size_t i = 0; i < decoded.size(); ++i) {
      if (decoded[i] == kValues[i] * 1.5F) continue;
      findings.push_back({Severity::error, "this program",
                          concat("its NVFP4 decoder is wrong: expected ", kValues[i] * 1.5F,
                                 ", found ", decoded[i], "; reinstall it")});
      return;
    }
  }
}

}  // namespace nibble
