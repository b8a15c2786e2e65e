// The file is written without a tree of JSON in memory: large models have over 100,000 tensors.
#include "quantize/report/content_hashes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors_header.h"
#include "model/config/config_section.h"

namespace nibble {
namespace {

constexpr std::string_view kAlgorithm = "SHA-256";
constexpr size_t kPieceBytes = size_t{1} << 20;

void append_hashes(std::string& out, std::string_view key, const Hashes& hashes) {
  out += concat(",\n  \"", key, "\": {");
  const char* between = "\n    ";
  for (const auto& [name, hash] : hashes) {
    out += std::exchange(between, ",\n    ");
    append_json_string(out, name);
    out += concat(": \"", hash, "\"");
  }
  out += "\n  }";
}

Result<Hashes> hashes_of(const ConfigSection& root, std::string_view key) {
  const Json* object = root.find(key);
  if (object == nullptr) return root.missing(key, "an object of hashes");
  if (!object->is_object()) return root.wrong(key, "an object of hashes", *object);
  Hashes hashes;
  for (const auto& [name, hash] : object->as_object()) {
    const bool sound = hash.is_string() && is_sha256_hex(hash.as_string());
    if (!sound)
      return root.wrong(concat(key, ": ", quoted_name(name)), "64 hexadecimal digits", hash);
    hashes.emplace(name, hash.as_string());
  }
  return hashes;
}

/// The hash of the first `bytes` of a file.
Result<std::string> hash_of_start(const File& file, uint64_t bytes) {
  Sha256 hasher;
  std::vector<std::byte> piece(std::min<uint64_t>(kPieceBytes, bytes));
  for (uint64_t done = 0; done < bytes;) {
    const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), bytes - done));
    TRY(file.read_at(part, done));
    hasher.add(part);
    done += part.size();
  }
  return hasher.hex();
}

}  // namespace

std::string ContentHashes::text() const {
  std::string out = concat("{\n  \"algorithm\": \"", kAlgorithm, "\"");
  append_hashes(out, "files", files);
  append_hashes(out, "heads", heads);
  append_hashes(out, "tensors", tensors);
  return out + "\n}\n";
}

Result<ContentHashes> ContentHashes::parse(const Json& json) {
  const ConfigSection root(json, concat(kHashesFile, ": "));
  const std::string algorithm = TRY(root.text("algorithm"));
  if (algorithm != kAlgorithm) return root.wrong("algorithm", kAlgorithm, Json(algorithm));
  ContentHashes hashes;
  hashes.files = TRY(hashes_of(root, "files"));
  hashes.heads = TRY(hashes_of(root, "heads"));
  hashes.tensors = TRY(hashes_of(root, "tensors"));
  return hashes;
}

void TensorHasher::add(std::string_view tensor, std::span<const std::byte> piece) {
  Sha256* hasher = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& begun = begun_[std::string(tensor)];
    if (begun == nullptr) begun = std::make_unique<Sha256>();
    hasher = begun.get();
  }
  hasher->add(piece);
}

std::string TensorHasher::finish(std::string_view tensor) {
  const std::lock_guard lock(mutex_);
  const auto begun = begun_.find(tensor);
  std::string hash = begun == begun_.end() ? hash_of({}) : begun->second->hex();
  if (begun != begun_.end()) begun_.erase(begun);
  finished_.insert_or_assign(std::string(tensor), hash);
  return hash;
}

void TensorHasher::keep(std::string_view tensor, std::string hash) {
  const std::lock_guard lock(mutex_);
  finished_.insert_or_assign(std::string(tensor), std::move(hash));
}

std::string hash_of(std::span<const std::byte> bytes) {
  Sha256 hasher;
  hasher.add(bytes);
  return hasher.hex();
}

Result<std::string> hash_of_file(const std::filesystem::path& path) {
  const File file = TRY(File::open_read(path));
  return hash_of_start(file, TRY(file.size()));
}

Result<std::string> hash_of_head(const std::filesystem::path& path) {
  const File file = TRY(File::open_read(path));
  std::array<std::byte, kSafetensorsPrefixBytes> prefix = {};
  const uint64_t size = TRY(file.size());
  if (size >= prefix.size()) TRY(file.read_at(prefix, 0));
  const uint64_t json = TRY(safetensors_header_bytes(prefix, size, path.filename().string()));
  return hash_of_start(file, prefix.size() + json);
}

Result<std::optional<ContentHashes>> read_hashes(const std::filesystem::path& folder) {
  std::error_code failure;
  if (!std::filesystem::exists(folder / kHashesFile, failure))
    return std::optional<ContentHashes>();
  const std::string text = TRY(read_text_file(folder / kHashesFile, kHashesBytesMax));
  const Json json = TRY(parse_json(text, kHashesFile, {.bytes_max = kHashesBytesMax}));
  return std::optional(TRY(ContentHashes::parse(json)));
}

Result<void> add_hashes(CheckpointWriter& writer, Hashes tensors, const Json& config) {
  TRY(writer.write_index());
  ContentHashes hashes{.tensors = std::move(tensors), .heads = {}, .files = {}};
  for (const std::filesystem::path& file : writer.files()) {
    const std::string name = file.generic_string();
    if (name == "README.md" || name == kHashesFile) continue;
    if (file.extension() == ".safetensors")
      hashes.heads[name] = TRY(hash_of_head(writer.folder() / file));
    else
      hashes.files[name] = TRY(hash_of_file(writer.folder() / file));
  }
  const std::string text = config.dump_pretty();
  hashes.files["config.json"] = hash_of(std::as_bytes(std::span(text)));
  return writer.add_file(kHashesFile, hashes.text());
}

}  // namespace nibble
