// The reply to HEAD says all: a redirect to elsewhere carries the facts of the file itself.
#include "hub/blob_place.h"

#include "hub/hub_replies.h"

namespace nibble {

Result<BlobPlace> find_blob(const HubSession& session, HubConnection& connection,
                            const std::string& url) {
  const HubRequest request{.method = "HEAD", .url = url};
  const HubReply reply = TRY(session.call(connection, request, Redirects::on_hub));
  const bool elsewhere = reply.status >= 300;
  BlobPlace place;
  place.url = elsewhere ? std::string(reply.header("location")) : url;
  place.commit = reply.header("x-repo-commit");
  const std::string_view linked = reply.header("x-linked-etag");
  place.etag = TRY(parse_etag(linked.empty() ? reply.header("etag") : linked));
  std::string_view size = reply.header("x-linked-size");
  if (size.empty() && !elsewhere) size = reply.header("content-length");
  const auto bytes = parse_byte_count(size);
  if (!bytes)
    return make_error(ErrorCode::corrupt,
                      {.what = url, .expected = "its size in bytes", .found = "none in the reply"});
  place.bytes = *bytes;
  return place;
}

std::string SignedPlace::address() {
  const std::lock_guard lock(mutex_);
  return place_.url;
}

Result<void> SignedPlace::renew(HubConnection& connection, const std::string& old) {
  const std::lock_guard lock(mutex_);
  if (place_.url != old) return {};
  const BlobPlace place = TRY(find_blob(session_, connection, url_));
  if (place.etag != place_.etag || place.bytes != place_.bytes)
    return make_error(ErrorCode::corrupt,
                      {.what = url_,
                       .expected = concat("the file ", place_.etag, " as before"),
                       .found = place.etag,
                       .advice = "the hub has changed it meanwhile: run the same command again"});
  place_ = place;
  return {};
}

}  // namespace nibble
