// libcurl's easy interface, one connection for each hop. The name is resolved here, once, and the
// connection is pinned to what was checked; the socket is looked at again before it is opened.
#include "server/images/image_fetcher.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

namespace nibble {

namespace {

constexpr int kOk = 200;
constexpr size_t kHeaderBytesMax = size_t{64} << 10;

Error no_image(std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "its address", .expected = expected, .found = found});
}

Error too_slow(const ImageFetcherOptions& options) {
  return no_image(concat("an answer within ", options.time_max.count(), " ms"), "none");
}

/// The numeric form of a socket's address, or empty.
std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  const int failed = ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? std::string(text) : std::string();
}

Result<std::vector<std::string>> system_addresses(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0)
    return no_image("a host that has an address", "none");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next)
    addresses.push_back(numeric(each->ai_addr, each->ai_addrlen));
  return addresses;
}

/// The resolver's answer, if it comes in time. A system's resolver has waits of its own and cannot
/// be stopped: its thread then ends when they do, and what it says is dropped.
Result<std::vector<std::string>> resolve_within(const ImageFetcherOptions& options,
                                                const std::string& host,
                                                ImageFetcher::Clock::time_point deadline) {
  if (ImageFetcher::Clock::now() >= deadline) return too_slow(options);
  auto task = std::make_shared<std::packaged_task<Result<std::vector<std::string>>()>>(
      [resolve = options.resolve, host] { return resolve(host); });
  auto answer = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    return make_error(ErrorCode::no_memory, {.what = "a thread that resolves its host"});
  }
  if (answer.wait_until(deadline) != std::future_status::ready) return too_slow(options);
  return answer.get();
}

/// The callbacks of one connection share this.
struct Hop {
  std::string pinned;  // the address that was checked
  size_t bytes_max = 0;
  size_t header_bytes = 0;
  std::string body;
  bool too_large = false;
  bool elsewhere = false;  // another address was about to be connected to
};

size_t on_header(char*, size_t size, size_t count, void* user) {
  auto& hop = *static_cast<Hop*>(user);
  hop.header_bytes += size * count;
  return hop.header_bytes <= kHeaderBytesMax ? size * count : 0;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& hop = *static_cast<Hop*>(user);
  hop.too_large = hop.body.size() + size * count > hop.bytes_max;
  if (hop.too_large) return 0;
  hop.body.append(data, size * count);
  return size * count;
}

curl_socket_t open_pinned(void* user, curlsocktype, curl_sockaddr* address) {
  auto& hop = *static_cast<Hop*>(user);
  hop.elsewhere = numeric(&address->addr, address->addrlen) != hop.pinned;
  if (hop.elsewhere) return CURL_SOCKET_BAD;
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

/// Nothing of this process or of a client goes along: no proxy, cookie, password or header of
/// theirs.
void set_request(CURL* curl, const ImageAddress& address, const ImageFetcherOptions& options,
                 std::chrono::milliseconds left, Hop& hop) {
  curl_easy_setopt(curl, CURLOPT_URL, address.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, address.secure ? "https" : "http");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(left.count()));
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "nibble");
  if (!options.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_file.c_str());
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &hop);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &hop);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_pinned);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &hop);
}

/// The end of a hop: the image, or where it is.
struct Reply {
  std::optional<std::string> location;
  std::string body;
};

Result<Reply> ask(const ImageAddress& address, const ImageFetcherOptions& options,
                  std::chrono::milliseconds left, Hop hop) {
  const Handle curl(curl_easy_init(), &curl_easy_cleanup);
  const bool v6 = hop.pinned.find(':') != std::string::npos;
  const std::string pin =
      concat(address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]",
             ":", address.port, ":", v6 ? "[" : "", hop.pinned, v6 ? "]" : "");
  const List pins(curl_slist_append(nullptr, pin.c_str()), &curl_slist_free_all);
  if (!curl || !pins) return make_error(ErrorCode::no_memory, {.what = "fetching an image"});
  set_request(curl.get(), address, options, left, hop);
  curl_easy_setopt(curl.get(), CURLOPT_RESOLVE, pins.get());
  const CURLcode code = curl_easy_perform(curl.get());
  if (hop.too_large) return no_image(concat("at most ", hop.bytes_max, " bytes"), "more");
  if (hop.elsewhere) return no_image("the address that was checked", "another");
  if (code == CURLE_OPERATION_TIMEDOUT) return too_slow(options);
  if (code != CURLE_OK) return no_image("an image that can be fetched", curl_easy_strerror(code));
  long status = 0;
  char* location = nullptr;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl.get(), CURLINFO_REDIRECT_URL, &location);
  if (location != nullptr) return Reply{.location = location, .body = {}};
  if (status != kOk) return no_image("an answer with status 200", concat("status ", status));
  return Reply{.location = {}, .body = std::move(hop.body)};
}

}  // namespace

ImageFetcher::ImageFetcher(ImageFetcherOptions options) : options_(std::move(options)) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);  // once in a process
  CHECK(ready == CURLE_OK, curl_easy_strerror(ready));
  if (!options_.resolve) options_.resolve = system_addresses;
  if (!options_.may_connect) options_.may_connect = is_public_address;
}

/// One address of the host, if all of them may be connected to: a name that has others as well is
/// up to something.
Result<std::string> ImageFetcher::address_for(const ImageAddress& address,
                                              Clock::time_point deadline) const {
  TRY(options_.hosts.check(address));
  std::vector<std::string> addresses = TRY(resolve_within(options_, address.host, deadline));
  if (addresses.empty()) return no_image("a host that has an address", "none");
  if (!std::ranges::all_of(addresses, options_.may_connect))
    return no_image("a host of the public internet", "one of a private or reserved network");
  return std::move(addresses.front());
}

Result<std::string> ImageFetcher::fetch(const std::string& url, size_t bytes_max,
                                        Clock::time_point deadline) const {
  ImageAddress address = TRY(parse_image_address(url));
  for (int hop = 0; hop <= options_.redirects_max; ++hop) {
    std::string pinned = TRY(address_for(address, deadline));
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return too_slow(options_);
    Reply reply =
        TRY(ask(address, options_, left, {.pinned = std::move(pinned), .bytes_max = bytes_max}));
    if (!reply.location) return std::move(reply.body);
    address = TRY(redirected(address, *reply.location));
  }
  return no_image(concat("at most ", options_.redirects_max, " redirects"), "more");
}

}  // namespace nibble
