// A reply to a Range request is taken only if it is that range of that file.
#include "hub/remote_file.h"

#include "hub/hub_replies.h"

namespace nibble {
namespace {

Error too_large(const HubFile& file, uint64_t bytes_max) {
  return make_error(ErrorCode::corrupt, {.what = concat(file.path, " on the hub"),
                                         .expected = concat("at most ", bytes_max, " bytes"),
                                         .found = concat(file.content_bytes())});
}

Error no_ranges(const HubFile& file, FileRange range) {
  return make_error(
      ErrorCode::unsupported,
      {.what = concat(range.bytes, " bytes of ", file.path),
       .expected = "a server that sends a part of a file (status 206)",
       .found = "status 200, the whole file",
       .advice = "this mirror ignores Range headers: use another endpoint, or `nibble pull`"});
}

Result<void> check_range(const HubReply& reply, const HubFile& file, FileRange range) {
  const auto sent = parse_content_range(reply.header("content-range"));
  if (sent && sent->begin == range.begin && sent->end == range.begin + range.bytes &&
      sent->total == file.content_bytes() && reply.body.size() == range.bytes)
    return {};
  return make_error(ErrorCode::corrupt,
                    {.what = concat("part of ", file.path, " from the hub"),
                     .expected = concat("bytes ", range.begin, "-", range.begin + range.bytes - 1,
                                        "/", file.content_bytes()),
                     .found = concat("\"", reply.header("content-range").substr(0, 100), "\", ",
                                     reply.body.size(), " bytes")});
}

}  // namespace

Result<std::string> read_remote_file(const HubSession& session, HubConnection& connection,
                                     const HubRevision& revision, const HubFile& file,
                                     uint64_t bytes_max) {
  if (file.content_bytes() > bytes_max) return too_large(file, bytes_max);
  const HubRequest request{.url = file_url(session, revision, file.path),
                           .body_bytes_max = bytes_max};
  HubReply reply = TRY(session.call(connection, request, Redirects::all));
  return std::move(reply.body);
}

Result<std::string> read_remote_range(const HubSession& session, HubConnection& connection,
                                      const HubRevision& revision, const HubFile& file,
                                      FileRange range) {
  CHECK(range.bytes > 0 && range.begin + range.bytes <= file.content_bytes(), "range ", range.begin,
        " + ", range.bytes, " of ", file.path);
  const HubRequest request{
      .url = file_url(session, revision, file.path),
      .headers = {concat("Range: bytes=", range.begin, "-", range.begin + range.bytes - 1)},
      .body_bytes_max = range.bytes};
  for (int attempt = 1;; ++attempt) {
    HubReply reply = TRY(session.exchange(connection, request, Redirects::all));
    if (reply.status == 200) return no_ranges(file, range);
    if (reply.end == HubEnd::whole && reply.status == 206) {
      TRY(check_range(reply, file, range));
      return std::move(reply.body);
    }
    if (!HubSession::may_retry(reply) || attempt >= session.settings().attempts_max)
      return session.error_of(reply, request.url);
    TRY(session.wait(reply, attempt, file.path));
  }
}

}  // namespace nibble
