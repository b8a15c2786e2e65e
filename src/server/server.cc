// Routes, keys and the meeting of engine events with requests.
#include "server/server.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "server/answer_writer.h"
#include "server/api_error.h"
#include "server/cache_salt.h"
#include "server/generation.h"
#include "server/metrics.h"
#include "server/profiles.h"
#include "server/task_thread.h"
#include "server/text_routes.h"

namespace nibble {

namespace {

constexpr size_t kParsingMax = 256;   // bodies waiting to be parsed
constexpr size_t kCompilingMax = 16;  // structures waiting to be compiled
constexpr size_t kRequestIdBytesMax = 128;

constexpr Route kRoutes[] = {
    {"GET", "/health", Access::open},
    {"GET", "/version", Access::keyed},
    {"GET", "/v1/models", Access::keyed},
    {"GET", "/v1/models/", Access::keyed},
    {"POST", "/v1/chat/completions", Access::keyed},
    {"POST", "/v1/completions", Access::keyed},
    {"POST", "/v1/messages", Access::keyed},
    {"POST", "/v1/messages/count_tokens", Access::keyed},
    {"POST", "/v1/responses", Access::keyed},
    {"POST", "/v1/responses/input_tokens", Access::keyed},
    {"POST", "/tokenize", Access::keyed},
    {"POST", "/detokenize", Access::keyed},
    {"POST", "/apply-template", Access::keyed},
    {"GET", "/tokenizer_info", Access::keyed},
    {"GET", "/load", Access::keyed},
    {"GET", "/metrics", Access::keyed},
    {"GET", "/live", Access::open},
    {"GET", "/ready", Access::open},
    {"POST", "/v1/embeddings", Access::keyed},
    {"POST", "/sleep", Access::keyed},
    {"POST", "/wake_up", Access::keyed},
    {"GET", "/is_sleeping", Access::keyed},
};

/// Time depends on the lengths only.
bool constant_time_equal(std::string_view a, std::string_view b) {
  const size_t size = std::max(a.size(), b.size());
  size_t difference = a.size() ^ b.size();
  for (size_t i = 0; i < size; ++i) {
    const unsigned char x = i < a.size() ? static_cast<unsigned char>(a[i]) : 0;
    const unsigned char y = i < b.size() ? static_cast<unsigned char>(b[i]) : 0;
    difference |= static_cast<size_t>(x ^ y);
  }
  return difference == 0;
}

/// The key of `Authorization: Bearer KEY` or `x-api-key: KEY`.
std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view header = request.header("authorization");
  if (header.starts_with(kBearer)) return header.substr(kBearer.size());
  return request.header("x-api-key");
}

bool matches(const Route& route, std::string_view path) {
  return route.path.ends_with('/') ? path.starts_with(route.path) && path.size() > route.path.size()
                                   : path == route.path;
}

bool is_json(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

/// The API whose words answers and errors on a path use.
Api api_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Api::messages;
  if (path.starts_with("/v1/responses")) return Api::responses;
  return path == "/v1/completions" ? Api::completions : Api::chat;
}

HttpResponse too_busy(Api api) {
  return error_response(
      api, ApiError::from({ErrorCode::no_space, "too many requests are waiting; try again later"}));
}

std::string_view name_of(Api api) {
  switch (api) {
    case Api::chat:
      return "chat";
    case Api::completions:
      return "completion";
    case Api::messages:
      return "message";
    case Api::responses:
      return "response";
  }
  CHECK(false, "API ", static_cast<int>(api));
}

/// %2F and the like as the bytes they stand for; what is malformed stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const bool coded = text[i] == '%' && i + 2 < text.size() &&
                       std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                           text.data() + i + 3;
    out.push_back(coded ? static_cast<char>(byte) : text[i]);
    if (coded) i += 2;
  }
  return out;
}

/// The client's x-request-id if it is harmless, else a new one.
std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool sane = !given.empty() && given.size() <= kRequestIdBytesMax &&
                    std::ranges::all_of(given, [](char c) { return c > ' ' && c < 127; });
  return sane ? std::string(given) : random_id("req_");
}

}  // namespace

std::span<const Route> server_routes() { return kRoutes; }

