// Checkpoint -> config -> weights -> backend by name.
#include "cli/model_loader.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "model/weights.h"

namespace nibble {

Result<Activations> parse_activations(const Arguments& arguments, std::string_view name) {
  const std::string mode = TRY(arguments.choice(name, {"auto", "bf16", "declared", "f32"}));
  for (const Activations candidate :
       {Activations::automatic, Activations::bf16, Activations::declared})
    if (activations_name(candidate) == mode) return candidate;
  return Activations::f32;
}

Result<ModelRequest> model_request(const Arguments& arguments, std::filesystem::path folder) {
  ModelRequest request{.folder = std::move(folder)};
  request.backend = TRY(arguments.choice("backend", {"cpu", "reference"}));
  request.options.activations = TRY(parse_activations(arguments, "activations"));
  request.options.threads = static_cast<int>(TRY(arguments.integer("threads", 0, 1024)));
  request.options.isa = arguments.text("isa").value_or("");
  return request;
}

Result<LoadedModel> load_model(const ModelRequest& request) {
  LoadedModel model;
  model.checkpoint = std::make_unique<Checkpoint>(TRY(Checkpoint::open(request.folder)));
  model.config = TRY(ModelConfig::parse(model.checkpoint->config()));
  const Weights weights = TRY(Weights::bind(*model.checkpoint, model.config));
  const auto make = request.backend == "reference" ? make_reference_backend : make_cpu_backend;
  model.backend = TRY(make(weights, model.config, request.options));
  return model;
}

}  // namespace nibble
