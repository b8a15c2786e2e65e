// OpenSSL's, which uses the CPU's own instructions for it.
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace nibble {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
}

void Sha256::add(std::span<const std::byte> data) {
  CHECK(EVP_DigestUpdate(context_.get(), data.data(), data.size()) == 1, data.size(), " bytes");
}

std::array<std::byte, 32> Sha256::bytes() {
  std::array<std::byte, 32> digest;
  CHECK(EVP_MD_CTX_get_size(context_.get()) == std::ssize(digest));
  CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                           nullptr) == 1,
        "the digest was taken before");
  return digest;
}

std::string Sha256::hex() {
  std::string out;
  for (const std::byte byte : bytes())
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> shift & 15];
  return out;
}

bool is_sha256_hex(std::string_view text) {
  constexpr size_t kDigits = 64;
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

}  // namespace nibble
