// Where the bytes of a file of the hub lie, and the asking again when a signed address expires.
#pragma once

#include <mutex>
#include <string>

#include "hub/hub_session.h"

namespace nibble {

/// Where the bytes of a file are, by HEAD /NAME/resolve/COMMIT/PATH.
struct BlobPlace {
  std::string etag;    // the name of the file in the cache
  std::string commit;  // empty: the server does not say
  std::string url;     // of the bytes; signed, so it expires
  uint64_t bytes = 0;
};

/// Asks where `url` lies. Errors: those of HubSession::call; corrupt for a reply without ETag or
/// size.
Result<BlobPlace> find_blob(const HubSession& session, HubConnection& connection,
                            const std::string& url);

/// The address of the bytes, shared by the connections of one file.
class SignedPlace {
 public:
  /// `url` is what find_blob takes.
  SignedPlace(const HubSession& session, std::string url, BlobPlace place)
      : session_(session), url_(std::move(url)), place_(std::move(place)) {}

  /// Where the bytes are now.
  std::string address();
  /// Asks the hub anew, unless another connection has done so since `old` was read. Errors: those
  /// of find_blob; corrupt where the file has changed.
  Result<void> renew(HubConnection& connection, const std::string& old);

 private:
  const HubSession& session_;
  std::string url_;
  std::mutex mutex_;
  BlobPlace place_;
};

}  // namespace nibble
