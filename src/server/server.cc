// Keys, the life of the process and the meeting of engine events with requests. Which path does
// what: routes.cc.
#include "server/server.h"

#include <algorithm>

#include "base/sha256.h"
#include "server/answer/answer_writer.h"
#include "server/images/logged_body.h"
#include "server/request/cache_salt.h"
#include "server/server_state.h"

namespace nibble {

namespace {

constexpr size_t kParsingMax = 256;  // bodies waiting to be parsed
/// Structures that are compiled at once. Each is of another client and has a process of its own, so
/// one more client than there are cores only shares them.
constexpr size_t kCompilingMax = 8;

/// Where anybody of this machine may ask, a page in a browser of it must not be taken for them.
SiteRules site_rules_of(const ServerOptions& options) {
  const bool keyless = options.api_keys.empty() && options.api_key_file.empty();
  const bool checked = keyless && is_loopback(options.http.host);
  return {{.hosts = options.allowed_hosts, .origins = options.allowed_origins},
          checked ? SiteRules::LocalNames::checked : SiteRules::LocalNames::any};
}

/// Another program, model or kind of device computes other numbers: system_fingerprint tells.
std::string fingerprint_of(const ServedModel& model, const Backend& backend) {
  const std::string facts = concat(NIBBLE_VERSION, "\n", model.names.front(), "\n",
                                   model.context_max, "\n", backend.description());
  constexpr size_t kDigits = 10;
  return concat("fp_", sha256_hex(facts).substr(0, kDigits));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<Backend> backend,
                                              const ModelConfig& config,
                                              const EngineSettings& settings, ServedModel model,
                                              ServerOptions options) {
  CHECK(!model.names.empty(), "a served model needs a name");
  auto state = std::make_shared<ServerState>(std::move(model), std::move(options));
  ServerState* s = state.get();
  s->metrics.cache_is(settings.cache);
  s->model.fingerprint = fingerprint_of(s->model, *backend);
  std::shared_ptr<FilterStore>& store = s->options.filter.store;
  if (store == nullptr) store = std::make_shared<FilterStore>(s->options.log);
  s->sites = site_rules_of(s->options);
  s->profile_filters = TRY(make_filters(s->model.profiles, *store));
  TRY(s->read_keys());
  const HttpHandler handler = [s](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    s->handle(std::move(request), std::move(exchange));
  };
  if (s->options.door == nullptr) s->http = TRY(HttpServer::listen(s->options.http, handler));
  Engine::Options engine_options{.settings = settings, .sampleable = s->model.sampleable()};
  engine_options.store = s->options.prefix_store;
  engine_options.sleep_idle_ms = static_cast<double>(s->options.sleep_idle.count());
  engine_options.step_deadline = s->options.step_deadline;
  engine_options.report = [s](const std::string& line) {
    if (s->options.log) s->options.log(line);
  };
  engine_options.on_events = [s] { s->http->post([s] { s->pump(); }); };
  s->engine = TRY(Engine::start(std::move(backend), config, std::move(engine_options)));
  if (s->options.door) s->http = std::exchange(s->options.door, nullptr)->hand_over(handler);
  s->model.grammars =
      std::make_shared<GrammarCompiler>([s] { return s->model.grammar_vocabulary(); },
                                        s->options.grammar_limits, s->options.structure_worker);
  s->filters = std::make_unique<FilterPanel>(
      s->options.filter,
      FilterPanel::Server{
          .post = [s](std::function<void()> task) { s->http->post(std::move(task)); },
          .post_after =
              [s](std::chrono::milliseconds delay, std::function<void()> task) {
                s->http->post_after(delay, std::move(task));
              }});
  s->compiler = std::make_unique<FairTasks>(FairTasks::Limits{.threads = kCompilingMax});
  if (s->model.images)
    s->image_readers = std::make_unique<FairTasks>(
        FairTasks::Limits{.threads = static_cast<size_t>(s->options.image_threads),
                          .waiting_max = kParsingMax,
                          .waiting_of_a_client_max = kParsingMax});
  s->parser = std::make_unique<TaskThread>(kParsingMax);
  const TlsFiles& tls = s->options.http.tls;
  if (!tls.certificate.empty())
    s->certificates = FileWatch({tls.certificate, tls.key, tls.ca_certs});
  s->certificates.changed();  // they are in use
  s->http->on_terminate([s] { s->terminate(); });
  s->http->post_after(s->options.ping_every, [s] { s->ping(); });
  s->watch_files();
  return std::make_unique<Server>(std::move(state));
}

Server::Server(std::shared_ptr<ServerState> state) : state_(std::move(state)) {}

Server::~Server() {
  state_->parser.reset();         // its tasks post to all below
  state_->image_readers.reset();  // its tasks post to compiler and http
  state_->compiler.reset();       // its tasks post to http
  state_->engine.reset();         // likewise
  state_->filters.reset();        // likewise
  state_->http.reset();
}

uint16_t Server::port() const { return state_->http->port(); }
void Server::run() {
  state_->http->run();
  state_->engine->wait_stopped();
}
Result<void> Server::failure() const { return state_->engine->failure(); }
void Server::submit(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  state_->http->post([s = state_.get(), shared, exchange = std::move(exchange)] {
    s->handle(std::move(*shared), exchange);
  });
}
void Server::terminate() {
  state_->http->post([s = state_.get()] { s->terminate(); });
}

Result<void> ServerState::read_keys() {
  if (key_file == nullptr && !options.api_key_file.empty())
    key_file = std::make_unique<KeyFile>(options.api_key_file);
  auto fresh = std::make_shared<Keys>();
  for (const std::string& key : options.api_keys) fresh->add(key);
  if (key_file) {
    options.filter.store->sweep();
    const auto text = TRY(key_file->changed_text());
    if (!text) return {};
    TRY(fresh->add_lines(*text, key_file->path().string(), *options.filter.store));
  }
  const auto exchange = [this, fresh] { keys = fresh; };
  if (http == nullptr)
    exchange();
  else
    http->post(exchange);
  return {};
}

Result<void> ServerState::read_certificates() {
  if (!certificates.changed()) return {};
  TRY(http->renew_certificates());
  if (options.log) options.log("the certificates have changed: new connections get the new ones");
  return {};
}

void ServerState::watch_files() {
  if (key_file == nullptr && options.http.tls.certificate.empty()) return;
  http->post_after(options.key_check, [this] {
    parser->post([this] {
      const auto tell = [this](const Result<void>& read, std::string_view stays) {
        if (!read.ok() && options.log) options.log(concat(read.error().message, stays));
      };
      tell(read_keys(), "; the keys in use stay");
      tell(read_certificates(), "; the certificates in use stay");
    });
    watch_files();
  });
}

FilterSet ServerState::filters_for(const RequestRecord& record, const std::string& profile) const {
  FilterSet set = options.filter.filters;
  if (record.key) add_filters(set, record.key->filters);
  const auto of_profile = profile_filters.find(profile);
  if (of_profile != profile_filters.end()) add_filters(set, of_profile->second);
  return set;
}

ClientFacts ServerState::client_of(const Call& call) const {
  const HttpRequest& request = call.request;
  ClientFacts facts{.timeout_seconds = std::string(request.header("x-request-timeout"))};
  facts.turn_tenant = tenant_of(client_group(client_behind(
      request.client, request.header_list("x-forwarded-for"), options.http.trusted_proxies)));
  if (const auto& key = call.record->key) {
    facts.tenant = facts.turn_tenant = tenant_of(key_of(request));
    facts.cache_tenant = key->cache == CacheSharing::shared ? 0 : facts.tenant;
    facts.weight = key->weight;
  }
  return facts;
}

std::shared_ptr<RequestRecord> ServerState::record_of(const HttpRequest& request) const {
  auto record = std::make_shared<RequestRecord>();
  record->id = request_id_of(request);
  record->trace_id = trace_id_of(request);
  record->path = request.path;
  record->posted = request.method == "POST";
  if (allows_origin(request.header("origin"))) record->origin = request.header("origin");
  record->begin = std::chrono::steady_clock::now();
  if (options.log_prompts == PromptLog::yes) record->body = without_base64(request.body);
  if (!keys->empty()) record->key = keys->find(key_of(request));
  return record;
}

std::shared_ptr<HttpExchange> ServerState::recorded(std::shared_ptr<HttpExchange> exchange,
                                                    const std::shared_ptr<RequestRecord>& record) {
  const auto headers = [this](const RequestRecord& about) { return headers_for(about); };
  const auto ended = [this](const std::shared_ptr<RequestRecord>& about) {
    if (about->holds_seat) quotas.release(*about->key);
    if (!about->generates) write_line(*about);
  };
  return std::make_shared<RecordedExchange>(std::move(exchange), record,
                                            RecordedExchange::Hooks{headers, ended});
}

bool ServerState::allows_origin(std::string_view origin) const {
  const auto same = [&](const std::string& allowed) { return allowed == "*" || allowed == origin; };
  return !origin.empty() && std::ranges::any_of(options.allowed_origins, same);
}

std::vector<HttpHeader> ServerState::headers_for(const RequestRecord& record) {
  std::vector<HttpHeader> headers = {{"x-request-id", record.id}};
  if (!record.origin.empty()) {
    headers.push_back({"Access-Control-Allow-Origin", record.origin});
    headers.push_back({"Vary", "Origin"});
    headers.push_back({"Access-Control-Expose-Headers", "*"});
  }
  if (record.key)
    for (HttpHeader& header : quotas.headers(*record.key, std::chrono::steady_clock::now()))
      headers.push_back(std::move(header));
  return headers;
}

namespace {

/// A browser asks what it may ask before it sends a key:
/// https://fetch.spec.whatwg.org/#cors-preflight-fetch.
bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("access-control-request-method").empty();
}

HttpResponse preflight_answer(const HttpRequest& request) {
  const std::string_view asked = request.header("access-control-request-headers");
  return {.status = 200,
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Allow-Headers",
                       asked.empty() ? "Authorization, Content-Type" : std::string(asked)},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

void ServerState::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const Door door = request.entrance == Entrance::admin                    ? Door::admin
                    : options.admin_routes == AdminRoutes::on_every_socket ? Door::clients_and_admin
                                                                           : Door::clients;
  const RouteChoice choice = find_route(request.method, request.path, door);
  const auto record = record_of(request);
  exchange = recorded(std::move(exchange), record);
  if (!record->origin.empty() && is_preflight(request))
    return exchange->respond(preflight_answer(request));
  const bool known = keys->empty() || record->key || door == Door::admin;
  auto error = sites.refusal_of(request);
  if (!error) error = refusal_of(request, choice, known ? Caller::known : Caller::unknown);
  if (!error && record->key && choice.route->counted()) {
    error = quotas.begin(*record->key, record->begin);
    record->holds_seat = !error;
  }
  if (error) {
    metrics.refuse(error->status);
    HttpResponse response = error_response(choice.api, *error);
    if (error->status == 405) response.headers.push_back({"Allow", choice.allowed});
    return exchange->respond(std::move(response));
  }
  choice.route->handler(*this, {.route = choice.route,
                                .request = std::move(request),
                                .exchange = std::move(exchange),
                                .record = record});
}

void ServerState::start(GenerationRequest request, const Call& call) {
  metrics.ask(request.profile);
  call.record->generates = true;
  call.record->model = request.model.empty() ? model.names.front() : request.model;
  auto generation = std::make_shared<Generation>(model, *engine, std::move(request), call.exchange,
                                                 call.record->id);
  const std::weak_ptr<Generation> weak = generation;
  generation->hold_for(*filters, [this, weak] {
    if (const auto alive = weak.lock()) release(alive);
  });
  generation->on_response([this](const Generation& done, const Json& response) {
    responses.put(done.tenant(), response, done.stored_input().items);
  });
  generation->start();
  for (const uint64_t id : generation->ids()) {
    sequences[id] = {generation, call.record};
    metrics.begin(id, Metrics::Time::clock::now());
  }
  if (generation->done()) metrics.refuse(generation->error_status());
  if (generation->ids().empty()) {
    call.record->generates = false;
    return write_line(*call.record);
  }
  call.exchange->on_gone([weak] {
    if (const auto alive = weak.lock()) alive->abandon();
  });
}

/// Takes everything the engine has published, then lets each request send once.
void ServerState::pump() {
  const auto now = Metrics::Time::clock::now();
  std::vector<Live> touched;
  for (EngineEvent& event : engine->take_events()) {
    const uint64_t id = std::visit([](const auto& e) { return e.id; }, event);
    const auto found = sequences.find(id);
    CHECK(found != sequences.end(), "an event of the unknown sequence ", id);
    Generation& generation = *found->second.generation;
    RequestRecord& record = *found->second.record;
    metrics.take(event, now);
    const bool spoke = std::holds_alternative<NewTokens>(event);
    if (spoke && record.first_token == RequestRecord::Time{}) record.first_token = now;
    if (!generation.has_news()) touched.push_back(found->second);
    if (std::holds_alternative<Finished>(event)) sequences.erase(found);
    generation.take(std::move(event));
  }
  for (const Live& live : touched) {
    live.generation->flush();
    if (!live.generation->settled()) continue;
    if (live.generation->done())
      settle(live);
    else
      judged.push_back(live);
  }
  if (engine->stopped() && signals == 0 && !engine->failure().ok()) terminate();
}

void ServerState::release(const std::shared_ptr<Generation>& generation) {
  generation->flush();
  if (!generation->settled() || !generation->done()) return;
  const auto found = std::ranges::find(judged, generation, &Live::generation);
  if (found == judged.end()) return;
  settle(*found);
  judged.erase(found);
}

void ServerState::settle(const Live& live) {
  RequestRecord& record = *live.record;
  record.counts = live.generation->counts();
  record.outcome = live.generation->outcome();
  metrics.call(live.generation->calls());
  if (record.key)
    quotas.charge_tokens(*record.key, record.counts.completion, std::chrono::steady_clock::now());
  write_line(record);
}

/// Reads that succeeded are not reported: probes and scrapes arrive every second.
void ServerState::write_line(RequestRecord& record) const {
  if (!options.request_log || std::exchange(record.written, true)) return;
  if (!record.posted && record.status < 400) return;
  options.request_log(record.line(options.log_format));
}

void ServerState::ping() {
  std::vector<std::shared_ptr<Generation>> pinged;
  for (const auto& [id, live] : sequences) {
    if (std::ranges::find(pinged, live.generation) != pinged.end()) continue;
    pinged.push_back(live.generation);
    live.generation->ping();
  }
  http->post_after(options.ping_every, [this] { ping(); });
}

void ServerState::terminate() {
  ++signals;
  if (signals == 1) {
    http->stop_accepting();
    engine->shutdown(Shutdown::finish_running);
    if (options.log && !sequences.empty())
      options.log(
          concat("stopping: answers still running: ", sequences.size(), "; at most ",
                 std::chrono::duration_cast<std::chrono::seconds>(options.drain_wait).count(),
                 " s, a second signal ends them"));
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
