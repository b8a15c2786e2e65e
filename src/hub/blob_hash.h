// The two hashes that name a file on the hub: SHA-256 of large files, git's SHA-1 of small ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

enum class BlobHashKind : uint8_t {
  sha256,    // of the bytes: 64 hexadecimal digits
  git_sha1,  // of "blob SIZE\0" and the bytes: 40 hexadecimal digits
};

/// The kind of hash that `text` can be by its digits; nothing: it is none.
std::optional<BlobHashKind> hash_kind_of(std::string_view text);

class BlobHasher {
 public:
  /// `bytes` is the size of the whole file, which git hashes first.
  BlobHasher(BlobHashKind kind, uint64_t bytes);
  ~BlobHasher();
  BlobHasher(const BlobHasher&) = delete;
  BlobHasher& operator=(const BlobHasher&) = delete;

  void add(std::span<const std::byte> data);
  /// In lower-case digits; nothing may be added afterwards.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nibble
