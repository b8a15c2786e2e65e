// SipHash-2-4, written from the paper's section 2.
#include "server/request/cache_salt.h"

#include <bit>

namespace nibble {

namespace {

constexpr std::array<uint64_t, 2> kTenantKey = {0x6e6962626c655f74, 0x656e616e745f6b65};
constexpr uint64_t kSaltKey = 0x63616368655f7361;

struct SipState {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void word(uint64_t m) {
    v3 ^= m;
    round();
    round();
    v0 ^= m;
  }
};

}  // namespace

uint64_t sip_hash(std::array<uint64_t, 2> key, std::string_view bytes) {
  SipState state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                 key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
    if (i % 8 == 7) {
      state.word(word);
      word = 0;
    }
  }
  state.word(word | uint64_t{bytes.size()} << 56);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

uint64_t tenant_of(std::string_view api_key) {
  return api_key.empty() ? 0 : sip_hash(kTenantKey, api_key);
}

uint64_t cache_salt_of(uint64_t tenant, std::string_view client_salt) {
  if (tenant == 0 && client_salt.empty()) return 0;
  return sip_hash({tenant, kSaltKey}, client_salt);
}

}  // namespace nibble
