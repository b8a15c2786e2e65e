// nibble serve: the OpenAI-compatible server over one checkpoint.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "backend/cuda/cuda_backend.h"
#include "cli/answer_options.h"
#include "cli/engine_setup.h"
#include "cli/profiles_file.h"
#include "cli/recipe_notice.h"
#include "cli/served_names.h"
#include "cli/speculation.h"
#include "cli/verb.h"
#include "server/server.h"
#include "server/task_thread.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"host", "ADDRESS", "127.0.0.1", "address to listen on; 0.0.0.0 for every network"},
    {"port", "N", "8000", "port; 0 picks a free one and prints it"},
    {"api-key", "KEY", "", "clients must send this key (several: separated by commas)"},
    kServedNamesOption,
    kProfilesOption,
    kMaxModelLenOption,
    {"max-num-seqs", "N", "16", "sequences computed at once; more wait"},
    {"max-queued-requests", "N", "1024", "sequences that may wait; more get status 429"},
    kKvCacheBytesOption,
    kMemoryShareOption,
    kPrefixCachingOption,
    kCacheModeOption,
    kSnapshotsOption,
    kHostCacheOption,
    {"prefix-store", "FOLDER", "", "keeps pinned prefixes (cache_control) there, over restarts"},
    {"prefix-store-max-bytes", "N", "10G", "size of that folder; the oldest prefixes go"},
    kMaxBatchedTokensOption,
    kSpeculativeOption,
    kStepTimeOption,
    kLongPromptOption,
    {"check-integrity", "", "false", "checks every page and slot when idle; ends if one is lost"},
    {"default-chat-template-kwargs", "JSON", "", "template variables below the request's own"},
    kAnswerReserveOption,
    kStrictFieldsOption,
    kReasoningFieldOption,
    kResponseStoreOption,
    kResponseStoreBytesOption,
    {"completion-special-tokens", "", "", "tags in the text of /v1/completions become tokens"},
    {"max-request-bytes", "N", "8M", "largest request body"},
    {"web", "", "true", "the web page at /, and /docs and /openapi.json"},
    {"max-connections", "N", "1024", "open connections; more are turned away"},
    {"sleep-idle", "SECONDS", "0",
     "after so long without a request the weights go to host memory and the card is free; the next "
     "request wakes it; 0: never"},
    {"shutdown-timeout", "SECONDS", "30", "how long running answers may take after a signal"},
    {"log-requests", "", "true", "one line on standard error per request"},
    kBackendOption,
    kActivationsOption,
    kKvCacheOption,
    kLoadFormatOption,
    kCardLimitOption,
    kThreadsOption,
    kIsaOption,
};

Result<ServedModel> served_model(const Arguments& arguments, const EngineSetup& setup,
                                 const std::filesystem::path& folder) {
  ServedModel served = TRY(load_served_model(folder, setup.model.config));
  served.names = served_names(arguments);
  served.profiles = TRY(read_profiles(arguments));
  served.policy = TRY(read_answer_policy(arguments));
  served.context_max = setup.plan.context_max;
  served.created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  if (arguments.enabled("completion-special-tokens"))
    served.completion_prompts = SpecialTokens::recognised;
  const auto kwargs = arguments.text("default-chat-template-kwargs");
  if (!kwargs) return served;
  const auto parsed = parse_json(*kwargs, "--default-chat-template-kwargs");
  if (!parsed.ok() || !parsed.value().is_object())
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--default-chat-template-kwargs", .expected = "a JSON object", .found = *kwargs});
  served.template_kwargs = parsed.value();
  return served;
}

/// The plan's parts as the page draws them.
std::vector<MemoryPart> memory_map(const MemoryPlan& plan) {
  return {{"weights", plan.weight_bytes},
          {"kv_cache", plan.kv_bytes},
          {"state", plan.state_bytes},
          {"workspace", plan.workspace_bytes},
          {"driver", plan.driver_bytes},
          {"free", std::max<int64_t>(plan.memory_bytes - plan.total_bytes(), 0)},
          {"host", plan.host_bytes, MemoryPart::Place::host}};
}

/// What the bytes of a cached prefix depend on: the checkpoint's files, the backend and how it
/// computes, this program's version.
std::array<uint64_t, 4> prefix_fingerprint(const std::filesystem::path& folder,
                                           const EngineSetup& setup, const Arguments& arguments) {
  std::vector<std::string> facts = {
      std::string(setup.model.backend->name()), arguments.text("activations").value_or(""),
      NIBBLE_VERSION,
      concat(setup.model.backend->page_bytes(), ":", setup.model.backend->state_slot_bytes())};
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
    if (file.path().extension() == ".safetensors" || file.path().extension() == ".json")
      facts.push_back(concat(file.path().filename().string(), ":", file.file_size(ignored), ":",
                             file.last_write_time(ignored).time_since_epoch().count()));
  std::ranges::sort(facts);
  std::array<uint64_t, 4> fingerprint = {};
  for (size_t lane = 0; lane < fingerprint.size(); ++lane) {
    uint64_t hash = 0xCBF29CE484222325U + lane;  // FNV-1a, four offsets
    for (const std::string& fact : facts)
      for (const char c : concat(fact, "\n"))
        hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3U;
    fingerprint[lane] = hash;
  }
  return fingerprint;
}

