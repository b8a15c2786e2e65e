// Each connection is a thread that takes segments from the window until none is left. A signed
// address that expires is asked for again by whoever notices first.
#include "hub/blob_download.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "hub/hub_replies.h"
#include "hub/segment_window.h"

namespace nibble {
namespace {

constexpr int kSegmentsAhead = 2;  // of each connection, in memory

/// One request for the rest of a segment.
struct RangeRequest {
  SegmentWindow& window;
  FileSegment& segment;
  const BlobDownload& download;
  uint64_t skip = 0;  // bytes of a reply that ignores the range
  bool begun = false;
  std::optional<Error> error = {};

  Error not_asked_for(std::string_view found) const {
    return make_error(ErrorCode::corrupt, {.what = download.name,
                                           .expected = concat("bytes from ", segment.position(),
                                                              " of ", download.place.bytes),
                                           .found = found});
  }

  Result<void> begin(const HubReply& reply) {
    begun = true;
    const std::string_view encoding = reply.header("content-encoding");
    if (!encoding.empty() && encoding != "identity")
      return not_asked_for(concat("them encoded as ", encoding));
    if (reply.status == 206) {
      const auto range = parse_content_range(reply.header("content-range"));
      if (!range || range->begin != segment.position() || range->total != download.place.bytes)
        return not_asked_for(concat("\"", reply.header("content-range"), "\""));
      window.ranges_work();
      return {};
    }
    const auto bytes = parse_byte_count(reply.header("content-length"));
    if (bytes && *bytes != download.place.bytes) return not_asked_for(concat(*bytes, " bytes"));
    skip = segment.position();
    window.ranges_absent(segment);
    return {};
  }

  Result<void> take(const HubReply& reply, std::span<const std::byte> bytes) {
    if (!begun) TRY(begin(reply));
    const auto skipped = std::min<uint64_t>(skip, bytes.size());
    skip -= skipped;
    const uint64_t before = segment.received;
    TRY(window.add(segment, bytes.subspan(skipped)));
    if (download.came && segment.received > before)
      download.came(static_cast<int64_t>(segment.received - before));
    return {};
  }

  bool receive(const HubReply& reply, std::span<const std::byte> bytes) {
    if (window.failed()) return false;
    if (auto taken = take(reply, bytes); !taken.ok()) {
      error = taken.error();
      return false;
    }
    return !segment.complete();
  }
};

/// Statuses of a signed address that has expired.
bool is_expired(int status) {
  return status == 401 || status == 403 || status == 404 || status == 410;
}

/// The server knows no such range: the file there is another one, or what is here is none of it.
constexpr int kNoSuchRange = 416;

class BlobFetcher {
 public:
  BlobFetcher(const HubSession& session, const BlobDownload& download, SegmentWindow& window)
      : session_(session),
        download_(download),
        window_(window),
        place_(session, download.url, download.place) {}

  bool range_refused() const { return range_refused_; }

  /// The work of one thread.
  void run() {
    HubConnection connection;
    while (auto segment = window_.take())
      if (auto fetched = fetch(connection, *segment); !fetched.ok()) {
        window_.fail(fetched.error());
        return;
      }
  }

 private:
  Result<void> fetch(HubConnection& connection, FileSegment& segment) {
    int fruitless = 0;
    while (!segment.complete() && !window_.failed()) {
      const uint64_t before = segment.position();
      const std::string url = place_.address();
      RangeRequest range{.window = window_, .segment = segment, .download = download_};
      HubRequest request{.url = url};
      request.headers = {concat("Range: bytes=", before, "-", segment.end - 1)};
      request.receive = [&](const HubReply& reply, std::span<const std::byte> bytes) {
        return range.receive(reply, bytes);
      };
      const HubReply reply = TRY(session_.exchange(connection, request, Redirects::all));
      if (range.error) return *range.error;
      if (segment.complete() || window_.failed()) return {};
      fruitless = segment.position() > before ? 1 : fruitless + 1;
      TRY(after(connection, reply, url, fruitless));
    }
    return {};
  }

  /// Before the next attempt, if there may be one.
  Result<void> after(HubConnection& connection, const HubReply& reply, const std::string& url,
                     int fruitless) {
    if (reply.status == kNoSuchRange) range_refused_ = true;
    if (reply.end == HubEnd::whole && is_expired(reply.status) && fruitless <= 2)
      return place_.renew(connection, url);
    const bool ended_early = reply.end == HubEnd::whole && reply.status < 300;
    if ((!ended_early && !HubSession::may_retry(reply)) ||
        fruitless >= session_.settings().attempts_max)
      return ended_early
                 ? Error{ErrorCode::io, concat(download_.name, ": the server sends nothing")}
                 : session_.error_of(reply, url);
    return session_.wait(reply, fruitless, download_.name);
  }

