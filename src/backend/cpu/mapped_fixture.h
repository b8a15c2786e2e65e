// For tests: the same small model in mapped files, wide enough that its rows are read there.
#pragma once

#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/layout_fixture.h"
#include "checkpoint/checkpoint.h"

namespace nibble::cpu {

/// A config.json wide enough for whole pieces of rows.
inline Json widened(Json json) {
  Json text = *json.find("text_config");
  text.set("hidden_size", Json(256));
  text.set("moe_intermediate_size", Json(256));
  json.set("text_config", text);
  return json;
}

class MappedFixture : public LayoutFixture {
 protected:
  explicit MappedFixture(const Json& tiny) : LayoutFixture("mapped_weights", widened(tiny), 3) {}

  Result<std::unique_ptr<Backend>> load(BackendOptions options) {
    Checkpoint checkpoint = TRY(Checkpoint::open(folder_));
    TRY(checkpoint.map_files());
    config_ = TRY(ModelConfig::parse(checkpoint.config()));
    options.threads = 2;
    return make_cpu_backend(TRY(Weights::bind(checkpoint, config_)), config_, options);
  }
  std::unique_ptr<Backend> loaded(WeightPlace place) { return load({.weights = place}).value(); }

  std::filesystem::path weight_file() const {
    for (const auto& file : std::filesystem::directory_iterator(folder_))
      if (file.path().extension() == ".safetensors") return file.path();
    return {};
  }
};

}  // namespace nibble::cpu
