// Requests to the hub and to where it redirects: the token, redirects, waiting and trying again,
// errors in words. What the replies mean is hub_replies.h.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "hub/hub_connection.h"

namespace nibble {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";
  std::string token;               // empty: none. It goes to the origin of the endpoint alone
  int64_t stall_seconds = 10;      // without a byte, until a transfer counts as broken
  int attempts_max = 6;            // in a row without any progress
  int64_t wait_seconds_max = 300;  // longest Retry-After that is waited for
  std::string certificates;        // HubLimits::certificates
  std::function<bool()> stop;      // true: the user wants the work to end
  std::function<void(const std::string&)> tell;  // a line for the user, from any thread
};

/// The redirects that HubSession::exchange follows.
enum class Redirects : uint8_t {
  on_hub,  // within the endpoint; a redirect to elsewhere is the reply
  all,     // everywhere, without the token where it does not belong
};

/// May be used by many threads at once, each with a connection of its own.
class HubSession {
 public:
  /// Errors: invalid_argument for an endpoint that is no address.
  static Result<HubSession> open(HubSettings settings);

  const HubSettings& settings() const { return settings_; }
  /// "ENDPOINT/PATH".
  std::string url(std::string_view path) const { return concat(settings_.endpoint, "/", path); }
  /// True for an address of the endpoint's origin.
  bool is_hub(const std::string& url) const;

  /// One attempt with its redirects. Errors: those of resolved_url, and corrupt for too many.
  Result<HubReply> exchange(HubConnection& connection, HubRequest request,
                            Redirects redirects) const;

  /// exchange until it succeeds. Errors: those of error_of.
  Result<HubReply> call(HubConnection& connection, const HubRequest& request,
                        Redirects redirects) const;

  /// True if another attempt may go better.
  static bool may_retry(const HubReply& reply);
  /// Waits before attempt number `attempt` (from 1): as long as Retry-After says, else 1, 2, 4, 8
  /// seconds. Errors: cancelled; io where Retry-After is longer than the limit.
  Result<void> wait(const HubReply& reply, int attempt, std::string_view what) const;
  /// The failure of a reply, in one line.
  Error error_of(const HubReply& reply, const std::string& url) const;

 private:
  explicit HubSession(HubSettings settings) : settings_(std::move(settings)) {}
  HubSettings settings_;
  std::string origin_;
};

}  // namespace nibble
