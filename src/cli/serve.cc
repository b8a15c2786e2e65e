// nibble serve: the OpenAI-compatible server over one checkpoint.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>

#include "base/sha256.h"
#include "cli/loading/recipe_notice.h"
#include "cli/options/flag_errors.h"
#include "cli/options/flag_report.h"
#include "cli/quantizing/quantize_first.h"
#include "cli/serving/client_setup.h"
#include "cli/serving/declared_quantization.h"
#include "cli/serving/server_options.h"
#include "cli/serving/vllm_flags.h"
#include "model/config/rope.h"
#include "server/server.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"model", "DIR", "", "the checkpoint, where it does not stand first", "", OptionForm::operand},
    kQuantizationOption,
    {"dry-run", "", "false",
     "prints what each option does and the memory plan, then ends; nothing is listened on"},
    kMaxSequencesOption,
    {"max-queued-requests", "N", "1024", "sequences that may wait; more get status 429",
     "max-num-queued-reqs"},
    {"max-queued-tokens", "N", "4M", "tokens of their prompts; more get status 429",
     "max-num-queued-tokens"},
    {"prefix-store", "FOLDER", "", "keeps pinned prefixes (cache_control) there, over restarts"},
    {"prefix-store-max-bytes", "N", "10G",
     "bytes of the folder of --prefix-store; the oldest prefixes go"},
    {"check-integrity", "", "false", "checks every page and slot when idle; ends if one is lost"},
    {"default-chat-template-kwargs", "JSON", "", "template variables below the request's own"},
    kResponseStoreOption,
    kResponseStoreBytesOption,
    kFilterOption,
    kFilterCaOption,
    kFilterFailOption,
    kFilterTimeoutOption,
    kFilterWindowOption,
    kFilterReasoningOption,
    {"completion-special-tokens", "", "", "tags in the text of /v1/completions become tokens"},
});

constexpr auto kOptions =
    joined_options(kServerOptions, kLimitOptions, kClientOptions, kOwnOptions, kEngineOptions,
                   kServingOptions, kTowerOptions, kQuantizeFirstOptions, kModelOptions);

/// The settings that flags give and no file does, read before anything is loaded.
struct ServeRequest {
  ServerOptions server;
  ClientSetup clients;
  Json template_kwargs;
  EngineNeeds needs{.use = EngineUse::serving, .drafts = DefaultDrafts::where_it_pays};
  int32_t waiting_max = 0;
  int64_t waiting_tokens_max = 0;
};

Result<Json> read_template_kwargs(const Arguments& arguments) {
  constexpr std::string_view kFlag = "--default-chat-template-kwargs";
  const auto text = arguments.text(kFlag.substr(2));
  if (!text) return Json();
  auto parsed = parse_json(*text, kFlag);
  if (parsed.ok() && parsed.value().is_object()) return parsed;
  return make_error(ErrorCode::invalid_argument,
                    {.what = kFlag, .expected = "a JSON object", .found = *text});
}

Result<void> read_queue(const Arguments& arguments, ServeRequest& request) {
  FlagErrors errors;
  request.needs.sequences_max = errors.take(read_sequences(arguments));
  request.waiting_max =
      static_cast<int32_t>(errors.take(arguments.integer("max-queued-requests", 0, 1 << 20)));
  request.waiting_tokens_max =
      errors.take(arguments.integer("max-queued-tokens", 1, int64_t{1} << 40));
  return errors.result();
}

Result<ServeRequest> read_request(const Arguments& arguments, Terminal& terminal) {
  ServeRequest request;
  request.server = TRY(read_server_options(arguments, terminal));
  request.clients = TRY(read_client_setup(arguments));
  request.needs.tower = tower_for(request.clients.images);
  request.template_kwargs = TRY(read_template_kwargs(arguments));
  TRY(make_filters(request.clients.profiles, *request.server.filter.store));  // before it loads
  TRY(read_queue(arguments, request));
  return request;
}

