// The speed of a model in this process: prompts and generation at a depth, for several sequences at
// once, through the engine that serves. No server and no text: random token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"

namespace nibble {

enum class ModelTestKind : uint8_t { prompt, generation };

struct ModelTest {
  ModelTestKind kind = ModelTestKind::prompt;
  int32_t tokens = 512;  // of a prompt to compute, or to generate, for each sequence
  int32_t depth = 0;     // tokens that each sequence has in its cache before
  int32_t batch = 1;     // sequences at once
};
/// The name that llama-bench gives it: "pp512", "tg128 @ d4096".
std::string model_test_name(const ModelTest& test);
/// Positions that a sequence of the test needs.
int32_t context_of(const ModelTest& test);

class ModelBench {
 public:
  /// `engine` has a prefix cache and must outlive it; `interrupted` is asked often.
  ModelBench(Engine& engine, int32_t vocab_rows, std::function<bool()> interrupted)
      : engine_(engine), vocab_rows_(vocab_rows), interrupted_(std::move(interrupted)) {}

  /// Tokens a second, of all sequences together. Prompt: tokens that were computed, from the first
  /// submission to the last first token. Generation: tokens from the last first token until each
  /// sequence has `tokens` more. Errors: cancelled; those of the engine; no_memory if the prefix
  /// cache does not hold the depth.
  Result<double> measure(const ModelTest& test);

 private:
  struct Stream;
  Result<void> fill(const ModelTest& test);
  Result<double> measure_prompt(const ModelTest& test);
  Result<double> measure_generation(const ModelTest& test);
  Result<void> submit(Stream& stream, std::vector<int32_t> prompt, int32_t max_tokens);
  std::vector<int32_t> ids(const ModelTest& test, int32_t stream, int32_t tail);
  /// Takes what the engine published; `streams` count tokens and ends.
  Result<void> take(std::vector<Stream>& streams);
  Result<void> drain(std::vector<Stream>& streams);

  Engine& engine_;
  int32_t vocab_rows_;
  std::function<bool()> interrupted_;
  int32_t depth_ = 0;   // of the test that runs
  uint64_t draws_ = 0;  // so that no two prompts end alike
};

}  // namespace nibble