  const HubSession& session_;
  const BlobDownload& download_;
  SegmentWindow& window_;
  SignedPlace place_;
  std::atomic<bool> range_refused_ = false;
};

/// Feeds the hasher with the `bytes` that are there. Errors: io.
Result<void> hash_beginning(const File& file, uint64_t bytes, BlobHasher& hasher) {
  std::vector<std::byte> chunk(std::min<uint64_t>(bytes, uint64_t{1} << 20));
  for (uint64_t at = 0; at < bytes;) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), bytes - at));
    TRY(file.read_at(part, at));
    hasher.add(part);
    at += part.size();
  }
  return {};
}

/// Errors: io, also for what is no regular file, since no word of the user named it.
Result<File> open_target(const BlobDownload& download) {
  auto file = File::open_write(download.target);
  if (file.ok() || file.error().code != ErrorCode::invalid_argument) return file;
  return Error{ErrorCode::io, file.error().message};
}

/// One run over the file found this.
struct DownloadAttempt {
  bool went_on = false;        // a beginning was there
  bool range_refused = false;  // by the server; `hash` is empty then
  std::string hash;
  std::optional<Error> error;  // of a range that was refused
};

/// Fills the window over all connections.
Result<void> fetch_all(const HubSession& session, const BlobDownload& download,
                       SegmentWindow& window, DownloadAttempt& outcome) {
  BlobFetcher fetcher(session, download, window);
  std::vector<std::jthread> threads;
  for (int i = 1; i < download.connections; ++i) threads.emplace_back([&] { fetcher.run(); });
  fetcher.run();
  threads.clear();  // joins
  const auto result = window.result();
  outcome.range_refused = !result.ok() && fetcher.range_refused();
  if (!outcome.range_refused) return result;
  outcome.error = result.error();
  return {};
}

Result<DownloadAttempt> attempt(const HubSession& session, const BlobDownload& download) {
  DownloadAttempt outcome;
  File file = TRY(open_target(download));
  uint64_t there = TRY(file.size());
  if (there > download.place.bytes) {  // no beginning of this file
    TRY(file.reserve(0));
    there = 0;
  }
  outcome.went_on = there > 0;
  BlobHasher hasher(download.kind, download.place.bytes);
  TRY(hash_beginning(file, there, hasher));
  if (download.came && there > 0) download.came(static_cast<int64_t>(there));
  const auto connections = static_cast<uint64_t>(download.connections);
  SegmentWindow window(file, hasher,
                       {.file_bytes = download.place.bytes,
                        .written = there,
                        .segment_bytes = kSegmentBytes,
                        .window_bytes = kSegmentBytes * connections * kSegmentsAhead});
  TRY(fetch_all(session, download, window, outcome));
  if (outcome.range_refused) return outcome;
  TRY(file.sync());
  outcome.hash = hasher.hex();
  return outcome;
}

/// Empties the file, which may be no beginning of the one wanted.
Result<void> start_again(const HubSession& session, const BlobDownload& download) {
  File file = TRY(open_target(download));
  TRY(file.reserve(0));
  if (session.settings().tell)
    session.settings().tell(concat(download.name,
                                   ": the part that is here is not of this file; it is fetched ",
                                   "from the start"));
  return {};
}

Error wrong_hash(const BlobDownload& download, const std::string& found) {
  return make_error(
      ErrorCode::corrupt,
      {.what = concat(download.name, " came damaged"),
       .expected =
           concat(download.kind == BlobHashKind::sha256 ? "SHA-256 " : "git SHA-1 ", download.hash),
       .found = found,
       .advice = "nothing of it is kept; run the same command again"});
}

}  // namespace

Result<void> download_blob(const HubSession& session, const BlobDownload& download) {
  std::atomic<int64_t> counted = 0;
  BlobDownload counting = download;
  counting.came = [&](int64_t bytes) {
    counted += bytes;
    if (download.came) download.came(bytes);
  };
  DownloadAttempt outcome = TRY(attempt(session, counting));
  // Another program may have left a file with holes, or one of something else.
  if (outcome.range_refused || (outcome.hash != download.hash && outcome.went_on)) {
    TRY(start_again(session, download));
    counting.came(-counted);
    outcome = TRY(attempt(session, counting));
  }
  if (outcome.range_refused) return *outcome.error;
  if (outcome.hash == download.hash) return {};
  ::unlink(download.target.c_str());
  return wrong_hash(download, outcome.hash);
}

}  // namespace nibble
