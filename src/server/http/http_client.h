// One request of another server, over plain HTTP: for commands that ask a running server. Not for
// the server's own thread: it waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/http_url.h"
#include "base/result.h"
#include "server/http/http.h"

namespace nibble {

struct HttpClientLimits {
  std::chrono::milliseconds wait{5000};  // for all of it
  uint64_t body_bytes_max = uint64_t{16} << 20;
};
/// Sends `request` (whose path counts, not the URL's) and waits for the answer, whatever its
/// status. Errors: io, with what the system says; a longer answer, or a longer wait.
Result<HttpResponse> http_send(const HttpUrl& url, const HttpRequest& request,
                               const HttpClientLimits& limits = {});

}  // namespace nibble
