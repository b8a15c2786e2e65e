// Checks of plain values: finite, and not nothing.
#include "quantize/verify/verify_checks.h"

namespace nibble {

namespace {

void check_zeros(const StoredModule& module, const ValueFacts& facts, Findings& findings) {
  if (!module.is_linear()) return;
  const std::string& name = module.values->name;
  if (!facts.zero_slices.empty()) {
    findings.push_back({Severity::warning, name,
                        concat(facts.zero_slices.size(), " dead experts (all zero), first expert ",
                               facts.zero_slices.front())});
  } else if (facts.all_zero && module.kind == ModuleKind::expert) {
    findings.push_back({Severity::warning, name, "a dead expert: all zero"});
  } else if (facts.all_zero) {
    findings.push_back({Severity::error, name, "all values are zero"});
  }
}

}  // namespace

void check_values(const VerifySubject& subject, Findings& findings) {
  for (const StoredModule& module : subject.modules) {
    for (const TensorEntry* entry : {module.values, module.scales}) {
      const auto found = subject.facts.find(entry);
      if (entry == nullptr || found == subject.facts.end()) continue;
      const ValueFacts& facts = found->second;
      const bool block_scales =
          entry == module.scales && module.scheme.weights == WeightFormat::nvfp4;
      if (facts.bad > 0 && !block_scales) {
        findings.push_back({Severity::error, entry->name,
                            concat(facts.bad, " of ", entry->shape.count(),
                                   " values are NaN or infinite, first at ", facts.first_bad)});
      }
      if (entry == module.values) check_zeros(module, facts, findings);
    }
  }
}

}  // namespace nibble
