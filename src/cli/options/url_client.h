// UrlClient: one request at a time of an HTTP server, over http or https, by libcurl. Not for
// files: whole bodies are held in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace nibble {

/// Where a request goes, and what stands above it.
struct UrlAddress {
  std::string base;  // no slash at its end, no /v1
  std::string api_key;
};

struct UrlExchange {
  int status = 0;
  std::string body;  // or the reason why there is no status
  int64_t wait_seconds = 0;
};

class UrlClient {
 public:
  /// Both must outlive it. A request ends early when `stopping` is set.
  UrlClient(const UrlAddress& address, const std::atomic<bool>& stopping);
  ~UrlClient();
  UrlClient(const UrlClient&) = delete;
  UrlClient& operator=(const UrlClient&) = delete;

  /// Sends a JSON body by POST; an empty one by GET. Redirections are not followed, so the key goes
  /// nowhere else.
  UrlExchange exchange(const std::string& path, const std::string& body);

 private:
  const UrlAddress& address_;
  const std::atomic<bool>& stopping_;
  void* handle_;  // CURL
};

}  // namespace nibble