Result<std::shared_ptr<PrefixStore>> open_prefix_store(const Arguments& arguments,
                                                       const EngineSetup& setup,
                                                       const std::filesystem::path& folder) {
  const auto where = arguments.text("prefix-store");
  if (!where) return std::shared_ptr<PrefixStore>();
  if (setup.plan.pools.host_slots == 0 || setup.plan.pools.host_pages == 0)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--prefix-store without host memory",
                       .expected = "room for at least one state and one page",
                       .found = concat(setup.plan.host_bytes, " bytes"),
                       .advice = "raise --host-cache-memory-bytes"});
  const auto bytes = TRY(arguments.integer("prefix-store-max-bytes", 1, INT64_MAX));
  const PrefixStoreOptions options = {.fingerprint = prefix_fingerprint(folder, setup, arguments),
                                      .page_bytes = setup.model.backend->page_bytes(),
                                      .state_slot_bytes = setup.model.backend->state_slot_bytes(),
                                      .bytes_max = static_cast<uint64_t>(bytes)};
  return std::make_shared<PrefixStore>(TRY(PrefixStore::open(*where, options)));
}

Result<ServerOptions> server_options(const Arguments& arguments, Terminal& terminal) {
  ServerOptions options;
  options.http.host = *arguments.text("host");
  if (options.http.host == "localhost") options.http.host = "127.0.0.1";
  options.http.port = static_cast<uint16_t>(TRY(arguments.integer("port", 0, 65535)));
  options.http.limits.body_bytes_max =
      static_cast<uint64_t>(TRY(arguments.integer("max-request-bytes", 1024, int64_t{1} << 32)));
  options.http.limits.connections_max =
      static_cast<size_t>(TRY(arguments.integer("max-connections", 1, 1 << 20)));
  options.api_keys = split_list(arguments.text("api-key").value_or(""));
  options.response_store = TRY(read_response_store(arguments));
  options.sleep_idle = std::chrono::seconds(TRY(arguments.integer("sleep-idle", 0, 86400 * 365)));
  options.drain_wait = std::chrono::seconds(TRY(arguments.integer("shutdown-timeout", 0, 86400)));
  if (arguments.enabled("log-requests")) {
    // On its own thread: whoever stops reading standard error must not stop the server. Lines
    // beyond the queue are counted and told of once there is room.
    constexpr size_t kLinesMax = 4096;
    auto writer = std::make_shared<TaskThread>(kLinesMax);
    auto lost = std::make_shared<std::atomic<int64_t>>(0);
    options.log = [&terminal, writer, lost](std::string_view line) {
      const bool queued = writer->post([&terminal, lost, text = concat(line, "\n")] {
        if (const int64_t count = lost->exchange(0); count > 0)
          terminal.err(concat(count, " log lines lost: standard error was not read\n"));
        terminal.err(text);
      });
      if (!queued) ++*lost;
    };
  }
  return options;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path folder = arguments.positional(0);
  ServerOptions options = TRY(server_options(arguments, terminal));
  const auto sequences = static_cast<int32_t>(TRY(arguments.integer("max-num-seqs", 1, 65536)));
  EngineSetup setup = TRY(
      set_up_engine(arguments, folder, {.use = EngineUse::serving, .sequences_max = sequences}));
  options.prefix_store = TRY(open_prefix_store(arguments, setup, folder));
  options.memory_map = memory_map(setup.plan);
  if (!arguments.enabled("web")) options.web = WebPage::off;
  ServedModel served = TRY(served_model(arguments, setup, folder));
  EngineSettings settings = setup.settings();
  if (arguments.enabled("check-integrity")) settings.integrity = IntegrityChecks::at_idle;
  settings.waiting_max =
      static_cast<int32_t>(TRY(arguments.integer("max-queued-requests", 0, 1 << 20)));

  terminal.err(concat("model: ", served.names[0], " on ", setup.model.backend->description(), "\n",
                      setup.plan.table()));
  if (setup.model.backend->name() == "cuda") terminal.err(cuda_kernel_table(*setup.model.backend));
  terminal.err(recipe_notice(folder));
  if (!served.chat_template)
    terminal.err("no chat template in this checkpoint: only /v1/completions answers\n");
  const auto server = TRY(Server::start(std::move(setup.model.backend), setup.model.config,
                                        settings, std::move(served), options));
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  const std::string host = options.http.host.find(':') == std::string::npos
                               ? options.http.host
                               : concat("[", options.http.host, "]");
  terminal.err(
      concat("ready: http://", host, ":", server->port(), "/v1 after ", elapsed.count(), " ms\n"));
  server->run();
  terminal.err("stopped\n");
  return kExitOk;
}

}  // namespace

const Verb kServeVerb = {.name = "serve",
                         .positionals = "DIR",
                         .summary = "Serves a checkpoint over the OpenAI API",
                         .options = kOptions,
                         .run = run};

}  // namespace nibble
