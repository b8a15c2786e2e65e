// ServerState: what handlers of routes share. Private to the server; all of it on the server's
// thread, except where a member says otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "server/answer/generation.h"
#include "server/answer/request_record.h"
#include "server/clients/fair_tasks.h"
#include "server/clients/keys.h"
#include "server/clients/quotas.h"
#include "server/filters/filter_panel.h"
#include "server/http/site_rules.h"
#include "server/metrics.h"
#include "server/routes/routes.h"
#include "server/server.h"
#include "server/task_thread.h"

namespace nibble {

struct ServerState {
  ServerState(ServedModel served, ServerOptions chosen)
      : model(std::move(served)), options(std::move(chosen)), responses(options.response_store) {}

  struct Live {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<RequestRecord> record;
  };

  /// Finds the route and calls its handler, or refuses.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  std::shared_ptr<RequestRecord> record_of(const HttpRequest& request) const;
  std::shared_ptr<HttpExchange> recorded(std::shared_ptr<HttpExchange> exchange,
                                         const std::shared_ptr<RequestRecord>& record);
  /// Headers of every answer: its id, the key's limits, what a browser must know.
  std::vector<HttpHeader> headers_for(const RequestRecord& record);
  bool allows_origin(std::string_view origin) const;
  /// Without keys all clients are one tenant, whatever key they send; turns are by address then.
  ClientFacts client_of(const Call& call) const;
  /// Reads the keys again when their file has changed; a broken one leaves those in use.
  Result<void> read_keys();
  /// The filters of all, of the request's key, of its profile. Any thread.
  FilterSet filters_for(const RequestRecord& record, const std::string& profile) const;
  /// Those of new connections, if their files have changed; bad ones leave those in use.
  Result<void> read_certificates();
  void watch_files();
  /// Submits a request to the engine; its events come by pump().
  void start(GenerationRequest request, const Call& call);
  void pump();
  /// Sends what a verdict has freed.
  void release(const std::shared_ptr<Generation>& generation);
  void settle(const Live& live);
  void write_line(RequestRecord& record) const;
  void ping();
  void terminate();
  void check_drained();

  ServedModel model;
  ServerOptions options;
  std::shared_ptr<const Keys> keys = std::make_shared<const Keys>();
  std::unique_ptr<KeyFile> key_file;  // on the parser's thread, once it runs
  FileWatch certificates{{}};         // likewise
  SiteRules sites;
  Quotas quotas;
  Metrics metrics;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<FairTasks> compiler;  // waits for structures, which may take seconds
  std::unique_ptr<FairTasks> image_readers;  // empty: the model is given text alone
  std::unique_ptr<TaskThread> parser;
  std::map<uint64_t, Live> sequences;  // by id, while they run
  ResponseStore responses;
  std::unique_ptr<FilterPanel> filters;
  std::map<std::string, FilterSet> profile_filters;  // by name; as it was at start
  std::vector<Live> judged;                          // all is said, filters have not spoken yet
  int signals = 0;
};

}  // namespace nibble
