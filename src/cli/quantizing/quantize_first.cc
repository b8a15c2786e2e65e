// The copy that --quantize makes: where it lies, when it is made. Rounding itself is quantize/.
#include "cli/quantizing/quantize_first.h"

#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/source_fingerprint.h"
#include "cli/options/folders.h"
#include "cli/quantizing/quantize_work.h"
#include "cli/serving/model_loader.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

Result<fs::path> home_of_copies(const Arguments& arguments) {
  if (const auto given = arguments.text("quantized-folder")) return fs::path(*given);
  if (const fs::path cache = user_folder("XDG_CACHE_HOME", ".cache"); !cache.empty())
    return cache / "quantized";
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--quantize: neither XDG_CACHE_HOME nor HOME says where to keep the "
                             "result",
                     .advice = "name a place with --quantized-folder"});
}

/// "qwen" for the folder models/qwen, "org--name" for a model of the Hugging Face cache.
std::string name_of_source(const std::string& word) {
  const auto hub = hub_name_of(word);
  if (!hub) return folder_name(word);
  std::string name = hub->repository;
  return name.replace(name.find('/'), 1, "--");
}

Result<std::string> name_of_copy(const Checkpoint& checkpoint, const std::string& word,
                                 const Recipe& recipe) {
  const std::string state = TRY(source_fingerprint(checkpoint));
  const std::string all = concat(state, "\n", recipe.text, "\n", NIBBLE_VERSION);
  return concat(name_of_source(word), "-", recipe.name, "-", sha256_hex(all).substr(0, 16));
}

Result<void> make_copy(const Checkpoint& checkpoint, const Recipe& recipe, const fs::path& copy,
                       Terminal& terminal) {
  const QuantPlan plan = TRY(plan_quantization(checkpoint, recipe, Dialect::compressed_tensors));
  std::error_code failure;
  fs::create_directories(copy.parent_path(), failure);
  if (failure)
    return make_error(ErrorCode::io, {.what = concat("cannot make ", copy.parent_path().string()),
                                      .found = failure.message(),
                                      .advice = "name another place with --quantized-folder"});
  terminal.err(concat("quantizing to ", copy.string(), " (recipe ", recipe.name, ")\n"));
  TRY(quantize_watched({.checkpoint = checkpoint,
                        .plan = plan,
                        .recipe = recipe,
                        .output = copy,
                        .options = {.threads = usable_cores()}},
                       terminal));
  return {};
}

}  // namespace

Result<fs::path> folder_to_load(const Arguments& arguments, Terminal& terminal) {
  const auto wanted = arguments.text("quantize");
  const bool random = !wanted && wants_random_weights(arguments);
  const fs::path source = TRY(
      first_folder(arguments, terminal, random ? SnapshotNeeds::papers : SnapshotNeeds::weights));
  if (!wanted) return source;
  const Recipe recipe = TRY(load_recipe(*wanted));
  const Checkpoint checkpoint = TRY(Checkpoint::open(source));
  const fs::path copy = TRY(home_of_copies(arguments)) /
                        TRY(name_of_copy(checkpoint, arguments.positional(0), recipe));
  // config.json is the last file that quantize writes.
  if (fs::exists(copy / "config.json"))
    terminal.err(concat("quantized before: ", copy.string(), "\n"));
  else
    TRY(make_copy(checkpoint, recipe, copy, terminal));
  return copy;
}

}  // namespace nibble
