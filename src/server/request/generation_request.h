// GenerationRequest: a request of any of the APIs, validated and bounded, with its prompt as token
// ids. Parsing touches no socket and no engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/sample/repetition.h"
#include "engine/sequence.h"
#include "server/decode/choice_decoder.h"
#include "server/filters/filter_store.h"
#include "server/http/api_error.h"
#include "server/images/placeholders.h"
#include "server/images/sent_images.h"
#include "server/request/field_reader.h"
#include "server/served_model.h"

namespace nibble {

/// OpenAI's chat completions, completions and responses; Anthropic's messages. All but completions
/// are conversations.
enum class Api : uint8_t { chat, completions, messages, responses };
enum class Delivery : uint8_t { whole, stream };
enum class Echo : uint8_t { none, prompt };
/// continued: the answer continues the text of the conversation's last message.
enum class AnswerStart : uint8_t { anew, continued };
/// id: "token_id:ID".
enum class TokenName : uint8_t { text, id };
/// dropped: max_tokens 0, for the sake of the prompt's log-probabilities.
enum class Completion : uint8_t { given, dropped };

struct RequestLimits {
  int json_depth_max = 64;
  size_t messages_max = 2048;
  size_t tools_max = 128;
  int32_t choices_max = 128;
  size_t stop_strings_max = 16;
  size_t stop_bytes_max = 256;
  size_t logit_bias_max = 1024;
  int32_t logprobs_max = 20;
};

/// A response that is to be stored when it is complete.
struct StoredInput {
  Json items;            // the whole input, earlier turns included
  std::string previous;  // previous_response_id, or empty
};

struct GenerationRequest {
  Api api = Api::chat;
  Delivery delivery = Delivery::whole;
  bool include_usage = false;                     // stream: one more chunk with the usage
  bool usage_in_chunks = false;                   // stream: and in every chunk that so far
  bool return_token_ids = false;                  // ids of prompt and answer
  bool include_reasoning = true;                  // chat: else reasoning is left out
  std::optional<ReasoningField> reasoning_field;  // chat; else the server's policy
  bool return_progress = false;                   // stream: tells how far the prompt is
  std::string model;                              // as the client named it
  std::string profile;                            // the name of the one that holds, or empty
  std::vector<std::vector<int32_t>> prompts;      // chat: exactly one
  int32_t choices = 1;                            // number of choices for each prompt
  int32_t max_tokens = 0;                         // 0: not said
  bool any_max_tokens = false;                    // lowered to what fits, as in the agents' APIs
  std::optional<int32_t> prompt_tokens_max;       // kept from the prompt's end; -1: as many as fit
  enum class PromptEnd : uint8_t { last, first };
  PromptEnd kept_end = PromptEnd::last;
  std::optional<int32_t> max_tokens_default;  // the profile's
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_ids;
  std::vector<std::string> stops;
  StopText stop_text = StopText::cut;
  std::vector<int32_t> allowed_tokens;             // empty: all
  std::vector<std::vector<int32_t>> banned_words;  // the tokens of each
  TokenName token_name = TokenName::text;          // in log-probabilities
  SamplingParams sampling;                         // choice 0
  ParseTools parse_tools = ParseTools::no;
  ToolSchemas schemas;
  SkipSpecial skip_special = SkipSpecial::yes;
  Echo echo = Echo::none;
  AnswerStart answer_start = AnswerStart::anew;
  Completion completion = Completion::given;
  int32_t prompt_logprobs = -1;  // as SequenceRequest's; the answer lists them
  std::optional<int32_t> thinking_budget;
  std::optional<int32_t> answer_reserve;  // tokens that thinking leaves; else the server's policy
  std::optional<RepetitionLimits> repetition;
  int32_t priority = 0;       // smaller goes first
  double timeout_ms = 0.0;    // from submission; 0: none
  uint64_t tenant = 0;        // the tenant of this request
  uint64_t turn_tenant = 0;   // the tenant whose requests it queues with
  uint64_t cache_tenant = 0;  // the tenant whose cached prefixes it shares
  double weight = 1.0;        // weight of its tenant's share of prefill time
  /// chat: images and videos as they came; then images with their headers read and videos decoded,
  /// until `media` has their pixels.
  SentMedia sent;
  std::vector<MeasuredImage> images;
  std::vector<PreparedSteps> videos;
  ExpandedMedia placed;          // the parts of the prompt that they fill
  std::vector<MediaRows> media;  // media in the engine's form
  /// True once nobody waits for the answer: asked while videos are decoded, then dropped. Empty:
  /// somebody always does.
  std::function<bool()> abandoned;
  std::string cache_salt;
  CacheRequest cache;  // chat: places in the prompt; the salt is set by sequence()
  /// The form that the answer must have, and the field that asked for it; compile_structure() makes
  /// its grammar.
  std::optional<GrammarSource> structure;
  std::string structure_field;
  std::shared_ptr<const Grammar> grammar;
  /// Responses: what to store with the answer; empty: it is not stored.
  std::optional<StoredInput> stored_input;
  FilterSet filters;        // filters that its prompt and answers have to pass
  std::string prompt_text;  // for them, if there are any
  Json echoed;              // responses: members of the request that the answer repeats

