// SHA-256 (FIPS 180-4), to tell files and settings apart and to compare keys without keeping them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's

namespace nibble {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> data);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  /// Nothing may be added afterwards, and one of these two is called once.
  std::array<std::byte, 32> bytes();
  /// The same as 64 lower-case hex digits.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(std::string_view text);
/// True for 64 lower-case hexadecimal digits.
bool is_sha256_hex(std::string_view text);

}  // namespace nibble
