// Against the examples of FIPS 180-4.
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Sha256, ExamplesInHexAndBytes) {
  EXPECT_EQ(sha256_hex("abc"), kAbc);
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.add("a");
  hash.add("bc");
  const auto bytes = hash.bytes();
  EXPECT_EQ(bytes.front(), std::byte{0xBA});
  EXPECT_EQ(bytes[15], std::byte{0x23});
  EXPECT_EQ(bytes.back(), std::byte{0xAD});
}

TEST(Sha256, DigitsAreToldApart) {
  EXPECT_TRUE(is_sha256_hex(kAbc));
  EXPECT_FALSE(is_sha256_hex(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256_hex(std::string(63, 'a')));
}

}  // namespace
}  // namespace nibble