  /// The number of best tokens for which the engine computes log-probabilities of the prompt, if it
  /// does.
  int32_t prompt_logprobs_wanted() const;
  /// The engine's request for one of prompts.size() * choices sequences; `index` counts the choices
  /// of the first prompt, then of the second. max_tokens may be lowered to what fits. The caller
  /// sets the deadline, on the engine's clock.
  SequenceRequest sequence(const ServedModel& served, size_t index, uint64_t id) const;
  ChoiceDecoder decoder(const ServedModel& served, size_t index) const;
  /// The part of max_tokens that thinking may not use, so that an answer has room.
  int32_t reserved_tokens(const ServedModel& served) const;

 private:
  bool calls_held() const;  // to a grammar
  std::unique_ptr<TokenConstraint> thinking_limit(const ServedModel& served, StartIn start) const;
  std::unique_ptr<TokenConstraint> constraint(const ServedModel& served, size_t index) const;
};

/// The facts in a request's headers; the rest is in its body.
struct ClientFacts {
  uint64_t tenant = 0;
  uint64_t turn_tenant = 0;
  uint64_t cache_tenant = 0;
  double weight = 1.0;
  std::string timeout_seconds;  // X-Request-Timeout, or empty
};
/// Applies them to a request whose fields are read. The shorter of two time limits counts.
std::optional<ApiError> apply_client(const ClientFacts& client, GenerationRequest& request);

/// Makes request.grammar of request.structure. May take seconds: not where others wait to be
/// parsed. Once `abandoned` is true it ends with an error that nobody reads.
std::optional<ApiError> compile_structure(const ServedModel& model, GenerationRequest& request,
                                          const GrammarCompiler::Abandoned& abandoned = {});

/// A request or the reason why not.
using ParsedRequest = std::variant<GenerationRequest, ApiError>;

/// settled: prompt and max_tokens must fit the context. any: only the prompt is wanted.
enum class Lengths : uint8_t { settled, any };

/// A body read as far as that needs no tokenizer and no pixels.
struct OpenedRequest {
  GenerationRequest request;
  Json fields;  // in the words of chats or completions
  const Profile* profile = nullptr;
  bool by_profile = false;  // the request names it
  /// Judges and completes the request by its client, when the fields that need no prompt are read:
  /// before images are fetched and decoded. Empty: nobody does.
  std::function<std::optional<ApiError>(GenerationRequest& request)> judge;
  bool has_media() const { return !request.sent.empty(); }
  bool has_videos() const { return !request.sent.videos.empty(); }
};
using OpenedBody = std::variant<OpenedRequest, ApiError>;
OpenedBody open_generation_request(Api api, std::string_view body, const ServedModel& model,
                                   const RequestLimits& limits = {});
/// Renders the template, tokenises, applies the model's defaults; where lengths are settled it also
/// decodes the images, at most of what fits. May take long for long prompts, and seconds for
/// images: call it off the io thread, and for images off the parser's.
ParsedRequest finish_generation_request(OpenedRequest opened, const ServedModel& model,
                                        const RequestLimits& limits = {},
                                        Lengths lengths = Lengths::settled);

/// Opens and finishes a request in one call.
ParsedRequest parse_generation_request(Api api, std::string_view body, const ServedModel& model,
                                       const RequestLimits& limits = {},
                                       Lengths lengths = Lengths::settled);

/// Every field for which a body of `api` is searched: those that are read and those that are
/// refused by name.
AskedFields fields_asked(Api api);

}  // namespace nibble
