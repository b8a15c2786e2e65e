// GrammarCompiler: from what an answer must be (a JSON Schema, a regular expression, a choice, a
// grammar, tool calls) to something that says which tokens may come next. The parser is xgrammar's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_constraint.h"
#include "grammar/schema_check.h"

namespace nibble {

/// A function that may be called. Parameters without strict are any that its names allow.
struct CallableTool {
  std::string name;
  Json parameters;  // a JSON Schema of an object, or null: any
};

/// The form that an answer must have.
struct GrammarSource {
  enum class Kind : uint8_t {
    json_object,  // any JSON object
    json_schema,  // text: the schema
    regex,        // text
    choice,       // one of `choices`
    ebnf,         // text: xgrammar's notation (GBNF's is close), from `root`
    tool_calls,   // one or more calls of `tools`, in Qwen's form
    free_calls,   // any text, and calls of `tools` in it
  };
  Kind kind = Kind::json_object;
  std::string text;
  std::vector<std::string> choices;
  std::vector<CallableTool> tools;
  bool parallel_calls = true;
  int32_t tool_begin = -1;  // ids of <tool_call> and </tool_call>
  int32_t tool_end = -1;
};

struct GrammarLimits {
  size_t text_bytes_max = 65536;
  size_t choices_max = 1024;
  SchemaLimits schema;
  uint64_t looks_max = 100'000'000;             // at tokens (grammar_work.h), of one compilation
  std::chrono::milliseconds time_max{30'000};   // of a processor, likewise
  size_t memory_bytes_max = size_t{256} << 20;  // likewise, at its most
  size_t cache_bytes_max = size_t{256} << 20;
  std::chrono::nanoseconds mask_time_max{4'000'000};  // of a processor; of more a mask is long
};

/// A compiled grammar; immutable, shared.
class Grammar;

class GrammarCompiler {
 public:
  /// The bytes of every token, empty for those that are no text (tags, padding), and the ids that
  /// may end an answer.
  struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<int32_t> stop_ids;
    std::vector<int32_t> tags;  // those of tokens that a source may name: tool_begin, tool_end
    /// The tokens in which the model is used to write a text, for drafts of what a grammar forces.
    /// Any thread. Empty: only tokens that are the only ones allowed count as forced.
    std::function<std::vector<int32_t>(std::string_view)> encode = {};
  };
  /// True once nobody waits for a compilation any more.
  using Abandoned = std::function<bool()>;
  /// `vocabulary` is called once, before the first compilation. `worker`: the program and its words
  /// that run run_structure_worker(); then structures are compiled in processes of their own, with
  /// the limits on memory and time. Without it they are compiled here, and only what is counted of
  /// their work has a bound.
  explicit GrammarCompiler(std::function<Vocabulary()> vocabulary, const GrammarLimits& limits = {},
                           std::vector<std::string> worker = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  /// Any thread, which waits. `abandoned` is asked every few milliseconds. Errors: invalid_argument
  /// (what cannot be enforced or understood, by its place in a schema; too large; more looks than
  /// looks_max, more memory than memory_bytes_max, more time than time_max), cancelled (abandoned),
  /// io (no process can be started).
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source,
                                                 const Abandoned& abandoned = {});

  /// The memory of what is kept.
  size_t kept_bytes() const;
  /// The process that compiles, or -1. For tests.
  pid_t worker() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The answer follows `grammar`: from its first token, or, if the prompt left off inside thinking,
/// from after the token `think_end`, where up to two line breaks may come first. `think_end` -1:
/// from the first token.
std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         int32_t think_end);

}  // namespace nibble
