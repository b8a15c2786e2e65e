// Keys, the life of the process and the meeting of engine events with requests. Which path does
// what: routes.cc.
#include "server/server.h"

#include <algorithm>

#include "server/answer_writer.h"
#include "server/cache_salt.h"
#include "server/server_state.h"

namespace nibble {

namespace {

constexpr size_t kParsingMax = 256;   // bodies waiting to be parsed
constexpr size_t kCompilingMax = 16;  // structures waiting to be compiled

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

}  // namespace

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<Backend> backend,
                                              const ModelConfig& config,
                                              const EngineSettings& settings, ServedModel model,
                                              ServerOptions options) {
  CHECK(!model.names.empty(), "a served model needs a name");
  auto state = std::make_shared<ServerState>(std::move(model), std::move(options));
  ServerState* s = state.get();
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

Server::Server(std::shared_ptr<ServerState> state) : state_(std::move(state)) {}

Server::~Server() {
  state_->parser.reset();    // its tasks post to compiler and http
  state_->compiler.reset();  // its tasks post to http
  state_->engine.reset();    // likewise
  state_->http.reset();
}

uint16_t Server::port() const { return state_->http->port(); }
void Server::run() { state_->http->run(); }
void Server::submit(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  state_->http->post([s = state_.get(), shared, exchange = std::move(exchange)] {
    s->handle(std::move(*shared), exchange);
  });
}
void Server::terminate() {
  state_->http->post([s = state_.get()] { s->terminate(); });
}

Caller ServerState::caller_of(const HttpRequest& request) const {
  if (options.api_keys.empty()) return Caller::known;
  bool found = false;
  for (const std::string& key : options.api_keys)
    found |= constant_time_equal(key, key_of(request));
  return found ? Caller::known : Caller::unknown;
}

/// Without keys all clients are one tenant, whatever key they send.
ClientFacts ServerState::client_of(const HttpRequest& request) const {
  return {.tenant = options.api_keys.empty() ? 0 : tenant_of(key_of(request)),
          .timeout_seconds = std::string(request.header("x-request-timeout"))};
}

void ServerState::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const RouteChoice choice = find_route(request.method, request.path);
  if (const auto error = refusal_of(request, choice, caller_of(request))) {
    metrics.refuse(error->status);
    HttpResponse response = error_response(api_of(request.path), *error);
    if (error->status == 405) response.headers.push_back({"Allow", choice.allowed});
    return exchange->respond(std::move(response));
  }
  choice.route->handler(
      *this,
      {.route = choice.route, .request = std::move(request), .exchange = std::move(exchange)});
}

void ServerState::start(GenerationRequest request, std::shared_ptr<HttpExchange> exchange,
                        std::string request_id) {
  metrics.ask(request.profile);
  auto generation = std::make_shared<Generation>(model, *engine, std::move(request), exchange,
                                                 std::move(request_id));
  generation->on_response([this](const Generation& done, const Json& response) {
    responses.put(done.tenant(), response, done.stored_input().items);
  });
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
void ServerState::pump() {
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

void ServerState::forget(const std::shared_ptr<Generation>& generation) {
  if (!options.log) return;
  const TokenCounts counts = generation->counts();
  options.log(concat(name_of(generation->api()), ": ", counts.prompt, " prompt tokens, ",
                     counts.completion, " generated, ", generation->outcome()));
}

void ServerState::ping() {
  std::vector<std::shared_ptr<Generation>> pinged;
  for (const auto& [id, generation] : sequences) {
    if (std::ranges::find(pinged, generation) != pinged.end()) continue;
    pinged.push_back(generation);
    generation->ping();
  }
  http->post_after(options.ping_every, [this] { ping(); });
}

void ServerState::terminate() {
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
void ServerState::check_drained() {
  if (sequences.empty() && http->busy_connections() == 0) return http->stop();
  http->post_after(std::chrono::milliseconds(20), [this] { check_drained(); });
}

}  // namespace nibble