/// Reads every value, so that all wrong ones are reported at once; nothing is opened or started.
Result<void> check(const Arguments& arguments) {
  FlagErrors errors;
  ServeRequest request;
  errors.add(check_vllm_flags(arguments));
  errors.add(read_server_flags(arguments));
  errors.add(read_client_setup(arguments));
  errors.add(read_template_kwargs(arguments));
  errors.add(read_queue(arguments, request));
  if (arguments.given(kQuantizationOption.name)) errors.add(quantization_name(arguments));
  errors.add(check_engine_flags(arguments, request.needs));
  return errors.result();
}

/// The plan's parts as the page draws them.
std::vector<MemoryPart> memory_map(const MemoryPlan& plan) {
  return {{"weights", plan.weight_bytes},
          {"tables", plan.table_bytes},
          {"kv_cache", plan.kv_bytes},
          {"state", plan.state_bytes},
          {"workspace", plan.workspace_bytes},
          {"images", plan.media_bytes},
          {"driver", plan.driver_bytes},
          {"free", std::max<int64_t>(plan.memory_bytes - plan.total_bytes(), 0)},
          {"host", plan.host_bytes, MemoryPart::Place::host}};
}

/// A hash of everything that the bytes of a cached prefix depend on: the checkpoint's files, how
/// the backend computes, the rotary angles that flags may have changed, this program's version.
std::array<uint64_t, 4> prefix_fingerprint(const std::filesystem::path& folder,
                                           const EngineSetup& setup) {
  Backend& backend = *setup.model.backend;
  std::vector<std::string> facts = {NIBBLE_VERSION, backend.arithmetic(),
                                    concat(backend.page_bytes(), ":", backend.state_slot_bytes()),
                                    rope_text(make_rope_table(setup.model.config.attention.rope))};
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
    if (file.path().extension() == ".safetensors" || file.path().extension() == ".json")
      facts.push_back(concat(file.path().filename().string(), ":", file.file_size(ignored), ":",
                             file.last_write_time(ignored).time_since_epoch().count()));
  std::ranges::sort(facts);
  std::string text;
  for (const std::string& fact : facts) text += concat(fact.size(), ":", fact, "\n");
  const std::string digits = sha256_hex(text);
  std::array<uint64_t, 4> fingerprint = {};
  for (size_t word = 0; word < fingerprint.size(); ++word)
    std::from_chars(&digits[16 * word], &digits[16 * word] + 16, fingerprint[word], 16);
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
  const PrefixStoreOptions options = {.fingerprint = prefix_fingerprint(folder, setup),
                                      .page_bytes = setup.model.backend->page_bytes(),
                                      .state_slot_bytes = setup.model.backend->state_slot_bytes(),
                                      .bytes_max = static_cast<uint64_t>(bytes)};
  return std::make_shared<PrefixStore>(TRY(PrefixStore::open(*where, options)));
}

/// "http://127.0.0.1:8000/v1".
std::string address_text(const HttpOptions& http, uint16_t port) {
  if (!http.uds.empty()) return concat("Unix socket ", http.uds.string());
  const bool v6 = http.host.find(':') != std::string::npos;
  return concat(http.tls.certificate.empty() ? "http://" : "https://", v6 ? "[" : "", http.host,
                v6 ? "]:" : ":", port, "/v1");
}

/// A warning where anyone who reaches the port may use the model; else empty.
std::string open_door_warning(const Arguments& arguments, const ServerOptions& options) {
  const std::string& host = options.http.host;
  const bool local = !options.http.uds.empty() || host == "::1" || host.starts_with("127.");
  const bool locked = !options.api_keys.empty() || !options.api_key_file.empty() ||
                      !options.http.tls.ca_certs.empty();
  if (local || locked || arguments.enabled("no-auth")) return {};
  return concat("warning: --host ", host,
                " without a key: whoever reaches this port can use the model; set --api-key, or "
                "--no-auth if that is meant\n");
}

