// nibble synth: a random-weight checkpoint of a real shape, for capacity and load tests without a
// download.
#include "base/file.h"
#include "cli/loading/thread_count.h"
#include "cli/verb.h"
#include "model/synthetic/synthetic_checkpoint.h"
#include "text/tokenizer/made_tokenizer.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"layout", "NAME", "mixed",
     "mixed (NVFP4 experts, FP8 projections and head), mixed-nvfp4-head, nvfp4, w4a4 (BF16 head), "
     "fp8 or bf16"},
    {"layers", "N", "", "layers of the model; default: as many as the config says"},
    {"seed", "N", "1", "seed of the random numbers"},
    kThreadsOption,
};

constexpr int64_t kLayersMax = 1024;

/// The config with this many layers; a list of their kinds is cut or goes on from its beginning.
void set_layers(Json& section, int64_t layers) {
  section.set("num_hidden_layers", layers);
  const Json* kinds = section.find("layer_types");
  if (kinds == nullptr || !kinds->is_array() || kinds->as_array().empty()) return;
  const Json::Array& old = kinds->as_array();
  Json::Array wanted;
  for (int64_t i = 0; i < layers; ++i) wanted.push_back(old[static_cast<size_t>(i) % old.size()]);
  section.set("layer_types", std::move(wanted));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
  const std::string path = arguments.positional(0);
  SyntheticOptions options;
  options.layout = TRY(parse_weight_layout(*arguments.text("layout")));
  options.seed = static_cast<uint64_t>(TRY(arguments.integer("seed", 0, INT64_MAX)));
  options.threads = TRY(read_threads(arguments));
  const std::string text = TRY(read_text_file(path, kConfigBytesMax));
  Json config = TRY(parse_json(text, path));
  if (arguments.text("layers")) {
    const int64_t layers = TRY(arguments.integer("layers", 1, kLayersMax));
    Json* section = config.find("text_config");
    set_layers(section != nullptr && section->is_object() ? *section : config, layers);
  }
  options.scope = SyntheticScope::folder;
  for (MadeFile& file : TRY(made_tokenizer(config)))
    options.files.emplace_back(std::move(file.name), std::move(file.text));
  TRY(write_synthetic_checkpoint(config, arguments.positional(1), options));
  terminal.err(concat("written: ", arguments.positional(1), ", random weights, layout ",
                      weight_layout_name(options.layout), "\n"));
  return kExitOk;
}

}  // namespace

const Verb kSynthVerb = {.name = "synth",
                         .positionals = "CONFIG.json OUT",
                         .summary = "Writes a random-weight checkpoint of a model's shape",
                         .options = kOptions,
                         .run = run};

}  // namespace nibble
