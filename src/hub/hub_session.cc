// The token is added to each request anew, by the origin it goes to, so no redirect can carry it.
#include "hub/hub_session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/json.h"
#include "hub/hub_replies.h"
#include "hub/url_origin.h"

namespace nibble {
namespace {

constexpr int kRedirectsMax = 10;
constexpr int64_t kBackoffSecondsMax = 8;

bool is_redirect(const HubReply& reply) {
  return (reply.status == 301 || reply.status == 302 || reply.status == 303 ||
          reply.status == 307 || reply.status == 308) &&
         !reply.header("location").empty();
}

std::string short_url(const std::string& url) { return url.substr(0, url.find('?')); }

std::string words_of(const HubReply& reply) {
  constexpr size_t kShownMax = 200;
  std::string words(reply.header("x-error-message"));
  if (words.empty()) words = hub_error_words(reply.body);
  if (words.empty()) return "";
  return concat(" (", Json(words.substr(0, kShownMax)).dump(), ")");
}

Error refused_access(const HubReply& reply, const std::string& url, std::string_view advice) {
  return make_error(ErrorCode::io, {.what = short_url(url),
                                    .expected = "access",
                                    .found = concat("status ", reply.status, words_of(reply)),
                                    .advice = advice});
}

}  // namespace

Result<HubSession> HubSession::open(HubSettings settings) {
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  HubSession session(std::move(settings));
  session.origin_ = TRY(origin_of(session.settings_.endpoint));
  return session;
}

bool HubSession::is_hub(const std::string& url) const {
  const auto origin = origin_of(url);
  return origin.ok() && origin.value() == origin_;
}

Result<HubReply> HubSession::exchange(HubConnection& connection, HubRequest request,
                                      Redirects redirects) const {
  const HubLimits limits{.stall_seconds = settings_.stall_seconds,
                         .certificates = settings_.certificates,
                         .stop = settings_.stop};
  const std::vector<std::string> headers = request.headers;
  for (int step = 0; step <= kRedirectsMax; ++step) {
    request.headers = headers;
    if (!settings_.token.empty() && is_hub(request.url))
      request.headers.push_back(concat("Authorization: Bearer ", settings_.token));
    HubReply reply = connection.send(request, limits);
    if (reply.end != HubEnd::whole || !is_redirect(reply)) return reply;
    const std::string target =
        TRY(resolved_url(request.url, std::string(reply.header("location"))));
    reply.headers["location"] = target;
    if (redirects == Redirects::on_hub && !is_hub(target)) return reply;
    request.url = target;
  }
  return make_error(ErrorCode::corrupt,
                    {.what = short_url(request.url),
                     .expected = concat("at most ", kRedirectsMax, " redirects"),
                     .found = "more"});
}

bool HubSession::may_retry(const HubReply& reply) {
  if (reply.end == HubEnd::network || reply.end == HubEnd::stalled) return true;
  return reply.end == HubEnd::whole &&
         (reply.status == 408 || reply.status == 429 || reply.status >= 500);
}

Result<void> HubSession::wait(const HubReply& reply, int attempt, std::string_view what) const {
  using Clock = std::chrono::steady_clock;
  int64_t seconds = std::min<int64_t>(kBackoffSecondsMax, int64_t{1} << std::min(attempt - 1, 10));
  const auto told = parse_retry_after(reply.header("retry-after"));
  if (told && *told > settings_.wait_seconds_max)
    return make_error(
        ErrorCode::io,
        {.what = concat("the hub asks to wait ", *told, " s (status ", reply.status, ")"),
         .expected = concat("at most ", settings_.wait_seconds_max, " s"),
         .advice = "run the same command later: it goes on where it stopped"});
  if (told) seconds = *told;
  const std::string why =
      reply.end == HubEnd::whole ? concat("status ", reply.status) : reply.trouble;
  if (settings_.tell) settings_.tell(concat(what, ": ", why, "; again in ", seconds, " s"));
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < until) {
    if (settings_.stop && settings_.stop()) return Error{ErrorCode::cancelled, "stopped"};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

Error HubSession::error_of(const HubReply& reply, const std::string& url) const {
  if (reply.end == HubEnd::cancelled) return {ErrorCode::cancelled, "stopped"};
  if (reply.end == HubEnd::too_large)
    return make_error(ErrorCode::corrupt,
                      {.what = concat("reply of ", short_url(url)), .found = "more than is taken"});
  if (reply.end != HubEnd::whole)
    return make_error(
        ErrorCode::io,
        {.what = short_url(url), .found = reply.trouble, .advice = "run the same command again"});
  if (reply.status == 401)
    return refused_access(reply, url,
                          settings_.token.empty()
                              ? "a private or unknown model: HF_TOKEN or --token gives a token"
                              : "the token does not open it, or there is no such model");
  if (reply.status == 403)
    return refused_access(reply, url,
                          "accept the model's terms on its page, or use a token that may do this");
  const ErrorCode code = reply.status == 404 ? ErrorCode::not_found : ErrorCode::io;
  return make_error(
      code, {.what = short_url(url), .found = concat("status ", reply.status, words_of(reply))});
}

Result<HubReply> HubSession::call(HubConnection& connection, const HubRequest& request,
                                  Redirects redirects) const {
  for (int attempt = 1;; ++attempt) {
    HubReply reply = TRY(exchange(connection, request, redirects));
    if (reply.end == HubEnd::whole && reply.status < 400) return reply;
    if (!may_retry(reply) || attempt >= settings_.attempts_max) return error_of(reply, request.url);
    TRY(wait(reply, attempt, short_url(request.url)));
  }
}

}  // namespace nibble
