// The server of a load test as Beast sees it: addresses and the head of a request. For the files of
// this module that speak HTTP alone.
#pragma once

#include "bench/http_stream.h"
#include "bench/load_client.h"

namespace nibble {

/// "/v1/models" below the path of a URL, which may end with /v1 already.
std::string path_below(const HttpUrl& url, std::string_view path);

/// A request without a body.
HttpStream::Message message_for(const LoadTarget& target, http::verb verb, std::string_view path);

/// Errors: io for a host that is not known.
Result<Connections::Endpoints> resolve(asio::io_context& io, const HttpUrl& url);

}  // namespace nibble
