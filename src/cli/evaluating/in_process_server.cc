// Requests go to the server's own handler; answers come back on its thread.
#include "cli/evaluating/in_process_server.h"

#include <algorithm>
#include <chrono>

namespace nibble {
namespace {

constexpr int64_t kRequestsPerSequence = 2;  // so that the next prompts are ready
constexpr int64_t kRequestsMax = 200;        // less than the server keeps waiting to be parsed
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

/// An exchange without a connection.
class InProcessServer::Collector final : public HttpExchange {
 public:
  Collector(std::string id, InProcessServer& owner) : id_(std::move(id)), owner_(owner) {}
  void respond(HttpResponse response) override {
    owner_.put({std::move(id_), std::move(response)});
  }
  // Requests that ask for a stream are refused before.
  void start_stream(HttpResponse response) override { streamed_ = std::move(response); }
  void write(std::string piece) override { streamed_.body += piece; }
  void finish_stream() override { respond(std::move(streamed_)); }
  void on_gone(std::function<void()>) override {}

 private:
  std::string id_;
  InProcessServer& owner_;
  HttpResponse streamed_;
};

Result<std::unique_ptr<InProcessServer>> InProcessServer::start(const Arguments& arguments,
                                                                ClientSetup clients,
                                                                const std::filesystem::path& folder,
                                                                const EngineNeeds& needs,
                                                                Terminal& terminal) {
  EngineSetup setup = TRY(set_up_engine(arguments, folder, needs));
  terminal.err(setup.model.notice);
  const int image_threads = clients.images.threads;
  std::string notice;
  ServedModel served = TRY(load_for_clients(std::move(clients), setup, folder, notice));
  terminal.err(notice);
  EngineSettings settings = setup.settings();
  settings.waiting_max = 1 << 20;  // requests on their way are bounded by the caller
  ServerOptions options;
  options.structure_worker = terminal.structure_worker();
  options.http.listening = Listening::off;
  options.step_deadline = setup.step_deadline;
  options.image_threads = image_threads;
  auto server = TRY(Server::start(std::move(setup.model.backend), setup.model.config, settings,
                                  std::move(served), options));
  return std::make_unique<InProcessServer>(std::move(server), setup.plan.sequences_max);
}

InProcessServer::InProcessServer(std::unique_ptr<Server> server, int32_t sequences_max)
    : sequences_max_(sequences_max),
      server_(std::move(server)),
      serving_([this] { server_->run(); }) {}

InProcessServer::~InProcessServer() { stop(End::now); }

void InProcessServer::ask(std::string id, std::string path, std::string body) {
  server_->submit({.method = "POST",
                   .path = std::move(path),
                   .headers = {{"content-type", "application/json"}},
                   .body = std::move(body)},
                  std::make_shared<Collector>(std::move(id), *this));
}

void InProcessServer::put(Answer answer) {
  const std::scoped_lock lock(mutex_);
  answers_.push_back(std::move(answer));
  arrived_.notify_one();
}

std::vector<InProcessServer::Answer> InProcessServer::take() {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kLook, [&] { return !answers_.empty(); });
  return std::exchange(answers_, {});
}

int64_t InProcessServer::requests_max() const {
  return std::min(kRequestsPerSequence * sequences_max_, kRequestsMax);
}

void InProcessServer::stop(End end) {
  if (!serving_.joinable()) return;
  server_->terminate();
  if (end == End::now) server_->terminate();
  serving_.join();
}

}  // namespace nibble
