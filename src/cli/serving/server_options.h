// The flags of `nibble serve` that concern the network, clients and the process; those of the model
// and the engine are in serve.cc.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>

#include "cli/verb.h"
#include "server/server.h"

namespace nibble {

inline constexpr auto kServerOptions = std::to_array<Option>({
    {"host", "ADDRESS", "127.0.0.1", "address to listen on; 0.0.0.0 for every network"},
    {"port", "N", "8000", "port; 0 picks a free one and prints it"},
    {"uds", "PATH", "", "listen on this Unix socket, not on an address"},
    {"admin-socket", "PATH", "",
     "a Unix socket where /sleep, /wake_up, /cancel_all and all that reads answer; its owner needs "
     "no key"},
    {"enable-admin-routes", "", "false",
     "/sleep, /wake_up and /cancel_all answer to clients too (vLLM: VLLM_SERVER_DEV_MODE=1)"},
    {"ssl-certfile", "FILE", "", "TLS with this certificate and what leads to its root (PEM)"},
    {"ssl-keyfile", "FILE", "", "the certificate's private key (PEM)"},
    {"ssl-ca-certs", "FILE", "", "clients must show a certificate signed by one of these (PEM)"},
    {"allowed-origins", "LIST", "",
     "sites whose pages may ask and read answers (CORS): origins with commas or as JSON list; "
     "\"*\": any"},
    {"allowed-hosts", "LIST", "",
     "names by which clients may call this server, beside those of this machine; without a key on "
     "a "
     "loopback address no others are let in; \"*\": any"},
    {"trusted-proxies", "LIST", "",
     "addresses or ranges (10.0.0.0/8) of proxies whose X-Forwarded-For says who asks"},
    {"api-key", "KEY", "",
     "clients must send one of these keys: all words up to the next option, or with commas", "",
     OptionForm::several, OptionSecrecy::secret},
    {"api-key-file", "FILE", "",
     "keys with rules and limits, one JSON object a line; read again when it changes"},
    {"no-auth", "", "false",
     "no warning where --host lets others than this machine in without a key"},
    {"web", "", "true", "the web page at /, and /docs and /openapi.json"},
    {"list-profiles", "", "true", "/v1/models lists each profile as NAME:PROFILE"},
    {"sleep-idle", "SECONDS", "0",
     "after so long without a request the weights go to host memory and the card is free; the next "
     "request wakes it; 0: never"},
    {"shutdown-timeout", "SECONDS", "30", "how long running answers may take after a signal"},
    {"log-requests", "", "true", "one line on standard error per request"},
    {"disable-log-requests", "", "false", "the same as --no-log-requests, as vLLM calls it",
     "disable-uvicorn-access-log"},
    {"log-format", "text|json", "text", "form of the lines of --log-requests"},
    {"log-prompts", "", "false", "the lines of --log-requests hold the bodies of requests"},
});

/// A bound on what clients may do: its flag, what the flag may be, where it goes.
struct LimitFlag {
  Option option;
  int64_t least = 0;
  int64_t most = 0;
  void (*set)(ServerOptions& options, int64_t value) = nullptr;
};

inline constexpr LimitFlag kLimitFlags[] = {
    {{"max-connections", "N", "1024", "connections open at once; more are turned away"},
     1,
     1 << 20,
     [](ServerOptions& o, int64_t v) { o.http.limits.connections_max = static_cast<size_t>(v); }},
    {{"max-connections-per-address", "N", "0",
      "connections open at once from one address, or from one IPv6 /64; 0: a quarter of all"},
     0,
     1 << 20,
     [](ServerOptions& o, int64_t v) {
       const size_t quarter = std::max<size_t>(o.http.limits.connections_max / 4, 1);
       o.http.limits.connections_per_address_max = v == 0 ? quarter : static_cast<size_t>(v);
     }},
    {{"max-header-bytes", "N", "16K", "bytes of a request's header"},
     1024,
     1 << 24,
     [](ServerOptions& o, int64_t v) {
       o.http.limits.header_bytes_max = static_cast<uint32_t>(v);
     }},
    {{"max-header-lines", "N", "100", "lines of a request's header"},
     1,
     10000,
     [](ServerOptions& o, int64_t v) { o.http.limits.header_lines_max = static_cast<size_t>(v); }},
    {{"max-request-bytes", "N", "32M", "bytes of a request's body"},
     1024,
     int64_t{1} << 32,
     [](ServerOptions& o, int64_t v) { o.http.limits.body_bytes_max = static_cast<uint64_t>(v); }},
    {{"max-body-memory", "N", "1G",
      "bytes of the bodies of all requests that are read or parsed, a quarter of them for one "
      "address; more get status 429"},
     1024,
     int64_t{1} << 40,
     [](ServerOptions& o, int64_t v) { o.http.limits.bodies_bytes_max = static_cast<size_t>(v); }},
    {{"header-timeout", "SECONDS", "10",
      "longest wait for a request's header, and for a TLS handshake"},
     1,
     3600,
     [](ServerOptions& o, int64_t v) { o.http.limits.header_wait = std::chrono::seconds(v); }},
    {{"body-timeout", "SECONDS", "60", "longest wait for a request's body"},
     1,
     86400,
     [](ServerOptions& o, int64_t v) { o.http.limits.body_wait = std::chrono::seconds(v); }},
    {{"keep-alive-timeout", "SECONDS", "75", "longest pause between requests of a connection"},
     1,
     86400,
     [](ServerOptions& o, int64_t v) { o.http.limits.idle_wait = std::chrono::seconds(v); }},
    {{"send-timeout", "SECONDS", "30",
      "longest wait for a client that does not read; its request then ends"},
     1,
     86400,
     [](ServerOptions& o, int64_t v) { o.http.limits.write_wait = std::chrono::seconds(v); }},
    {{"max-send-bytes", "N", "4M",
      "bytes kept for a client that reads slowly; its request then ends"},
     65536,
     int64_t{1} << 32,
     [](ServerOptions& o, int64_t v) { o.http.limits.output_bytes_max = static_cast<size_t>(v); }},
    {{"max-json-depth", "N", "64", "levels of the JSON of a request"},
     4,
     256,
     [](ServerOptions& o, int64_t v) { o.limits.json_depth_max = static_cast<int>(v); }},
    {{"max-messages", "N", "2048", "messages of a chat"},
     1,
     1 << 20,
     [](ServerOptions& o, int64_t v) { o.limits.messages_max = static_cast<size_t>(v); }},
    {{"max-tools", "N", "128", "tools of a request"},
     1,
     1 << 16,
     [](ServerOptions& o, int64_t v) { o.limits.tools_max = static_cast<size_t>(v); }},
    {{"max-choices", "N", "128", "choices of a request: n times its prompts"},
     1,
     1 << 16,
     [](ServerOptions& o, int64_t v) { o.limits.choices_max = static_cast<int32_t>(v); }},
    {{"max-logprobs", "N", "20", "largest top_logprobs, logprobs and prompt_logprobs"},
     0,
     1000,
     [](ServerOptions& o, int64_t v) { o.limits.logprobs_max = static_cast<int32_t>(v); }},
    {{"max-stop-strings", "N", "16", "stop strings of a request"},
     0,
     1024,
     [](ServerOptions& o, int64_t v) { o.limits.stop_strings_max = static_cast<size_t>(v); }},
    {{"max-stop-bytes", "N", "256", "bytes of a stop string"},
     1,
     65536,
     [](ServerOptions& o, int64_t v) { o.limits.stop_bytes_max = static_cast<size_t>(v); }},
    {{"max-logit-bias", "N", "1024", "entries of a request's logit_bias"},
     0,
     1 << 20,
     [](ServerOptions& o, int64_t v) { o.limits.logit_bias_max = static_cast<size_t>(v); }},
    {{"max-structure-bytes", "N", "64K", "bytes of the schemas, patterns and choices of a request"},
     64,
     1 << 24,
     [](ServerOptions& o, int64_t v) { o.grammar_limits.text_bytes_max = static_cast<size_t>(v); }},
    {{"max-structure-choices", "N", "1024", "alternatives of a structured choice"},
     1,
     1 << 16,
     [](ServerOptions& o, int64_t v) { o.grammar_limits.choices_max = static_cast<size_t>(v); }},
    {{"max-schema-depth", "N", "32", "levels of a schema"},
     1,
     128,
     [](ServerOptions& o, int64_t v) { o.grammar_limits.schema.depth_max = static_cast<int>(v); }},
    {{"max-schemas", "N", "4096", "schemas within a schema"},
     1,
     1 << 16,
     [](ServerOptions& o, int64_t v) { o.grammar_limits.schema.nodes_max = static_cast<int>(v); }},
    {{"structure-timeout", "SECONDS", "30", "longest processor time to compile a structure"},
     1,
     600,
     [](ServerOptions& o, int64_t v) { o.grammar_limits.time_max = std::chrono::seconds(v); }},
    {{"structure-memory-bytes", "N", "256M", "most memory to compile a structure"},
     1 << 20,
     int64_t{1} << 36,
     [](ServerOptions& o, int64_t v) {
       o.grammar_limits.memory_bytes_max = static_cast<size_t>(v);
     }},
    {{"structure-cache-bytes", "N", "256M", "bytes of compiled structures that are kept"},
     0,
     int64_t{1} << 36,
     [](ServerOptions& o, int64_t v) {
       o.grammar_limits.cache_bytes_max = static_cast<size_t>(v);
     }},
};

inline constexpr auto kLimitOptions = [] {
  std::array<Option, std::size(kLimitFlags)> rows = {};
  std::ranges::transform(kLimitFlags, rows.begin(), &LimitFlag::option);
  return rows;
}();

/// Tells how much of the weights has been read; counts what the process reads. May be called from
/// any thread.
class LoadingProgress {
 public:
  /// From this call on the files of `folder` are read; before it nothing has been done.
  void begin(const std::filesystem::path& folder);
  /// 0 to 1, and a little more: other files are read too.
  double part() const;

 private:
  std::atomic<double> bytes_before_ = 0.0;
  std::atomic<double> bytes_ = 0.0;  // bytes of weights that are loaded; 0: not begun
};

/// All that the flags say but for the log and the filters: nothing is opened or started.
Result<ServerOptions> read_server_flags(const Arguments& arguments);

/// The same with the log and the filters, which it opens. Lines of the log go to terminal.err.
Result<ServerOptions> read_server_options(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
