// The flags of `nibble serve` that concern the network, clients and the process; those of the model
// and the engine are in serve.cc.
#pragma once

#include <array>
#include <filesystem>
#include <functional>

#include "cli/verb.h"
#include "server/server.h"

namespace nibble {

inline constexpr Option kServerOptions[] = {
    {"host", "ADDRESS", "127.0.0.1", "address to listen on; 0.0.0.0 for every network"},
    {"port", "N", "8000", "port; 0 picks a free one and prints it"},
    {"uds", "PATH", "", "listen on this Unix socket, not on an address"},
    {"admin-socket", "PATH", "",
     "a Unix socket for /sleep, /wake_up, /cancel_all and reads; the first two answer only there "
     "then"},
    {"ssl-certfile", "FILE", "", "TLS with this certificate and what leads to its root (PEM)"},
    {"ssl-keyfile", "FILE", "", "the certificate's private key (PEM)"},
    {"ssl-ca-certs", "FILE", "", "clients must show a certificate signed by one of these (PEM)"},
    {"allowed-origins", "LIST", "",
     "sites whose pages may read answers (CORS): origins with commas or as JSON list; \"*\": any"},
    {"api-key", "KEY", "", "clients must send this key (several: separated by commas)"},
    {"api-key-file", "FILE", "",
     "keys with rules and limits, one JSON object a line; read again when it changes"},
    {"web", "", "true", "the web page at /, and /docs and /openapi.json"},
    {"max-request-bytes", "N", "8M", "largest request body"},
    {"max-connections", "N", "1024", "open connections; more are turned away"},
    {"sleep-idle", "SECONDS", "0",
     "after so long without a request the weights go to host memory and the card is free; the next "
     "request wakes it; 0: never"},
    {"shutdown-timeout", "SECONDS", "30", "how long running answers may take after a signal"},
    {"log-requests", "", "true", "one line on standard error per request"},
    {"log-format", "KIND", "text", "of those lines: text or json"},
    {"log-prompts", "", "false", "the lines hold the requests' bodies"},
};

/// Two option tables as one.
template <size_t N, size_t M>
constexpr std::array<Option, N + M> joined(const Option (&first)[N], const Option (&second)[M]) {
  std::array<Option, N + M> all = {};
  for (size_t i = 0; i < N; ++i) all[i] = first[i];
  for (size_t i = 0; i < M; ++i) all[N + i] = second[i];
  return all;
}

/// How much of the weights has been read, as a function of now; counts what the process reads.
std::function<double()> loading_progress(const std::filesystem::path& folder);

/// Lines of the log go to terminal.err.
Result<ServerOptions> read_server_options(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
