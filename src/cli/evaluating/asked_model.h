// AskedModel: whoever answers the tasks of `nibble eval`: a checkpoint served in this process, or
// an OpenAI-compatible server at a URL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/verb.h"
#include "eval/task_exchange.h"

namespace nibble {

class AskedModel {
 public:
  struct Reply {
    size_t number = 0;  // as ask() was told
    int status = 0;     // HTTP status; 0: there was no answer
    std::string body;   // or why there was none
  };
  virtual ~AskedModel() = default;
  /// The name that requests must say; empty: the server has one model only.
  virtual const std::string& model() const = 0;
  /// Facts by which an earlier run is known to have asked the same model in the same way.
  virtual const Json& head() const = 0;
  virtual void ask(size_t number, const TaskRequest& request) = 0;
  /// The replies that have arrived, after a wait of at most 100 ms.
  virtual std::vector<Reply> take() = 0;
  /// Requests to have on their way at once.
  virtual int64_t requests_max() const = 0;
  /// Errors: the engine in this process has failed.
  virtual Result<void> failure() const = 0;
};

/// "http://..." or "https://...".
bool is_url(std::string_view word);

struct UrlSettings {
  std::string url;    // with or without /v1
  std::string model;  // empty: the first that the server lists
  std::string api_key;
  int64_t concurrency = 16;
};
/// Errors: invalid_argument for a URL that is none; io and unsupported when the server does not
/// list its models and none is named.
Result<std::unique_ptr<AskedModel>> ask_url(const UrlSettings& settings);

/// A folder, or ORG/NAME[@REV] of the Hugging Face cache. Errors: those of checkpoint_folder and
/// InProcessServer::start.
Result<std::unique_ptr<AskedModel>> ask_folder(const Arguments& arguments, const std::string& word,
                                               Terminal& terminal);

/// The model that `word` means, by --concurrency, --api-key and, for a URL, the name in the option
/// `model_flag`. Errors: those of ask_url and ask_folder.
Result<std::unique_ptr<AskedModel>> ask_word(const Arguments& arguments, const std::string& word,
                                             std::string_view model_flag, Terminal& terminal);

/// The server's message in a reply that is no answer, or why there was no reply.
std::string refusal_of(const AskedModel::Reply& reply);

}  // namespace nibble
