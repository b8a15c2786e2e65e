// Checkpoint -> config -> weights -> backend by name.
#include "cli/model_loader.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
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

namespace {

Result<KvCache> parse_kv_cache(const Arguments& arguments) {
  const std::string name =
      TRY(arguments.choice("kv-cache-dtype", {"auto", "bf16", "bfloat16", "fp8", "fp8_e4m3"}));
  if (name == "auto") return KvCache::automatic;
  return name.starts_with("fp8") ? KvCache::fp8 : KvCache::bf16;
}

/// The CPU backends keep F32 alone. Asked before anything is read.
Result<void> check_kv_cache(const std::string& backend, KvCache kind) {
  if (backend == "cuda" || kind == KvCache::automatic) return {};
  return make_error(ErrorCode::unsupported,
                    {.what = "--kv-cache-dtype",
                     .expected = concat("auto (F32) with --backend ", backend),
                     .found = kv_cache_name(kind)});
}

}  // namespace

Result<ModelRequest> model_request(const Arguments& arguments, std::filesystem::path folder) {
  ModelRequest request{.folder = std::move(folder)};
  request.backend = TRY(arguments.choice("backend", {"auto", "cuda", "cpu", "reference"}));
  request.options.activations = TRY(parse_activations(arguments, "activations"));
  request.options.kv_cache = TRY(parse_kv_cache(arguments));
  request.options.threads = static_cast<int>(TRY(arguments.integer("threads", 0, 1024)));
  request.options.isa = arguments.text("isa").value_or("");
  return request;
}

namespace {

/// auto is cuda where a usable card is, else cpu. Asked before anything is read.
Result<std::string> choose_backend(const std::string& name) {
  if (name != "auto" && name != "cuda") return name;
  const Result<std::string> device = describe_cuda_device();
  if (device.ok()) return std::string("cuda");
  if (name == "auto") return std::string("cpu");
  return device.error();
}

Result<std::unique_ptr<Backend>> make_backend(const std::string& name, const Weights& weights,
                                              const ModelConfig& config,
                                              const BackendOptions& options) {
  if (name == "cuda") return make_cuda_backend(weights, config, options);
  if (name == "reference") return make_reference_backend(weights, config, options);
  return make_cpu_backend(weights, config, options);
}

}  // namespace

Result<LoadedModel> load_model(const ModelRequest& request) {
  const std::string backend = TRY(choose_backend(request.backend));
  TRY(check_kv_cache(backend, request.options.kv_cache));
  LoadedModel model;
  model.checkpoint = std::make_unique<Checkpoint>(TRY(Checkpoint::open(request.folder)));
  model.config = TRY(ModelConfig::parse(model.checkpoint->config()));
  const Weights weights = TRY(Weights::bind(*model.checkpoint, model.config));
  model.backend = TRY(make_backend(backend, weights, model.config, request.options));
  return model;
}

}  // namespace nibble
