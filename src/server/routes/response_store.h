// ResponseStore: finished responses of the Responses API, in memory, so that a client may go on
// from one by its id. Bounded in number and bytes: the oldest go. A response belongs to one
// tenant; to others it is not there.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "base/json.h"
#include "server/http/api_error.h"
#include "server/request/generation_request.h"

namespace nibble {

struct ResponseStoreLimits {
  size_t responses_max = 0;  // 0: nothing is stored
  size_t bytes_max = size_t{256} << 20;
};

class ResponseStore {
 public:
  using Limits = ResponseStoreLimits;
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // May be called from any thread.
  bool enabled() const { return limits_.responses_max > 0; }
  /// `response` as it was answered, `input` as StoredInput::items. One too large alone is dropped.
  void put(uint64_t tenant, const Json& response, const Json& input);
  std::optional<Json> response(uint64_t tenant, const std::string& id) const;
  std::optional<Json> input(uint64_t tenant, const std::string& id) const;
  /// False: there was none.
  bool remove(uint64_t tenant, const std::string& id);
  size_t bytes() const;

 private:
  struct Entry {
    uint64_t tenant = 0;
    std::string id;
    std::string response, input;  // JSON text: a fraction of what parsed values take
    size_t bytes() const { return id.size() + response.size() + input.size() + sizeof(Entry); }
  };
  const Entry* find(uint64_t tenant, const std::string& id) const;
  void drop(const std::string& id);

  Limits limits_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the oldest first
  std::map<std::string, std::list<Entry>::iterator> by_id_;
  size_t bytes_ = 0;
};

/// A body of /v1/responses made whole: what went before `previous_response_id` comes first in its
/// input, and that field is gone. `stored`: what to put when the answer is there; empty if the body
/// says `"store": false`. A body that is no object comes back as it is, for the parser to refuse.
struct ContinuedBody {
  std::string body;
  std::optional<StoredInput> stored;
};
std::variant<ContinuedBody, ApiError> continue_response(const ResponseStore& store, uint64_t tenant,
                                                        std::string body, int json_depth_max);

}  // namespace nibble
