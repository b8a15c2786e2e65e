// The file is one JSON document: {"schema":1,"proofs":[{...}]}, the newest first.
#include "backend/cuda/proof/proof_memory.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/json.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using cuda::Fp4Proof;

constexpr uint64_t kBytesMax = 64 << 10;
constexpr size_t kKept = 8;
constexpr int64_t kSchema = 1;

std::string_view way_name(Fp4Products way) {
  return way == Fp4Products::instruction ? "instruction" : "software";
}

Json entry_of(const ProofSubject& subject, Fp4Proof proof) {
  return json_object({{"card", subject.card},
                      {"driver", subject.driver},
                      {"program", subject.program},
                      {"products", way_name(subject.way)},
                      {"equal", proof == Fp4Proof::equal}});
}

bool has_text(const Json& entry, std::string_view key, std::string_view text) {
  const Json* member = entry.find(key);
  return member != nullptr && member->is_string() && member->as_string() == text;
}

bool is_of(const Json& entry, const ProofSubject& subject) {
  return has_text(entry, "card", subject.card) && has_text(entry, "driver", subject.driver) &&
         has_text(entry, "program", subject.program) &&
         has_text(entry, "products", way_name(subject.way));
}

/// The entries of a sound file; none of any other.
Json::Array entries_of(const fs::path& file) {
  const auto text = read_text_file(file, kBytesMax);
  if (!text.ok()) return {};
  const auto document = parse_json(text.value(), file.string());
  if (!document.ok()) return {};
  const Json* schema = document.value().find("schema");
  const Json* proofs = document.value().find("proofs");
  if (schema == nullptr || !schema->is_int() || schema->as_int() != kSchema || proofs == nullptr ||
      !proofs->is_array())
    return {};
  return proofs->as_array();
}

/// Appends the build ID among the notes in [at, end), if there is one.
void take_note(const char* at, const char* end, std::string& to) {
  constexpr std::string_view kOwner("GNU", 4);
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (end - at >= static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t bytes = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (static_cast<size_t>(end - at) < bytes) return;
    const char* name = at + sizeof note;
    const std::string_view id(name + padded(note.n_namesz), note.n_descsz);
    at += bytes;
    if (note.n_type != NT_GNU_BUILD_ID || std::string_view(name, note.n_namesz) != kOwner) continue;
    constexpr char kDigits[] = "0123456789abcdef";
    for (const char byte : id) {
      to += kDigits[static_cast<uint8_t>(byte) >> 4];
      to += kDigits[static_cast<uint8_t>(byte) & 15U];
    }
    return;
  }
}

/// Sees the first object alone, which is the program.
int take_build_id(dl_phdr_info* object, size_t, void* to) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
    take_note(begin, begin + part.p_memsz, *static_cast<std::string*>(to));
  }
  return 1;
}

std::string failed_words(const std::string& why, const std::string& advice) {
  return concat("this card's products of 4-bit codes are not those that the program computes (",
                why, "): the weight-only kernels run instead; ", advice, "\n");
}

}  // namespace

std::optional<Fp4Proof> remembered_proof(const fs::path& file, const ProofSubject& subject) {
  if (file.empty()) return std::nullopt;
  for (const Json& entry : entries_of(file)) {
    const Json* equal = entry.find("equal");
    if (equal == nullptr || !equal->is_bool() || !is_of(entry, subject)) continue;
    return equal->as_bool() ? Fp4Proof::equal : Fp4Proof::different;
  }
  return std::nullopt;
}

Result<void> remember_proof(const fs::path& file, const ProofSubject& subject, Fp4Proof proof) {
  Json::Array kept = {entry_of(subject, proof)};
  for (Json& entry : entries_of(file))
    if (kept.size() < kKept && entry.is_object() && !is_of(entry, subject))
      kept.push_back(std::move(entry));
  std::error_code failure;
  fs::create_directories(file.parent_path(), failure);
  if (failure)
    return make_error(ErrorCode::io, {.what = file.parent_path().string(),
                                      .expected = "a folder that can be made",
                                      .found = failure.message()});
  return write_file_atomically(
      file, json_object({{"schema", kSchema}, {"proofs", std::move(kept)}}).dump_pretty());
}

ProofOutcome prove_products(const fs::path& file, const ProofSubject& subject,
                            const std::function<Result<Fp4HarnessResult>()>& harness) {
  if (const auto known = remembered_proof(file, subject)) {
    if (*known == Fp4Proof::equal) return {.proof = *known};
    return {.proof = *known,
            .notice = failed_words(concat("remembered in ", file.string()),
                                   "nibble doctor --receipt tries the card again")};
  }
  const auto result = harness();
  if (!result.ok())
    return {.notice = concat("products of 4-bit codes were not compared, so the weight-only "
                             "kernels run: ",
                             result.error().message, "\n")};
  const bool equal = result.value().equal();
  ProofOutcome outcome{.proof = equal ? Fp4Proof::equal : Fp4Proof::different};
  if (!equal)
    outcome.notice = failed_words(result.value().text(),
                                  "please report it with the file that nibble doctor --receipt "
                                  "writes");
  const Result<void> kept =
      file.empty() ? Result<void>() : remember_proof(file, subject, outcome.proof);
  if (!kept.ok())
    outcome.notice += concat(
        "the comparison of products of 4-bit codes is made again at the next "
        "start: ",
        kept.error().message, "\n");
  return outcome;
}

ProofOutcome receipt_proof(const fs::path& file, const ProofSubject& subject) {
  const auto known = remembered_proof(file, subject);
  if (!known)
    return {.notice =
                "this card's products of 4-bit codes are off until nibble doctor --receipt "
                "has passed on this machine: the weight-only kernels run\n"};
  if (*known == Fp4Proof::equal) return {.proof = *known};
  return {.proof = *known,
          .notice = failed_words(concat("a receipt, remembered in ", file.string()),
                                 "nibble doctor --receipt tries the card again")};
}

std::string Fp4HarnessResult::text() const {
  if (equal()) return concat(cases, " fragments, every sum as computed");
  return concat(different, " sums of ", cases, " fragments differ, the first in fragment ",
                first_case);
}

std::string running_program() {
  std::string id;
  ::dl_iterate_phdr(take_build_id, &id);
  if (!id.empty()) return concat("build ", id);
  struct stat facts = {};
  if (::stat("/proc/self/exe", &facts) != 0) return {};
  return concat(facts.st_size, " bytes, ", facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec);
}

}  // namespace nibble
