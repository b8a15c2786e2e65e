// Answers for a model that is not there yet.
#include "server/http/loading_door.h"

#include <algorithm>
#include <cmath>

#include "server/http/api_error.h"

namespace nibble {

Result<std::shared_ptr<LoadingDoor>> LoadingDoor::open(const HttpOptions& options,
                                                       std::function<double()> progress) {
  auto door = std::make_shared<LoadingDoor>(std::move(progress));
  const LoadingDoor* self = door.get();
  door->http_ = TRY(HttpServer::listen(
      options, [self](HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
        self->answer(request, *exchange);
      }));
  door->thread_ = std::thread([http = door->http_.get()] { http->run(); });
  return door;
}

LoadingDoor::~LoadingDoor() { close(); }

void LoadingDoor::close() {
  if (!thread_.joinable()) return;
  http_->post([http = http_.get()] { http->pause(); });
  thread_.join();
}

std::unique_ptr<HttpServer> LoadingDoor::hand_over(HttpHandler handler) {
  close();
  http_->handle_with(std::move(handler));
  return std::move(http_);
}

void LoadingDoor::answer(const HttpRequest& request, HttpExchange& exchange) const {
  if (request.path == "/live") return exchange.respond({.body = R"({"status":"ok"})"});
  const double part = std::floor(std::clamp(progress_(), 0.0, 0.99) * 100.0) / 100.0;
  if (request.path == "/health" || request.path == "/ready")
    return exchange.respond(
        {.status = 503,
         .body = json_object({{"status", Json("loading")}, {"progress", Json(part)}}).dump(),
         .headers = {{"Retry-After", "1"}}});
  exchange.respond(ApiError{.status = 503,
                            .type = "service_unavailable",
                            .message = concat("the model is loading, ", std::floor(part * 100.0),
                                              " % are done; try again later"),
                            .code = "loading"}
                       .response());
}

}  // namespace nibble
