// Addresses: whose they are, and where a redirect leads. libcurl takes them apart.
#pragma once

#include <string>

#include "base/result.h"

namespace nibble {

/// "https://host:port" of an address, with the port even where it is the usual one, in lower case.
/// Errors: invalid_argument for what is no http or https address with a host and without a user.
Result<std::string> origin_of(const std::string& url);

/// `target`, as a Location header gives it, seen from `url`. Errors: as origin_of, and corrupt for
/// a step from https to http.
Result<std::string> resolved_url(const std::string& url, const std::string& target);

}  // namespace nibble
