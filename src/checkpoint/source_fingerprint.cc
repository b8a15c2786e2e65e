// Headers are covered by reading from the start of each file.
#include "checkpoint/source_fingerprint.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"

namespace nibble {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;
constexpr uint64_t kPieces = 16;

Result<void> add_file(const std::filesystem::path& path, Sha256& hash) {
  std::error_code failure;
  const auto changed = std::filesystem::last_write_time(path, failure);
  if (failure) return Error{ErrorCode::io, concat(path.string(), ": ", failure.message())};
  const File file = TRY(File::open_read(path));
  const uint64_t size = TRY(file.size());
  hash.add(concat(path.filename().string(), "\n", size, "\n",
                  static_cast<int64_t>(changed.time_since_epoch().count()), "\n"));
  std::vector<std::byte> piece(std::min(kPieceBytes, size));
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t at = (size - piece.size()) / (kPieces - 1) * i;
    TRY(file.read_at(piece, at));
    hash.add(piece);
  }
  return {};
}

}  // namespace

Result<std::string> source_fingerprint(const Checkpoint& checkpoint) {
  Sha256 hash;
  hash.add(checkpoint.config().dump());
  for (const std::string& file : checkpoint.files())
    TRY(add_file(checkpoint.folder() / file, hash));
  return hash.hex();
}

}  // namespace nibble
