// LocalSession: a model answering in this process, for run and chat: the same requests, engine and
// decoding as the server, without sockets.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/options/image_options.h"
#include "cli/serving/engine_setup.h"
#include "server/answer/response_json.h"
#include "server/request/generation_request.h"

namespace nibble {

struct LocalAnswer {
  ChoiceText text;
  Finished finished;
  double first_token_seconds = 0.0;
  double total_seconds = 0.0;
  int32_t reasoning_tokens = 0;

  /// "12 prompt tokens in 30 ms, 34 generated in 55 ms (618 tokens/s), stop".
  std::string stats() const;
};

class LocalSession {
 public:
  /// Loads the model; with it tokenizer and template. `images`: the limits of those that may come;
  /// absent: none do.
  static Result<std::unique_ptr<LocalSession>> open(const Arguments& arguments,
                                                    const std::filesystem::path& folder,
                                                    const std::optional<ImageFlags>& images,
                                                    Terminal& terminal);

  LocalSession(ServedModel served, std::unique_ptr<Engine> engine)
      : served_(std::move(served)), engine_(std::move(engine)) {}

  const ServedModel& served() const { return served_; }
  Engine& engine() { return *engine_; }

  using Show = std::function<Result<void>(const OutputEvent&)>;
  using Stop = std::function<bool()>;
  /// One answer to a request in the server's words ({"messages": ..} or {"prompt": ..}). `show`
  /// gets its pieces as they come; `stop` is asked often and ends the answer as cancelled.
  Result<LocalAnswer> ask(Api api, const Json& body, const Show& show, const Stop& stop);

 private:
  ServedModel served_;
  std::unique_ptr<Engine> engine_;
};

// Rows for a verb's option table, as kSamplingOptions: sampling, as the API names it.
inline constexpr Option kMaxTokensOption = {"max-tokens", "N", "",
                                            "longest answer; default: what the context holds"};
inline constexpr Option kTemperatureOption = {
    "temperature", "T", "", "0 takes the likeliest token; default: generation_config.json"};
inline constexpr Option kTopPOption = {
    "top-p", "P", "",
    "nucleus sampling: tokens of this much mass; default: generation_config.json"};
inline constexpr Option kTopKOption = {
    "top-k", "N", "", "only the N likeliest tokens; default: generation_config.json"};
inline constexpr Option kMinPOption = {
    "min-p", "P", "",
    "only tokens of at least P times the best's probability; default: generation_config.json"};
inline constexpr Option kSeedOption = {"seed", "N", "", "same seed, same answer; default: random"};

inline constexpr Option kThinkingBudgetOption = {
    "thinking-budget", "N", "", "most tokens of thinking; then it is closed by force"};

inline constexpr std::array kSamplingOptions = {
    kMaxTokensOption, kTemperatureOption, kTopPOption,          kTopKOption,
    kMinPOption,      kSeedOption,        kThinkingBudgetOption};

/// The rows above as fields of a request body; only those the user gave.
Result<Json> sampling_body(const Arguments& arguments);

}  // namespace nibble
