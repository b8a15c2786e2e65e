// Decides who shares cached prefixes with whom: the salt of a request is a keyed hash of its API
// key and of the salt that the client chose. It is the same in every run, since prefixes on disk
// outlive a process.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace nibble {

/// SipHash-2-4 of Aumasson and Bernstein (INDOCRYPT 2012): `key` as two little-endian words.
uint64_t sip_hash(std::array<uint64_t, 2> key, std::string_view bytes);

/// A number for an API key; 0 for none.
uint64_t tenant_of(std::string_view api_key);

/// CacheRequest::salt. 0 for no tenant and no salt. Without the tenant's key nobody can aim at it.
uint64_t cache_salt_of(uint64_t tenant, std::string_view client_salt);

}  // namespace nibble
