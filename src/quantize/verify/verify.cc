// Runs the checks in order; a check whose ground is missing is left out, never guessed.
#include "quantize/verify/verify.h"

#include <algorithm>
#include <optional>

#include "base/sha256.h"
#include "checkpoint/safetensors_header.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/verify/verify_sense.h"
#include "tensor/fp8.h"

namespace nibble {

namespace {

/// Many messages begin with the file they are about; it is not said twice.
void add_error(Findings& findings, std::string_view subject, const Error& error) {
  std::string_view text = error.message;
  const std::string prefix = concat(subject, ": ");
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  findings.push_back({Severity::error, std::string(subject), std::string(text)});
}

ValueRule rule_of(const StoredModule& module, const TensorEntry& entry) {
  if (&entry == module.scales && module.scheme.weights == WeightFormat::nvfp4 &&
      entry.dtype == DType::f8_e4m3) {
    return ValueRule::block_scale;
  }
  if (&entry == module.values && module.scheme.weights == WeightFormat::nvfp4) {
    return ValueRule::nvfp4_codes;
  }
  if (entry.dtype == DType::f8_e4m3) return ValueRule::e4m3_values;
  return is_plain_float(entry.dtype) ? ValueRule::floats : ValueRule::bytes;
}

/// Experts of a stack; everything else is one slice.
int64_t slices_of(const StoredModule& module, const TensorEntry& entry) {
  const bool stack = &entry == module.values && module.is_linear() && entry.shape.rank() == 3;
  return stack && entry.shape[0] > 0 ? entry.shape[0] : 1;
}

struct ScanItem {
  const StoredModule* module;
  const TensorEntry* entry;
};

/// Every tensor once, in the order of the files.
std::vector<ScanItem> scan_order(const std::vector<StoredModule>& modules) {
  std::vector<ScanItem> items;
  for (const StoredModule& module : modules) {
    for (const TensorEntry* entry :
         {module.values, module.scales, module.global_scale, module.input_scale}) {
      if (entry != nullptr) items.push_back({&module, entry});
    }
    for (const TensorEntry* entry : module.others) items.push_back({&module, entry});
  }
  std::ranges::sort(items, {}, [](const ScanItem& item) {
    return std::pair(item.entry->file, item.entry->offset);
  });
  return items;
}

/// Everything that is learnt in one reading of all tensors.
struct Scanned {
  std::map<const TensorEntry*, ValueFacts> facts;
  Hashes hashes;  // empty unless they were asked for
};
enum class Hashing : uint8_t { no, yes };

Result<Scanned> scan_all(const Checkpoint& checkpoint, const std::vector<StoredModule>& modules,
                         Hashing hashing, const VerifyOptions& options) {
  Scanned scanned;
  int64_t done = 0, total = 0;
  for (const TensorEntry& entry : checkpoint.entries()) total += entry.bytes;
  for (const auto& [module, entry] : scan_order(modules)) {
    Sha256 hasher;
    const auto on_chunk = [&](std::span<const std::byte> chunk) {
      if (hashing == Hashing::yes) hasher.add(chunk);
      done += static_cast<int64_t>(chunk.size());
      if (options.progress) options.progress(done, total);
    };
    scanned.facts.emplace(entry, TRY(scan_values(checkpoint, *entry, rule_of(*module, *entry),
                                                 slices_of(*module, *entry), on_chunk)));
    if (hashing == Hashing::yes) scanned.hashes[entry->name] = hasher.hex();
  }
  return scanned;
}

/// The checks that need the model's config. Both pieces may be missing.
Result<void> check_model(const VerifySubject& subject, VerifyDepth depth, Findings& findings) {
  const auto config = ModelConfig::parse(subject.checkpoint.config());
  if (!config.ok()) {
    add_error(findings, "config.json", config.error());
    return {};
  }
  const auto weights = bind_linears(subject.checkpoint, config.value());
  if (!weights.ok()) {
    add_error(findings, "tensors", weights.error());
    return {};
  }
  check_key_set(subject, weights.value(), findings);
  if (depth == VerifyDepth::headers) return {};
  TRY(check_tied_head(subject.checkpoint, config.value(), weights.value(), findings));
  return check_fused_groups(subject, weights.value(), findings);
}

/// Reads every tensor, and compares it with its hash if there is one.
Result<Scanned> read_all(const Checkpoint& checkpoint, const std::vector<StoredModule>& modules,
                         const VerifyOptions& options, VerifyReport& report) {
  const KnownHashes known = find_hashes(checkpoint.folder(), report.findings);
  report.hashed = known.state;
  const bool compare = known.state == VerifyReport::Hashed::compared;
  Scanned scanned =
      TRY(scan_all(checkpoint, modules, compare ? Hashing::yes : Hashing::no, options));
  if (compare) check_hashes(checkpoint, known.hashes, scanned.hashes, report.findings);
  return Result<Scanned>(std::move(scanned));
}

/// The checks of values that were read.
Result<void> check_read(const VerifySubject& subject, Findings& findings) {
  check_values(subject, findings);
  TRY(check_scales(subject, findings));
  TRY(check_scale_agreement(subject, findings));
  check_code_ranges(subject, findings);
  return {};
}

}  // namespace

int64_t VerifyReport::count(Severity severity) const {
  return std::ranges::count(findings, severity, &Finding::severity);
}

Result<VerifyReport> verify_checkpoint(const std::filesystem::path& folder,
                                       const VerifyOptions& options) {
  VerifyReport report;
  check_decoder(report.findings);
  const auto opened = Checkpoint::open(folder);
  if (!opened.ok()) {
    std::error_code failure;
    if (!std::filesystem::is_directory(folder, failure)) return opened.error();
    add_error(report.findings, folder.filename().string(), opened.error());
    return report;
  }
  const Checkpoint& checkpoint = opened.value();
  const auto declared = QuantConfig::read(checkpoint);
  if (!declared.ok()) add_error(report.findings, "config.json", declared.error());
  const QuantConfig none;
  const QuantConfig& declaration = declared.ok() ? declared.value() : none;
  const std::vector<StoredModule> modules = stored_modules(checkpoint, declaration);
  for (const auto& entry : checkpoint.entries()) report.bytes += entry.bytes;
  report.tensors = static_cast<int64_t>(checkpoint.entries().size());
  report.quantized_modules = std::ranges::count_if(modules, &StoredModule::quantized);
  const bool read = options.depth == VerifyDepth::all;
  Scanned scanned;
  if (read) scanned = TRY(read_all(checkpoint, modules, options, report));
  const VerifySubject subject = {checkpoint, declaration, modules, scanned.facts};
  if (declared.ok()) {
    TRY(check_model(subject, options.depth, report.findings));
    check_declaration(subject, report.findings);
    check_declared_numbers(checkpoint, report.findings);
  }
  if (read) TRY(check_read(subject, report.findings));
  check_companions(checkpoint, report.findings);
  return report;
}

}  // namespace nibble
