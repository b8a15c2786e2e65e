// A server at a URL: a few threads, each with one request at a time. A request that
// meets an overloaded or broken server is repeated a few times.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cli/evaluating/asked_model.h"
#include "cli/options/url_client.h"

namespace nibble {
namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr int kTries = 4;
constexpr int64_t kWaitSecondsMax = 60;

class AskedUrl final : public AskedModel {
 public:
  AskedUrl(UrlAddress address, std::string model, int64_t concurrency)
      : address_(std::move(address)),
        model_(std::move(model)),
        head_(json_object({{"url", address_.base}, {"model", model_}})),
        concurrency_(concurrency) {
    for (int64_t i = 0; i < concurrency; ++i) workers_.emplace_back([this] { work(); });
  }
  ~AskedUrl() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    asked_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  AskedUrl(const AskedUrl&) = delete;
  AskedUrl& operator=(const AskedUrl&) = delete;

  const std::string& model() const override { return model_; }
  const Json& head() const override { return head_; }
  void ask(size_t number, const TaskRequest& request) override {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back({number, request.path, request.body.dump()});
    asked_.notify_one();
  }
  std::vector<Reply> take() override {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kLook, [&] { return !replies_.empty(); });
    return std::exchange(replies_, {});
  }
  int64_t requests_max() const override { return concurrency_; }
  Result<void> failure() const override { return {}; }

 private:
  struct Asked {
    size_t number;
    std::string path;
    std::string body;
  };

  void work() {
    UrlClient client(address_, stopping_);
    while (true) {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const Asked asked = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      UrlExchange found = repeated(client, asked);
      lock.lock();
      replies_.push_back({asked.number, found.status, std::move(found.body)});
      arrived_.notify_one();
    }
  }

  /// Asks again while the server is out of reach, overloaded or broken.
  UrlExchange repeated(UrlClient& client, const Asked& asked) {
    constexpr int kTooMany = 429, kServerErrors = 500;
    UrlExchange found;
    for (int tried = 1;; ++tried) {
      found = client.exchange(asked.path, asked.body);
      const bool passing =
          found.status == 0 || found.status == kTooMany || found.status >= kServerErrors;
      if (!passing || tried == kTries || stopping_) return found;
      const int64_t seconds = std::clamp<int64_t>(
          std::max<int64_t>(found.wait_seconds, int64_t{1} << (tried - 1)), 1, kWaitSecondsMax);
      std::unique_lock lock(mutex_);
      asked_.wait_for(lock, std::chrono::seconds(seconds), [&] { return stopping_.load(); });
    }
  }

  const UrlAddress address_;
  const std::string model_;
  const Json head_;
  const int64_t concurrency_;
  std::mutex mutex_;
  std::condition_variable asked_, arrived_;
  std::deque<Asked> waiting_;
  std::vector<Reply> replies_;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> workers_;
};

Result<std::string> base_of(std::string url) {
  const std::string given = url;
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - std::string_view("/v1").size());
  while (url.ends_with('/')) url.pop_back();
  const size_t host = given.find("://") + std::string_view("://").size();
  const bool odd = std::ranges::any_of(
      url, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; });
  if (!is_url(given) || odd || host >= url.size())
    return make_error(ErrorCode::invalid_argument, {.what = "the URL",
                                                    .expected = "such as http://127.0.0.1:8000",
                                                    .found = Json(given.substr(0, 200)).dump()});
  return url;
}

/// The first model that the server lists.
Result<std::string> first_model(const UrlAddress& address) {
  const std::atomic<bool> stopping = false;
  const UrlExchange found = UrlClient(address, stopping).exchange("/v1/models", "");
  if (found.status == 0) return make_error(ErrorCode::io, {.what = found.body});
  const auto json = parse_json(found.body, "its list of models");
  const Json* data = json.ok() ? json.value().find("data") : nullptr;
  const bool some = data != nullptr && data->is_array() && !data->as_array().empty();
  const Json* id = some ? data->as_array().front().find("id") : nullptr;
  if (id == nullptr || !id->is_string())
    return make_error(ErrorCode::unsupported, {.what = concat(address.base, "/v1/models"),
                                               .expected = "a list of models",
                                               .found = concat("status ", found.status),
                                               .advice = "name the model with --model, and the "
                                                         "key, if it wants one, with --api-key"});
  return id->as_string();
}

}  // namespace

bool is_url(std::string_view word) {
  return word.starts_with("http://") || word.starts_with("https://");
}

Result<std::unique_ptr<AskedModel>> ask_url(const UrlSettings& settings) {
  const bool odd = std::ranges::any_of(
      settings.api_key, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
  if (odd)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--api-key", .expected = "no control characters"});
  UrlAddress address{.base = TRY(base_of(settings.url)), .api_key = settings.api_key};
  std::string model = settings.model;
  if (model.empty()) model = TRY(first_model(address));
  return std::unique_ptr<AskedModel>(
      std::make_unique<AskedUrl>(std::move(address), std::move(model), settings.concurrency));
}

}  // namespace nibble
