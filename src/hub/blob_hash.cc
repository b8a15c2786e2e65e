// OpenSSL's hashes, which use the instructions of the CPU.
#include "hub/blob_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace nibble {

struct BlobHasher::State {
  EVP_MD_CTX* context = nullptr;
};

std::optional<BlobHashKind> hash_kind_of(std::string_view text) {
  const bool hex = std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (hex && text.size() == 64) return BlobHashKind::sha256;
  if (hex && text.size() == 40) return BlobHashKind::git_sha1;
  return std::nullopt;
}

BlobHasher::BlobHasher(BlobHashKind kind, uint64_t bytes) : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  const bool started =
      EVP_DigestInit_ex(state_->context, kind == BlobHashKind::sha256 ? EVP_sha256() : EVP_sha1(),
                        nullptr) == 1;
  CHECK(started, "OpenSSL has no such hash");
  if (kind == BlobHashKind::sha256) return;
  std::string head = concat("blob ", bytes);
  head.push_back('\0');
  add(std::as_bytes(std::span(head)));
}

BlobHasher::~BlobHasher() { EVP_MD_CTX_free(state_->context); }

void BlobHasher::add(std::span<const std::byte> data) {
  CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1, data.size());
}

std::string BlobHasher::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  std::string out;
  for (unsigned i = 0; i < size; ++i)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[digest[i] >> shift & 15];
  return out;
}

}  // namespace nibble
