// A folder against the hashes that quantize or convert wrote beside it. Tells what changed since,
// not whether it was right.
#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/safetensors_header.h"
#include "quantize/verify/verify_checks.h"

namespace nibble {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReport = "quantize_report.json";
constexpr uint64_t kReportBytesMax = uint64_t{256} << 20;
constexpr size_t kDigitsShown = 12;

void add_error(Findings& findings, std::string_view subject, std::string text) {
  findings.push_back({Severity::error, std::string(subject), std::move(text)});
}

/// The report of this program says where the hashes are.
VerifyReport::Hashed state_by_report(const fs::path& folder, Findings& findings) {
  const auto text = read_text_file(folder / kReport, kReportBytesMax);
  if (!text.ok()) return VerifyReport::Hashed::none;
  const auto report = parse_json(text.value(), kReport);
  if (!report.ok() || report.value().find("producer") == nullptr) return VerifyReport::Hashed::none;
  if (report.value().find("hashes") == nullptr) return VerifyReport::Hashed::not_kept;
  add_error(findings, kHashesFile,
            concat("is missing, but ", kReport,
                   " names it: fetch it again, as nothing else shows "
                   "what changed"));
  return VerifyReport::Hashed::none;
}

std::string changed_text(std::string_view expected, std::string_view found) {
  return concat("changed after it was written: expected SHA-256 ", expected.substr(0, kDigitsShown),
                "..., found ", found.substr(0, kDigitsShown), "...; fetch it again");
}

/// Names may come from anywhere: none may lead out of the folder.
bool is_inside(const fs::path& name) {
  if (name.empty() || name.is_absolute()) return false;
  return std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
}

void check_tensors(const Checkpoint& checkpoint, const Hashes& known, const Hashes& found,
                   Findings& findings) {
  for (const auto& [name, hash] : known) {
    const auto now = found.find(name);
    if (now == found.end())
      add_error(findings, quoted_name(name), concat("is missing, but ", kHashesFile, " lists it"));
    else if (now->second != hash)
      add_error(findings, name, changed_text(hash, now->second));
  }
  for (const TensorEntry& entry : checkpoint.entries())
    if (!known.contains(entry.name))
      add_error(
          findings, entry.name,
          concat("was added after the checkpoint was written: ", kHashesFile, " does not list it"));
}

using HashFile = Result<std::string> (*)(const fs::path&);

void check_files(const fs::path& folder, const Hashes& known, HashFile hash_file,
                 Findings& findings) {
  for (const auto& [name, hash] : known) {
    std::error_code failure;
    if (!is_inside(name)) {
      add_error(findings, kHashesFile,
                concat("expected names of files in the folder, found ", quoted_name(name)));
    } else if (!fs::is_regular_file(folder / name, failure)) {
      add_error(findings, quoted_name(name), concat("is missing, but ", kHashesFile, " lists it"));
    } else if (const auto now = hash_file(folder / name); !now.ok()) {
      add_error(findings, quoted_name(name), now.error().message);
    } else if (now.value() != hash) {
      add_error(findings, name, changed_text(hash, now.value()));
    }
  }
}

/// Files that change what engines do, and that were not there.
void check_new_files(const fs::path& folder, const Hashes& known, Findings& findings) {
  const auto files = companion_files(folder);
  if (!files.ok()) return;
  for (const fs::path& file : files.value()) {
    const std::string name = file.generic_string();
    const fs::path kind = file.extension();
    if (known.contains(name) || name == kHashesFile) continue;
    if (kind != ".json" && kind != ".jinja" && kind != ".model") continue;
    findings.push_back({Severity::warning, quoted_name(name),
                        "was added after the checkpoint was written; engines may read it"});
  }
}

}  // namespace

KnownHashes find_hashes(const fs::path& folder, Findings& findings) {
  auto read = read_hashes(folder);
  if (!read.ok()) {
    add_error(findings, kHashesFile, read.error().message);
    return {};
  }
  if (!read.value()) return {.state = state_by_report(folder, findings)};
  return {.state = VerifyReport::Hashed::compared, .hashes = std::move(*read.value())};
}

void check_hashes(const Checkpoint& checkpoint, const ContentHashes& known, const Hashes& found,
                  Findings& findings) {
  check_tensors(checkpoint, known.tensors, found, findings);
  check_files(checkpoint.folder(), known.heads, hash_of_head, findings);
  check_files(checkpoint.folder(), known.files, hash_of_file, findings);
  check_new_files(checkpoint.folder(), known.files, findings);
}

}  // namespace nibble
