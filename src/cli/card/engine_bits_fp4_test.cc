// Pebble in recipes with 4-bit activations, through the kernels for cards of compute capability 12
// with software in place of their instruction: answers do not depend on batch, chunk, cache and
// drafts (engine_bits.h), and greedy text is what the CPU writes. Needs a card.
#include <fstream>

#include "base/json.h"
#include "cli/testing/engine_bits.h"
#include "quantize/quantize.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble::engine_bits {
namespace {

/// Pebble as the recipe makes it, once for all tests.
std::filesystem::path pebble_in(const std::string& name) {
  static const TemporaryFolder work;
  const std::filesystem::path folder = work / name;
  if (std::filesystem::exists(folder)) return folder;
  const Checkpoint source = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  const Recipe recipe = load_recipe(name).value();
  const QuantPlan plan = plan_quantization(source, recipe, Dialect::compressed_tensors).value();
  CHECK(quantize(source, plan, recipe, folder, {}).ok(), name);
  return folder;
}

/// Proofs go to a folder of the test.
class OwnCache {
 public:
  OwnCache() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~OwnCache() { ::unsetenv("XDG_CACHE_HOME"); }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_P(EngineBits, WithProductsOf4BitCodes) {
  if (!on_card()) GTEST_SKIP() << "kernels of a card";
  const OwnCache cache;
  for (const char* recipe : {"w4a4", "w4a4-fp8-head"}) {
    SCOPED_TRACE(recipe);
    expect_the_same_however_it_runs({.folder = pebble_in(recipe),
                                     .activations = Activations::automatic,
                                     .products = Fp4Products::software});
  }
}

/// `mixed` declares activations of 8 bits alone: the rule leaves them out; where they are asked
/// for, prompts are products in FP8 and generated rows are widened.
TEST_P(EngineBits, WithDeclaredActivationsOf8Bits) {
  if (!on_card()) GTEST_SKIP() << "kernels of a card";
  const OwnCache cache;
  expect_the_same_however_it_runs({.folder = pebble_in("mixed"),
                                   .activations = Activations::declared,
                                   .products = Fp4Products::software,
                                   .model_drafts = 0});
}

namespace {

struct Written {
  std::string model;  // what the backend says of itself
  std::vector<std::vector<int32_t>> texts;
};

/// The first `tokens` tokens that greedy decoding writes behind each prompt.
Written greedy(const ModelRequest& request, const std::vector<std::vector<int32_t>>& prompts,
               int32_t tokens) {
  LoadedModel model = load_model(request).value();
  const EngineSettings settings{.pools = {.pages = 96, .state_slots = 8, .rows_max = 516},
                                .sequences_max = 4,
                                .context_max = 512,
                                .cache = CacheMode::off,
                                .step_ms = 1e6};
  CHECK(model.backend->reserve(settings.pools).ok());
  const int32_t vocab = model.config.vocab_rows;
  EngineCore core(*model.backend, model.config, Sampler(vocab, Sampler::all_sampleable(vocab)),
                  settings);
  for (size_t i = 0; i < prompts.size(); ++i) {
    SequenceRequest sequence{.id = i + 1, .prompt = prompts[i], .max_tokens = tokens};
    sequence.sampling.temperature = 0;
    core.submit(std::move(sequence));
  }
  Written written{.model = model.backend->description()};
  written.texts.resize(prompts.size());
  while (!core.idle())
    for (const EngineEvent& event : core.step())
      if (const auto* fresh = std::get_if<NewTokens>(&event))
        written.texts[fresh->id - 1].insert(written.texts[fresh->id - 1].end(),
                                            fresh->tokens.begin(), fresh->tokens.end());
  return written;
}

/// Questions that Pebble answers without thinking.
struct Questions {
  Tokenizer tokenizer = Tokenizer::load(NIBBLE_SOURCE_DIR "/pebble/model").value();
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> answers;

  explicit Questions(size_t count) {
    std::ifstream lines(NIBBLE_SOURCE_DIR "/pebble/tasks/world.jsonl");
    for (std::string line; prompts.size() < count && std::getline(lines, line);) {
      const Json item = parse_json(line, "world.jsonl").value();
      if (item.find("thinking")->as_bool()) continue;
      const Json& message = item.find("messages")->as_array().front();
      const std::string text = concat("<|im_start|>user\n", message.find("content")->as_string(),
                                      "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
      prompts.push_back(tokenizer.encode(text, SpecialTokens::recognised).value());
      answers.push_back(item.find("answer")->as_string());
    }
  }
  /// An answer up to the end of its turn; a model rambles behind it.
  std::string answer(const Written& written, size_t i) const {
    const std::string text = tokenizer.decode(written.texts[i], SkipSpecial::no);
    return text.substr(0, text.find("<|im_end|>"));
  }
  int right(const Written& written) const {
    int count = 0;
    for (size_t i = 0; i < answers.size(); ++i) count += answer(written, i) == answers[i] ? 1 : 0;
    return count;
  }
};

}  // namespace

/// Inputs near the border of two codes fall to either side, and a text that the model is not sure
/// of then goes its own way: so answers count, of which the model is sure.
TEST_P(EngineBits, GreedyTextOf4BitCodesIsTheCpus) {
  if (!on_card()) GTEST_SKIP() << "kernels of a card";
  const OwnCache cache;
  const Questions questions(24);
  ASSERT_EQ(questions.prompts.size(), 24U);
  for (const char* recipe : {"w4a4", "w4a4-fp8-head"}) {
    ModelRequest request{.folder = pebble_in(recipe), .backend = "cpu"};
    request.options.activations = Activations::declared;
    const Written expected = greedy(request, questions.prompts, 24);
    request.backend = "cuda";
    request.wanted.asked = Fp4Products::software;
    const Written found = greedy(request, questions.prompts, 24);
    EXPECT_NE(found.model.find("products of codes, 4-bit ones emulated"), std::string::npos)
        << found.model;
    int same = 0;
    for (size_t i = 0; i < questions.prompts.size(); ++i)
      same += questions.answer(expected, i) == questions.answer(found, i) ? 1 : 0;
    std::fprintf(stderr, "%s: %d of 24 greedy answers are the CPU's; right %d, on the CPU %d\n",
                 recipe, same, questions.right(found), questions.right(expected));
    EXPECT_GE(same, 23);
    EXPECT_GE(questions.right(found), questions.right(expected) - 1);
    EXPECT_GE(questions.right(expected), 18);
  }
}

}  // namespace nibble::engine_bits
