// OpenSSL's encoder.
#include "hub/base64.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace nibble {

std::string base64(std::string_view bytes) {
  constexpr size_t kBytesMax = size_t{1} << 30;
  CHECK(bytes.size() <= kBytesMax, bytes.size());
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // it ends with a NUL
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

}  // namespace nibble
