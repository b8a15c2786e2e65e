// quantize_hashes.json: the SHA-256 of every tensor and file that a run wrote, so that `verify` can
// name what changed. SHA-256 because `sha256sum` and the hub compute it too. Writing, reading, and
// the hashes themselves; comparing them with a folder is verify/verify_hashes.cc.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint_writer.h"

namespace nibble {

inline constexpr std::string_view kHashesFile = "quantize_hashes.json";
/// Larger files of hashes are refused: a tensor takes some 170 bytes.
inline constexpr size_t kHashesBytesMax = size_t{256} << 20;

/// By name: 64 lower-case hexadecimal digits.
using Hashes = std::map<std::string, std::string, std::less<>>;

struct ContentHashes {
  Hashes tensors;  // of their bytes
  /// The parts of weight files before the tensors. With the tensors, which lie there without holes,
  /// they cover these files to the last byte, and no file is read for them.
  Hashes heads;
  Hashes files;  // all others, but this file's own and README.md, which people edit

  std::string text() const;
  /// Reads what text() wrote. Errors: corrupt, not_found name the key.
  static Result<ContentHashes> parse(const Json& json);
};

/// The hashes of tensors that are being written, piece by piece. Different tensors from any thread.
class TensorHasher {
 public:
  void add(std::string_view tensor, std::span<const std::byte> piece);
  /// The hash of a tensor, all pieces of which were added. It is kept for take() too.
  std::string finish(std::string_view tensor);
  /// Keeps the hash of a tensor that is not written by this run.
  void keep(std::string_view tensor, std::string hash);
  /// All that finish() and keep() know.
  Hashes take() { return std::move(finished_); }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Sha256>, std::less<>> begun_;
  Hashes finished_;
};

std::string hash_of(std::span<const std::byte> bytes);
/// Errors: io.
Result<std::string> hash_of_file(const std::filesystem::path& file);
/// Covers the length prefix and the JSON of a safetensors file. Errors: io, corrupt.
Result<std::string> hash_of_head(const std::filesystem::path& file);

/// The hashes beside a checkpoint; nothing where there are none. Errors: io, corrupt, not_found.
Result<std::optional<ContentHashes>> read_hashes(const std::filesystem::path& folder);

/// Adds quantize_hashes.json: the hashes of these tensors and of all files that the writer has
/// written so far or will write when it is finished with `config`. Errors: io, no_space.
Result<void> add_hashes(CheckpointWriter& writer, Hashes tensors, const Json& config);

}  // namespace nibble