/// Prints the lines about foreign options and variables, before anything is loaded.
void tell_of_foreign_words(const Arguments& arguments, Terminal& terminal) {
  const bool reported = arguments.enabled("dry-run");  // reported with all other problems
  for (const std::string& notice : vllm_flag_notices(arguments))
    if (!reported) terminal.err(notice + "\n");
  if (const std::string notice = vllm_variables_notice(); !notice.empty())
    terminal.err(notice + "\n");
}

/// The checkpoint's folder, of the kind that the flags say it is.
Result<std::filesystem::path> find_folder(const Arguments& arguments, Terminal& terminal) {
  const std::filesystem::path folder = TRY(folder_to_load(arguments, terminal));
  TRY(check_quantization(arguments, folder));
  return folder;
}

/// All that a start would say of flags and memory, and no server.
Result<int> dry_run(const Arguments& arguments, ServeRequest request, Terminal& terminal) {
  const std::filesystem::path folder = TRY(find_folder(arguments, terminal));
  EngineSetup setup = TRY(set_up_engine(arguments, folder, request.needs));
  TRY(open_prefix_store(arguments, setup, folder));
  TRY(load_for_clients(std::move(request.clients), setup, folder, setup.model.notice));
  TRY(terminal.out(concat(flag_report(kServeVerb, arguments), "model: ", folder.string(), " on ",
                          setup.model.backend->description(), "\n", setup.model.notice,
                          setup.plan.table(), setup.speculation, "\n")));
  return kExitOk;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const auto begin = std::chrono::steady_clock::now();
  tell_of_foreign_words(arguments, terminal);
  ServeRequest request = TRY(read_request(arguments, terminal));
  request.needs.terminal = &terminal;
  terminal.err(open_door_warning(arguments, request.server));
  if (arguments.enabled("dry-run")) return dry_run(arguments, std::move(request), terminal);
  ServerOptions& options = request.server;
  const auto progress = std::make_shared<LoadingProgress>();
  options.door = TRY(LoadingDoor::open(options.http, [progress] { return progress->part(); }));
  const std::filesystem::path folder = TRY(find_folder(arguments, terminal));
  progress->begin(folder);
  EngineSetup setup = TRY(set_up_engine(arguments, folder, request.needs));
  options.prefix_store = TRY(open_prefix_store(arguments, setup, folder));
  options.memory_map = memory_map(setup.plan);
  options.step_deadline = setup.step_deadline;
  options.image_threads = request.clients.images.threads;
  ServedModel served =
      TRY(load_for_clients(std::move(request.clients), setup, folder, setup.model.notice));
  served.template_kwargs = std::move(request.template_kwargs);
  if (arguments.enabled("completion-special-tokens"))
    served.completion_prompts = SpecialTokens::recognised;
  EngineSettings settings = setup.settings();
  if (arguments.enabled("check-integrity")) settings.integrity = IntegrityChecks::at_idle;
  settings.waiting_max = request.waiting_max;
  settings.waiting_tokens_max = request.waiting_tokens_max;

  terminal.err(concat("model: ", served.names[0], " on ", setup.model.backend->description(), "\n",
                      setup.plan.table(), setup.model.notice, setup.speculation, "\n"));
  terminal.err(setup.model.backend->kernel_table());
  terminal.err(recipe_notice(folder));
  if (!served.chat_template)
    terminal.err("no chat template in this checkpoint: only /v1/completions answers\n");
  const auto server = TRY(Server::start(std::move(setup.model.backend), setup.model.config,
                                        settings, std::move(served), options));
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  terminal.err(concat("ready: ", address_text(options.http, server->port()), " after ",
                      elapsed.count(), " ms\n"));
  server->run();
  terminal.err("stopped\n");
  return end_of_verb("serve", server->failure(), kExitOk, terminal);
}

}  // namespace

const Verb kServeVerb = {.name = "serve",
                         .positionals = "DIR",
                         .summary = "Serves a checkpoint over the APIs of OpenAI and Anthropic",
                         .options = kOptions,
                         .run = run,
                         .foreign = kVllmFlags,
                         .check = check};

}  // namespace nibble
