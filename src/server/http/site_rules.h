// SiteRules: which names of this server and which sites' pages requests may come by. A page that a
// person looks at can send requests to servers of their machine: as another site (its Origin header
// says which), or by a name that leads here (DNS rebinding: the Host header says which).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/api_error.h"
#include "server/http/http.h"

namespace nibble {

class SiteRules {
 public:
  struct Options {
    /// Names, with or without a port, that Host may have beside those of this machine; "*": any.
    std::vector<std::string> hosts;
    /// Sites whose pages may change something here; "*": any.
    std::vector<std::string> origins;
  };
  /// checked: Host must be a name of this machine (localhost, 127.0.0.0/8, ::1) or listed. Else
  /// only a list given by the operator applies.
  enum class LocalNames : uint8_t { any, checked };

  SiteRules() = default;
  SiteRules(Options options, LocalNames names) : options_(std::move(options)), names_(names) {}

  /// 403 for a Host that is not this server's, or for a page of another site that asks for more
  /// than to read.
  std::optional<ApiError> refusal_of(const HttpRequest& request) const;

 private:
  bool is_ours(std::string_view host) const;
  bool may_change(const HttpRequest& request, std::string_view origin) const;

  Options options_;
  LocalNames names_ = LocalNames::any;
};

}  // namespace nibble
