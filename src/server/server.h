// Server: the OpenAI-compatible API over one engine: routes, keys, request lifecycle, drain. The
// transport is http_server.h, the words of the API are in generation_request and answer_writer.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/answer/request_record.h"
#include "server/filters/filter_panel.h"
#include "server/http/http_server.h"
#include "server/http/loading_door.h"
#include "server/request/generation_request.h"
#include "server/routes/response_store.h"
#include "server/served_model.h"

namespace nibble {

struct ServerState;

/// A part of the memory plan, for people who look at it: "weights", "kv_cache", ...
struct MemoryPart {
  enum class Place : uint8_t { device, host };
  std::string name;
  int64_t bytes = 0;
  Place place = Place::device;
};

/// served: "/", "/assets/", "/docs" and "/openapi.json" answer.
enum class WebPage : uint8_t { served, off };

enum class PromptLog : uint8_t { no, yes };

/// The sockets on which /sleep, /wake_up and /cancel_all answer.
enum class AdminRoutes : uint8_t { on_admin_socket, on_every_socket };

struct ServerOptions {
  HttpOptions http;
  std::shared_ptr<LoadingDoor> door;   // a door that listens already; empty: start() listens
  std::vector<std::string> api_keys;   // neither these nor a file: any or no key is accepted
  std::filesystem::path api_key_file;  // as Keys::add_lines reads; looked at every key_check
  std::chrono::milliseconds key_check{1'000};  // between looks at files of keys and certificates
  std::vector<std::string> allowed_origins;    // sites whose pages may ask; "*": any. Empty: none
  std::vector<std::string> allowed_hosts;      // names that Host may have, as SiteRules has them
  RequestLimits limits;
  GrammarLimits grammar_limits;
  /// The program and its words that compile structures, as GrammarCompiler has them; empty: they
  /// are compiled in this process.
  std::vector<std::string> structure_worker;
  std::chrono::milliseconds ping_every{10'000};
  std::chrono::milliseconds drain_wait{30'000};  // after the first signal
  std::chrono::milliseconds sleep_idle{0};  // the card is freed after so long without a request
  std::chrono::duration<double> step_deadline{0.0};   // as Engine::Options
  std::function<void(std::string_view)> log;          // what happens to the server; may be empty
  std::function<void(std::string_view)> request_log;  // one line per request; may be empty
  LogFormat log_format = LogFormat::text;
  PromptLog log_prompts = PromptLog::no;
  /// Pinned prefixes on disk; empty: they live as long as the process.
  std::shared_ptr<PrefixStore> prefix_store;
  ResponseStoreLimits response_store;
  FilterOptions filter;
  int image_threads = 1;  // that read images, where the model takes some
  WebPage web = WebPage::served;
  AdminRoutes admin_routes = AdminRoutes::on_admin_socket;
  ProfileListing list_profiles = ProfileListing::on;
  std::vector<MemoryPart> memory_map;  // what GET /stats tells of the plan
};

class Server {
 public:
  /// Binds, reserves the backend's pools and starts the engine. Errors: those of
  /// HttpServer::listen and Engine::start.
  static Result<std::unique_ptr<Server>> start(std::unique_ptr<Backend> backend,
                                               const ModelConfig& config,
                                               const EngineSettings& settings, ServedModel model,
                                               ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  /// Serves until it has drained after SIGINT or SIGTERM; a second signal, or drain_wait, ends what
  /// still runs. A failure of the engine drains it too: all that ran has ended with that error.
  /// Then the engine has stopped: a step that does not end is waited for up to its deadline.
  void run();
  /// Errors: that of Engine::failure(), which ended run().
  Result<void> failure() const;
  /// A request that came by another way than a socket; from any thread. Its exchange is called on
  /// the thread of run().
  void submit(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  /// Ends the server as a signal does; may be called from any thread.
  void terminate();

  /// For start().
  explicit Server(std::shared_ptr<ServerState> state);

 private:
  std::shared_ptr<ServerState> state_;
};

}  // namespace nibble