struct Server::State : std::enable_shared_from_this<State> {
  State(ServedModel given, ServerOptions chosen)
      : model(std::move(given)), options(std::move(chosen)) {}

  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  std::optional<ApiError> refusal(const HttpRequest& request, const Route*& route) const;
  bool authorised(const HttpRequest& request) const;
  ClientFacts client_of(const HttpRequest& request) const;
  void answer_text(TextRoute answer, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void generate(Api api, HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void start(GenerationRequest request, std::shared_ptr<HttpExchange> exchange,
             std::string request_id);
  void pump();
  void forget(const std::shared_ptr<Generation>& generation);
  void ping();
  void terminate();
  void check_drained();
  Json model_card(std::string_view name) const;
  HttpResponse models() const;
  HttpResponse one_model(std::string_view id) const;
  HttpResponse health() const;
  void rest(Engine::Rest wanted, std::shared_ptr<HttpExchange> exchange);

  ServedModel model;
  ServerOptions options;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<TaskThread> compiler;  // of structures, which may take seconds
  std::unique_ptr<TaskThread> parser;
  std::map<uint64_t, std::shared_ptr<Generation>> sequences;  // live ones
  Metrics metrics;
  int signals = 0;
};

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<Backend> backend,
                                              const ModelConfig& config,
                                              const EngineSettings& settings, ServedModel model,
                                              ServerOptions options) {
  CHECK(!model.names.empty(), "a served model needs a name");
  auto state = std::make_shared<State>(std::move(model), std::move(options));
  State* s = state.get();
  s->http = TRY(HttpServer::listen(
      s->options.http, [s](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        s->handle(std::move(request), std::move(exchange));
      }));
  Engine::Options engine_options{.settings = settings, .sampleable = s->model.sampleable()};
  engine_options.store = s->options.prefix_store;
  engine_options.sleep_idle_ms = static_cast<double>(s->options.sleep_idle.count());
  engine_options.report = [s](const std::string& line) {
    if (s->options.log) s->options.log(line);
  };
  engine_options.on_events = [s] { s->http->post([s] { s->pump(); }); };
  s->engine = TRY(Engine::start(std::move(backend), config, std::move(engine_options)));
  s->model.grammars =
      std::make_shared<GrammarCompiler>([s] { return s->model.grammar_vocabulary(); });
  s->compiler = std::make_unique<TaskThread>(kCompilingMax);
  s->parser = std::make_unique<TaskThread>(kParsingMax);
  s->http->on_terminate([s] { s->terminate(); });
  s->http->post_after(s->options.ping_every, [s] { s->ping(); });
  return std::make_unique<Server>(std::move(state));
}

Server::Server(std::shared_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  state_->parser.reset();    // its tasks post to compiler and http
  state_->compiler.reset();  // its tasks post to http
  state_->engine.reset();    // likewise
  state_->http.reset();
}

uint16_t Server::port() const { return state_->http->port(); }
void Server::run() { state_->http->run(); }
void Server::terminate() {
  state_->http->post([s = state_.get()] { s->terminate(); });
}

std::optional<ApiError> Server::State::refusal(const HttpRequest& request,
                                               const Route*& route) const {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  bool path_known = false;
  for (const Route& candidate : kRoutes) {
    if (!matches(candidate, request.path)) continue;
    path_known = true;
    if (candidate.method == method) route = &candidate;
  }
  // Without a key nobody learns which paths exist.
  if ((route == nullptr || route->access == Access::keyed) && !authorised(request))
    return ApiError{.status = 401,
                    .type = "authentication_error",
                    .message = "a valid API key is needed: send Authorization: Bearer KEY",
                    .code = "invalid_api_key"};
  if (!path_known)
    return ApiError{.status = 404,
                    .message = concat("no such path: ", request.path.substr(0, 100)),
                    .code = "not_found"};
  if (route == nullptr)
    return ApiError{.status = 405,
                    .message = concat("method ", request.method.substr(0, 20),
                                      " is not allowed on ", request.path.substr(0, 100))};
  const bool bodiless =
      request.body.empty() && (route->path == "/sleep" || route->path == "/wake_up");
  if (method == "POST" && !bodiless && !is_json(request.header("content-type")))
    return ApiError{.status = 415, .message = "send the body as Content-Type: application/json"};
  return std::nullopt;
}

bool Server::State::authorised(const HttpRequest& request) const {
  if (options.api_keys.empty()) return true;
  bool found = false;
  for (const std::string& key : options.api_keys)
    found |= constant_time_equal(key, key_of(request));
  return found;
}

/// Without keys all clients are one tenant, whatever key they send.
ClientFacts Server::State::client_of(const HttpRequest& request) const {
  return {.tenant = options.api_keys.empty() ? 0 : tenant_of(key_of(request)),
          .timeout_seconds = std::string(request.header("x-request-timeout"))};
}

void Server::State::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const Route* route = nullptr;
  if (const auto error = refusal(request, route)) {
    metrics.refuse(error->status);
    HttpResponse response = error_response(api_of(request.path), *error);
    if (error->status == 405)
      for (const Route& candidate : kRoutes)
        if (matches(candidate, request.path))
          response.headers.push_back({"Allow", std::string(candidate.method)});
    return exchange->respond(std::move(response));
  }
  if (route->path == "/health") return exchange->respond(health());
  if (route->path == "/version")
    return exchange->respond({.body = concat("{\"version\":\"", NIBBLE_VERSION, "\"}")});
  if (route->path == "/v1/models") return exchange->respond(models());
  if (route->path == "/v1/models/")
    return exchange->respond(
        one_model(percent_decoded(std::string_view(request.path).substr(route->path.size()))));
  if (route->path == "/live") return exchange->respond({.body = "{\"status\":\"ok\"}"});
  if (route->path == "/ready") return exchange->respond(health());
  if (route->path == "/load")
    return exchange->respond({.body = concat("{\"server_load\":", sequences.size(), "}")});
  if (route->path == "/is_sleeping")
    return exchange->respond({.body = engine->resting() == Engine::Rest::sleeping
                                          ? "{\"is_sleeping\":true}"
                                          : "{\"is_sleeping\":false}"});
  if (route->path == "/sleep") return rest(Engine::Rest::sleeping, std::move(exchange));
  if (route->path == "/wake_up") return rest(Engine::Rest::awake, std::move(exchange));
  if (route->path == "/metrics")
    return exchange->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                              .body = metrics.text(engine->stats(), model.names.front())});
  if (route->path == "/tokenizer_info") return exchange->respond(tokenizer_info(model));
  if (route->path == "/v1/embeddings")
    return exchange->respond(ApiError{
        .status = 501, .type = "not_supported", .message = "this model makes text, not embeddings"}
                                 .response());
  if (TextRoute answer = text_route(route->path))
    return answer_text(std::move(answer), std::move(request), std::move(exchange));
  generate(api_of(route->path), std::move(request), std::move(exchange));
}

