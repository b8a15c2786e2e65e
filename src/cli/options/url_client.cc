// The options of libcurl that a request needs.
#include "cli/options/url_client.h"

#include <curl/curl.h>

namespace nibble {
namespace {

constexpr size_t kBodyBytesMax = size_t{256} << 20;
constexpr long kConnectSeconds = 10;
constexpr long kAnswerSeconds = 3600;

struct CurlFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlHeaders = std::unique_ptr<curl_slist, CurlFree>;

struct Download {
  std::string body;
  const std::atomic<bool>* stopping = nullptr;
};

size_t take_bytes(char* data, size_t size, size_t count, void* into) {
  std::string& body = static_cast<Download*>(into)->body;
  if (body.size() + size * count > kBodyBytesMax) return 0;  // ends the transfer
  body.append(data, size * count);
  return size * count;
}

int look_at_stop(void* into, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const Download*>(into)->stopping ? 1 : 0;
}

}  // namespace

UrlClient::UrlClient(const UrlAddress& address, const std::atomic<bool>& stopping)
    : address_(address), stopping_(stopping) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);  // once in a process
  CHECK(ready == CURLE_OK, curl_easy_strerror(ready));
  handle_ = curl_easy_init();
  CHECK(handle_ != nullptr, "libcurl has no memory");
}

UrlClient::~UrlClient() { curl_easy_cleanup(static_cast<CURL*>(handle_)); }

UrlExchange UrlClient::exchange(const std::string& path, const std::string& body) {
  CURL* handle = static_cast<CURL*>(handle_);
  curl_easy_reset(handle);
  Download download{.stopping = &stopping_};
  const std::string url = address_.base + path;
  CurlHeaders headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!address_.api_key.empty())
    curl_slist_append(headers.get(), concat("Authorization: Bearer ", address_.api_key).c_str());
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(handle, CURLOPT_TIMEOUT, kAnswerSeconds);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_at_stop);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &download);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &download);
  if (!body.empty()) {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
  }
  const CURLcode code = curl_easy_perform(handle);
  if (code != CURLE_OK) return {.body = concat(url, ": ", curl_easy_strerror(code))};
  long status = 0;
  curl_off_t wait_seconds = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait_seconds);
  return {.status = static_cast<int>(status),
          .body = std::move(download.body),
          .wait_seconds = wait_seconds};
}

}  // namespace nibble
