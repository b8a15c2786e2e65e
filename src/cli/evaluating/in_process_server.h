// A server without sockets in this process: whole answers to whole requests, for commands that ask
// many questions of one checkpoint.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/serving/client_setup.h"
#include "cli/serving/engine_setup.h"
#include "server/server.h"

namespace nibble {

class InProcessServer {
 public:
  /// Loads `folder` as the rows of kEngineOptions, kServingOptions, kTowerOptions, kClientOptions
  /// and kModelOptions say. Errors: those of set_up_engine and Server::start.
  static Result<std::unique_ptr<InProcessServer>> start(const Arguments& arguments,
                                                        ClientSetup clients,
                                                        const std::filesystem::path& folder,
                                                        const EngineNeeds& needs,
                                                        Terminal& terminal);
  /// Requests that still run are ended.
  ~InProcessServer();
  InProcessServer(const InProcessServer&) = delete;
  InProcessServer& operator=(const InProcessServer&) = delete;

  struct Answer {
    std::string id;  // as ask() was told
    HttpResponse response;
  };
  /// POSTs a JSON body. The answer comes by take(). More than requests_max() at once may be
  /// refused.
  void ask(std::string id, std::string path, std::string body);
  /// The answers that have arrived, after a wait of at most 100 ms.
  std::vector<Answer> take();
  /// Requests to have on their way, so that the next prompts are ready.
  int64_t requests_max() const;
  /// Errors: that of Server::failure().
  Result<void> failure() const { return server_->failure(); }
  /// Ends it. `now`: requests that still run are not waited for.
  enum class End : uint8_t { drain, now };
  void stop(End end);

  /// For start().
  InProcessServer(std::unique_ptr<Server> server, int32_t sequences_max);

 private:
  class Collector;
  void put(Answer answer);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Answer> answers_;
  int32_t sequences_max_;
  std::unique_ptr<Server> server_;  // may answer until it is gone
  std::thread serving_;
};

}  // namespace nibble