/// Off the io thread.
void Server::State::answer_text(TextRoute answer, HttpRequest request,
                                std::shared_ptr<HttpExchange> exchange) {
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  const bool queued = parser->post([this, answer = std::move(answer), shared, exchange] {
    const auto response =
        std::make_shared<HttpResponse>(answer(shared->body, model, options.limits));
    http->post([response, exchange] { exchange->respond(std::move(*response)); });
  });
  if (!queued) exchange->respond(too_busy(api_of(shared->path)));
}

/// Answers when it is done; 409 while requests run.
void Server::State::rest(Engine::Rest wanted, std::shared_ptr<HttpExchange> exchange) {
  engine->rest(wanted, [this, exchange](const Result<void>& outcome) {
    const auto response = std::make_shared<HttpResponse>(HttpResponse{.body = "{}"});
    if (!outcome.ok())
      *response = ApiError{.status = 409, .message = outcome.error().message}.response();
    http->post([response, exchange] { exchange->respond(std::move(*response)); });
  });
}

HttpResponse Server::State::health() const {
  if (signals == 0) return {.body = "{\"status\":\"ok\"}"};
  return {.status = 503, .body = "{\"status\":\"draining\"}"};
}

Json Server::State::model_card(std::string_view name) const {
  return Json(Json::Object{{"id", Json(name)},
                           {"object", Json("model")},
                           {"created", Json(model.created)},
                           {"owned_by", Json("nibble")},
                           {"root", Json(model.names.front())},
                           {"max_model_len", Json(model.context_max)}});
}

HttpResponse Server::State::models() const {
  Json::Array cards;
  for (const std::string& name : servable_names(model.names)) cards.push_back(model_card(name));
  return {
      .body =
          Json(Json::Object{{"object", Json("list")}, {"data", Json(std::move(cards))}}).dump()};
}

HttpResponse Server::State::one_model(std::string_view id) const {
  const std::vector<std::string> names = servable_names(model.names);
  if (std::ranges::find(names, id) != names.end()) return {.body = model_card(id).dump()};
  return ApiError{.status = 404,
                  .message = concat("the model \"", id.substr(0, 100), "\" is not served here"),
                  .param = "model",
                  .code = "model_not_found"}
      .response();
}

