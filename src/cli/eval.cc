// nibble eval: task accuracy, perplexity, divergence. The first word chooses; anything but a name
// of a measurement is a model.
#include "cli/evaluating/eval_canary.h"
#include "cli/evaluating/eval_kv.h"
#include "cli/evaluating/eval_tasks.h"
#include "cli/evaluating/eval_text.h"
#include "cli/evaluating/in_process_server.h"
#include "cli/verb.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"output", "FILE", "", "results, a line each as they come; a later run goes on there"},
    {"against", "DIR|URL|FILE", "",
     "the same items by another model, or from its results; with kl the reference"},
    {"against-output", "FILE", "", "results of --against, as --output"},
    {"within", "POINTS", "",
     "with --against: exit code 1 if it loses more points over all items; kv: default 1"},
    {"limit", "N", "", "only the first N items of each task and mode"},
    {"temperature", "T", "0", "0 takes the likeliest token"},
    {"seed", "N", "0", "seed of every request"},
    {"max-tokens", "N", "",
     "longest answer of items that say nothing; with perplexity, kl and kv: tokens of the text in "
     "all"},
    {"sequence-tokens", "N", "512", "perplexity and kl: tokens of a piece of text"},
    {"model", "NAME", "", "the name that a URL's server knows it by; default: the first it lists"},
    {"against-model", "NAME", "", "the same of --against"},
    {"api-key", "KEY", "", "the key that a URL's server wants"},
    {"concurrency", "N", "16", "requests that a URL's server has at once"},
    {"logits", "FILE", "", "perplexity and kl: write all logits to this safetensors file"},
    {"tasks", "FILE", "", "canary: decisions of these task files in place of the fixed set", "",
     OptionForm::several},
    {"formats", "LIST", "fp8,turboquant_4bit_nc,nvfp4",
     "kv: formats of keys and values that are compared with bf16"},
    {"kl-max", "NATS", "0.05", "kv: mean divergence that is still harmless, at any position"},
    {"json", "", "", "print one JSON object"},
    kMaxSequencesOption,
});

constexpr auto kOptions = joined_options(kOwnOptions, kClientOptions, kServingOptions,
                                         kTowerOptions, kEngineOptions, kModelOptions);

Result<int> run_eval(const Arguments& arguments, Terminal& terminal) {
  const std::string& word = arguments.positional(0);
  if (word == "perplexity") return eval_perplexity(arguments, terminal);
  if (word == "canary") return eval_canary(arguments, terminal);
  if (word == "kv") return eval_kv(arguments, terminal);
  if (word == "kl") return eval_kl(arguments, terminal);
  return eval_tasks(arguments, terminal);
}

}  // namespace

const Verb kEvalVerb = {
    .name = "eval",
    .positionals = "DIR|URL TASKS...",
    .summary = "Asks tasks and scores the answers; eval perplexity|kl|canary|kv measure otherwise",
    .options = kOptions,
    .run = run_eval};

}  // namespace nibble
