// libcurl's easy interface with every limit set. HTTP/1.1 alone: several connections are faster for
// large files than several streams of one.
#include "hub/hub_connection.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace nibble {
namespace {

constexpr size_t kHeaderBytesMax = size_t{64} << 10;
constexpr size_t kFailureBytesMax = size_t{64} << 10;  // of the body of an error
constexpr long kBufferBytes = 256 << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The callbacks of one request share this.
struct Exchange {
  const HubRequest& request;
  const HubLimits& limits;
  HubReply reply = {};
  size_t header_bytes = 0;
  uint64_t sent = 0;
  bool receiver_full = false;
  bool too_large = false;
  bool cancelled = false;
  CURL* handle = nullptr;
};

bool is_success(int status) { return status >= 200 && status < 300; }

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kHeaderBytesMax) {
    exchange.too_large = true;
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // of a proxy, of "100 Continue", of the reply
    exchange.reply.headers.clear();
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon != line.npos)
    exchange.reply.headers[lower(trimmed(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
  return line.size();
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view bytes(data, size * count);
  long status = 0;
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status);
  exchange.reply.status = static_cast<int>(status);
  std::string& body = exchange.reply.body;
  if (!is_success(exchange.reply.status)) {
    body += bytes.substr(0, kFailureBytesMax - std::min(kFailureBytesMax, body.size()));
    return bytes.size();
  }
  if (exchange.request.receive) {
    if (exchange.request.receive(exchange.reply, std::as_bytes(std::span(bytes))))
      return bytes.size();
    exchange.receiver_full = true;
    return 0;
  }
  if (body.size() + bytes.size() > exchange.request.body_bytes_max) {
    exchange.too_large = true;
    return 0;
  }
  body += bytes;
  return bytes.size();
}

size_t on_upload(char* out, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const HubRequest& request = exchange.request;
  const auto room = std::min<uint64_t>(size * count, request.upload_bytes - exchange.sent);
  const auto part = std::as_writable_bytes(std::span(out, room));
  if (!request.upload->read_at(part, request.upload_offset + exchange.sent).ok())
    return CURL_READFUNC_ABORT;
  exchange.sent += room;
  return room;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.cancelled = exchange.limits.stop && exchange.limits.stop();
  return exchange.cancelled ? 1 : 0;
}

HubEnd end_of(const Exchange& exchange, CURLcode code) {
  if (exchange.cancelled) return HubEnd::cancelled;
  if (exchange.too_large) return HubEnd::too_large;
  if (exchange.receiver_full) return HubEnd::stopped;
  if (code == CURLE_OK) return HubEnd::whole;
  if (code == CURLE_OPERATION_TIMEDOUT) return HubEnd::stalled;
  static constexpr std::array kNetwork = {CURLE_COULDNT_RESOLVE_PROXY,
                                          CURLE_COULDNT_RESOLVE_HOST,
                                          CURLE_COULDNT_CONNECT,
                                          CURLE_PARTIAL_FILE,
                                          CURLE_GOT_NOTHING,
                                          CURLE_SEND_ERROR,
                                          CURLE_RECV_ERROR,
                                          CURLE_SSL_CONNECT_ERROR,
                                          CURLE_WEIRD_SERVER_REPLY};
  return std::ranges::find(kNetwork, code) != kNetwork.end() ? HubEnd::network : HubEnd::invalid;
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
}  // namespace

std::string_view HubReply::header(std::string_view name) const {
  const auto found = headers.find(std::string(name));
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

struct HubConnection::State {
  CURL* handle = nullptr;
  std::array<char, CURL_ERROR_SIZE> words = {};

  /// Sets an option whose value libcurl cannot refuse.
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle, option, value);
    CHECK(code == CURLE_OK, "curl_easy_setopt ", static_cast<int>(option));
  }
  void set_limits(const HubLimits& limits);
  void set_callbacks(Exchange& exchange);
  void set_method(Exchange& exchange);
  void prepare(Exchange& exchange, curl_slist* headers);
};

HubConnection::HubConnection() : state_(std::make_unique<State>()) {
  state_->handle = curl_easy_init();
  CHECK(state_->handle != nullptr, "libcurl does not start");
}
HubConnection::~HubConnection() {
  if (state_) curl_easy_cleanup(state_->handle);
}
HubConnection::HubConnection(HubConnection&&) noexcept = default;

void HubConnection::State::set_limits(const HubLimits& limits) {
  const auto seconds = static_cast<long>(limits.stall_seconds);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_CONNECTTIMEOUT, seconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, seconds);
  // libcurl keeps the buffer of a request whose host it did not find, and then takes no size.
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  if (!limits.certificates.empty()) set(CURLOPT_CAINFO, limits.certificates.c_str());
}

void HubConnection::State::set_callbacks(Exchange& exchange) {
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  set(CURLOPT_NOPROGRESS, 0L);
}

void HubConnection::State::set_method(Exchange& exchange) {
  const HubRequest& request = exchange.request;
  if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
  if (request.method == "POST") {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, request.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  if (request.method == "PUT") {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &on_upload);
    set(CURLOPT_READDATA, static_cast<void*>(&exchange));
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.upload_bytes));
  }
}

void HubConnection::State::prepare(Exchange& exchange, curl_slist* headers) {
  curl_easy_reset(handle);  // keeps the connection
  words[0] = '\0';
  set(CURLOPT_ERRORBUFFER, words.data());
  set(CURLOPT_URL, exchange.request.url.c_str());
  set(CURLOPT_USERAGENT, "nibble");
  set(CURLOPT_HTTPHEADER, headers);
  set_limits(exchange.limits);
  set_callbacks(exchange);
  set_method(exchange);
}

HubReply HubConnection::send(const HubRequest& request, const HubLimits& limits) {
  Exchange exchange{.request = request, .limits = limits, .handle = state_->handle};
  std::unique_ptr<curl_slist, FreeList> headers;
  const auto add = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  for (const std::string& line : request.headers) add(line);
  add("Accept-Encoding: identity");  // hashes and ranges are of the plain bytes
  add("Expect:");                    // no round trip before a body
  state_->prepare(exchange, headers.get());
  const CURLcode code = curl_easy_perform(state_->handle);
  long status = 0;
  curl_easy_getinfo(state_->handle, CURLINFO_RESPONSE_CODE, &status);
  exchange.reply.status = static_cast<int>(status);
  exchange.reply.end = end_of(exchange, code);
  if (code != CURLE_OK)
    exchange.reply.trouble =
        state_->words[0] != '\0' ? state_->words.data() : curl_easy_strerror(code);
  return std::move(exchange.reply);
}

}  // namespace nibble