void Server::State::generate(Api api, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  if (signals > 0) {
    const ApiError error = ApiError::from({ErrorCode::cancelled, "the server is shutting down"});
    return exchange->respond(error_response(api, error));
  }
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  const bool queued = parser->post([this, api, shared, exchange] {
    auto parsed = std::make_shared<ParsedRequest>(
        parse_generation_request(api, shared->body, model, options.limits));
    auto* sound = std::get_if<GenerationRequest>(parsed.get());
    std::optional<ApiError> error;
    if (sound != nullptr) error = apply_client(client_of(*shared), *sound);
    if (error) *parsed = std::move(*error);
    sound = std::get_if<GenerationRequest>(parsed.get());
    const auto begin = [this, api, parsed, shared, exchange] {
      if (const auto* refused = std::get_if<ApiError>(parsed.get())) {
        metrics.refuse(refused->status);
        return exchange->respond(error_response(api, *refused));
      }
      start(std::move(std::get<GenerationRequest>(*parsed)), exchange, request_id_of(*shared));
    };
    if (sound == nullptr || !sound->structure) return http->post(begin);
    const bool taken = compiler->post([this, parsed, begin] {
      if (auto why = compile_structure(model, std::get<GenerationRequest>(*parsed)))
        *parsed = std::move(*why);
      http->post(begin);
    });
    if (taken) return;
    *parsed = ApiError::from({ErrorCode::no_space, "too many structures are being compiled"});
    http->post(begin);
  });
  if (!queued) exchange->respond(too_busy(api));
}

void Server::State::start(GenerationRequest request, std::shared_ptr<HttpExchange> exchange,
                          std::string request_id) {
  auto generation = std::make_shared<Generation>(model, *engine, std::move(request), exchange,
                                                 std::move(request_id));
  generation->start();
  for (const uint64_t id : generation->ids()) {
    sequences[id] = generation;
    metrics.begin(id, Metrics::Time::clock::now());
  }
  if (generation->done()) metrics.refuse(generation->error_status());
  const std::weak_ptr<Generation> weak = generation;
  exchange->on_gone([weak] {
    if (const auto alive = weak.lock()) alive->abandon();
  });
}

/// Takes everything the engine has published, then lets each request send once.
void Server::State::pump() {
  const auto now = Metrics::Time::clock::now();
  std::vector<std::shared_ptr<Generation>> touched;
  for (EngineEvent& event : engine->take_events()) {
    const uint64_t id = std::visit([](const auto& e) { return e.id; }, event);
    const auto found = sequences.find(id);
    CHECK(found != sequences.end(), "an event of the unknown sequence ", id);
    const std::shared_ptr<Generation> generation = found->second;
    metrics.take(event, now);
    if (std::holds_alternative<Finished>(event)) sequences.erase(found);
    generation->take(std::move(event));
    if (std::ranges::find(touched, generation) == touched.end()) touched.push_back(generation);
  }
  for (const auto& generation : touched) {
    generation->flush();
    if (generation->settled()) forget(generation);
  }
}

void Server::State::forget(const std::shared_ptr<Generation>& generation) {
  if (!options.log) return;
  const TokenCounts counts = generation->counts();
  options.log(concat(name_of(generation->api()), ": ", counts.prompt, " prompt tokens, ",
                     counts.completion, " generated, ", generation->outcome()));
}

void Server::State::ping() {
  std::vector<std::shared_ptr<Generation>> pinged;
  for (const auto& [id, generation] : sequences) {
    if (std::ranges::find(pinged, generation) != pinged.end()) continue;
    pinged.push_back(generation);
    generation->ping();
  }
  http->post_after(options.ping_every, [this] { ping(); });
}

void Server::State::terminate() {
  ++signals;
  if (signals == 1) {
    http->stop_accepting();
    engine->shutdown(Shutdown::finish_running);
    http->post_after(options.drain_wait, [this] { terminate(); });
    return check_drained();
  }
  engine->shutdown(Shutdown::cancel_running);
  http->post_after(std::chrono::milliseconds(200), [this] { http->stop(); });
}

/// Polls until every answer is out, then ends run().
void Server::State::check_drained() {
  if (sequences.empty() && http->busy_connections() == 0) return http->stop();
  http->post_after(std::chrono::milliseconds(20), [this] { check_drained(); });
}

}  // namespace nibble
