// Quotas: what each limited key has used: requests and tokens of the last minute, requests at once.
// Buckets that refill evenly, so that nobody waits for the minute to turn. One thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/clients/keys.h"
#include "server/http/api_error.h"
#include "server/http/http.h"

namespace nibble {

class Quotas {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// One more request of this key, until release(). Errors: 429 with the seconds to wait.
  std::optional<ApiError> begin(const KeyRules& key, Time now);
  void release(const KeyRules& key);
  /// Takes the tokens of a prompt. A prompt larger than a minute's tokens needs a full bucket.
  /// Errors: 429.
  std::optional<ApiError> take_tokens(const KeyRules& key, int64_t tokens, Time now);
  /// Charges the tokens of an answer; may leave a debt, which the next ones wait for.
  void charge_tokens(const KeyRules& key, int64_t tokens, Time now);

  /// x-ratelimit-limit-, -remaining- and -reset-requests and -tokens, of those that are limited.
  std::vector<HttpHeader> headers(const KeyRules& key, Time now);

 private:
  struct Bucket {
    /// The used part of a minute's worth, never negative; more than all of it is a debt.
    double used = 0.0;
    Time at = {};
    void refill(double per_minute, Time now);
  };
  struct Usage {
    int32_t running = 0;
    Bucket requests, tokens;
  };
  std::map<std::string, Usage, std::less<>> usage_;  // by the key's name: outlives a reload
};

/// "1.5s", "2m3s": as OpenAI's reset headers have it.
std::string reset_text(double seconds);

}  // namespace nibble
