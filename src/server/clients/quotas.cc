// Buckets hold what has been used, which drains at the key's rate.
#include "server/clients/quotas.h"

#include <algorithm>
#include <cmath>

namespace nibble {

namespace {

constexpr double kMinuteSeconds = 60.0;

/// The time until `amount` more fits.
double wait_seconds(double used, double per_minute, double amount) {
  return std::max(used + amount - per_minute, 0.0) / per_minute * kMinuteSeconds;
}

ApiError over(const KeyRules& key, std::string_view what, double seconds) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message = concat("the key ", key.name, " may have ", what, "; try again in ",
                            reset_text(seconds)),
          .code = "rate_limit_exceeded",
          .retry_after_s = static_cast<int>(std::clamp(std::ceil(seconds - 1e-6), 1.0, 86400.0))};
}

}  // namespace

void Quotas::Bucket::refill(double per_minute, Time now) {
  const double seconds = std::chrono::duration<double>(now - at).count();
  used = std::max(used - std::max(seconds, 0.0) * per_minute / kMinuteSeconds, 0.0);
  at = now;
}

std::optional<ApiError> Quotas::begin(const KeyRules& key, Time now) {
  Usage& usage = usage_[key.name];
  if (key.concurrent_max > 0 && usage.running >= key.concurrent_max)
    return over(key, concat(key.concurrent_max, " requests at once"), 1.0);
  if (key.requests_per_minute > 0) {
    usage.requests.refill(key.requests_per_minute, now);
    const double wait = wait_seconds(usage.requests.used, key.requests_per_minute, 1.0);
    if (wait > 0.0) return over(key, concat(key.requests_per_minute, " requests per minute"), wait);
    usage.requests.used += 1.0;
  }
  ++usage.running;
  return std::nullopt;
}

void Quotas::release(const KeyRules& key) { --usage_[key.name].running; }

std::optional<ApiError> Quotas::take_tokens(const KeyRules& key, int64_t tokens, Time now) {
  if (key.tokens_per_minute == 0) return std::nullopt;
  const auto per_minute = static_cast<double>(key.tokens_per_minute);
  Bucket& bucket = usage_[key.name].tokens;
  bucket.refill(per_minute, now);
  const double needed = std::min(static_cast<double>(tokens), per_minute);
  const double wait = wait_seconds(bucket.used, per_minute, needed);
  if (wait > 0.0)
    return over(key, concat(key.tokens_per_minute, " tokens per minute, this prompt has ", tokens),
                wait);
  bucket.used += static_cast<double>(tokens);
  return std::nullopt;
}

void Quotas::charge_tokens(const KeyRules& key, int64_t tokens, Time now) {
  if (key.tokens_per_minute == 0) return;
  Bucket& bucket = usage_[key.name].tokens;
  bucket.refill(static_cast<double>(key.tokens_per_minute), now);
  bucket.used += static_cast<double>(tokens);
}

std::vector<HttpHeader> Quotas::headers(const KeyRules& key, Time now) {
  std::vector<HttpHeader> headers;
  const auto add = [&](std::string_view what, double per_minute, Bucket& bucket) {
    if (per_minute == 0.0) return;
    bucket.refill(per_minute, now);
    const double left = std::max(std::floor(per_minute - bucket.used), 0.0);
    const double full = bucket.used / per_minute * kMinuteSeconds;
    const auto whole = [](double value) { return concat(static_cast<int64_t>(value)); };
    headers.push_back({concat("x-ratelimit-limit-", what), whole(per_minute)});
    headers.push_back({concat("x-ratelimit-remaining-", what), whole(left)});
    headers.push_back({concat("x-ratelimit-reset-", what), reset_text(full)});
  };
  Usage& usage = usage_[key.name];
  add("requests", key.requests_per_minute, usage.requests);
  add("tokens", static_cast<double>(key.tokens_per_minute), usage.tokens);
  return headers;
}

std::string reset_text(double seconds) {
  const auto tenths = static_cast<int64_t>(std::ceil(seconds * 10.0 - 1e-9));
  const int64_t minutes = tenths / 600;
  const int64_t rest = tenths % 600;
  const std::string fraction = rest % 10 == 0 ? "" : concat(".", rest % 10);
  return concat(minutes > 0 ? concat(minutes, "m") : "", rest / 10, fraction, "s");
}

}  // namespace nibble
