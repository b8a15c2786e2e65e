// For tests: certificates and their keys as PEM files, made on the spot.
#pragma once

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <string>

namespace nibble::testing {

struct PemPair {
  std::string certificate, key;  // paths
};

inline X509* read_certificate(const std::string& path) {
  FILE* in = std::fopen(path.c_str(), "r");
  X509* certificate = PEM_read_X509(in, nullptr, nullptr, nullptr);
  std::fclose(in);
  return certificate;
}

inline EVP_PKEY* read_private_key(const std::string& path) {
  FILE* in = std::fopen(path.c_str(), "r");
  EVP_PKEY* key = PEM_read_PrivateKey(in, nullptr, nullptr, nullptr);
  std::fclose(in);
  return key;
}

inline void add_extension(X509* certificate, int kind, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, const_cast<char*>(value));
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

inline void write_pair(const PemPair& files, X509* certificate, EVP_PKEY* key) {
  FILE* out = std::fopen(files.certificate.c_str(), "w");
  PEM_write_X509(out, certificate);
  std::fclose(out);
  out = std::fopen(files.key.c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
}

/// Good for an hour, for `names` ("DNS:localhost,IP:127.0.0.1"; nullptr: none), signed by `issuer`
/// or, without one, by itself.
inline void write_certificate(const PemPair& files, const char* names = nullptr,
                              const PemPair* issuer = nullptr) {
  static int serial = 0;
  EVP_PKEY* pair = EVP_EC_gen("P-256");
  X509* x509 = X509_new();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, pair);
  const std::string common = std::to_string(serial);  // names of authorities differ
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
  if (names != nullptr) add_extension(x509, NID_subject_alt_name, names);
  if (issuer == nullptr) add_extension(x509, NID_basic_constraints, "critical,CA:TRUE");
  X509* parent = issuer == nullptr ? nullptr : read_certificate(issuer->certificate);
  EVP_PKEY* signer = issuer == nullptr ? nullptr : read_private_key(issuer->key);
  X509_set_issuer_name(x509, X509_get_subject_name(parent == nullptr ? x509 : parent));
  X509_sign(x509, signer == nullptr ? pair : signer, EVP_sha256());
  write_pair(files, x509, pair);
  X509_free(parent);
  EVP_PKEY_free(signer);
  X509_free(x509);
  EVP_PKEY_free(pair);
}

}  // namespace nibble::testing
