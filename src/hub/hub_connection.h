// One HTTP(S) connection through libcurl: a request, a reply, nothing more. It follows no redirect,
// repeats nothing and knows no tokens: that is hub_session.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace nibble {

/// How a request ended.
enum class HubEnd : uint8_t {
  whole,      // the reply is complete
  network,    // no reply, or not all of it: another attempt may go better
  stalled,    // no byte for as long as HubLimits says
  stopped,    // HubRequest::receive wanted no more
  cancelled,  // HubLimits::stop was true
  too_large,  // the reply exceeds a limit
  invalid,    // the address, the certificate or the protocol is wrong: no attempt will go better
};

struct HubReply {
  HubEnd end = HubEnd::network;
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // by lower-case names
  std::string body;                            // unless HubRequest::receive took it
  std::string trouble;                         // libcurl's words if `end` is a failure

  /// A header by its lower-case name; empty: there is none.
  std::string_view header(std::string_view name) const;
};

struct HubLimits {
  int64_t stall_seconds = 10;
  std::string certificates;    // file of trusted authorities; empty: as libcurl was built
  std::function<bool()> stop;  // asked often, from the thread of the request; may be empty
};

struct HubRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string body = {};                  // of a POST
  /// A PUT sends `upload_bytes` of the file from `upload_offset`.
  const File* upload = nullptr;
  uint64_t upload_offset = 0;
  uint64_t upload_bytes = 0;
  /// Takes the bytes of a reply with status 2xx as they come; false: enough. Else they are
  /// HubReply::body, up to `body_bytes_max`.
  std::function<bool(const HubReply&, std::span<const std::byte>)> receive = {};
  uint64_t body_bytes_max = uint64_t{1} << 20;
};

class HubConnection {
 public:
  HubConnection();
  ~HubConnection();
  HubConnection(HubConnection&&) noexcept;

  HubReply send(const HubRequest& request, const HubLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nibble
