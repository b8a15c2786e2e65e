// Suffixes of tensor names in both dialects and in Qwen's FP8 files.
#include "quantize/verify/inspect_modules.h"

#include <algorithm>
#include <map>

#include "model/config/target_patterns.h"

namespace nibble {

namespace {

enum class Part : uint8_t { values, scales, global_scale, input_scale, other };

struct Suffix {
  std::string_view text;
  Part part;
};

constexpr Suffix kSuffixes[] = {
    {".weight", Part::values},
    {".weight_packed", Part::values},
    {".weight_scale", Part::scales},
    {".weight_scale_inv", Part::scales},
    {".weight_scale_2", Part::global_scale},
    {".weight_global_scale", Part::global_scale},
    {".input_scale", Part::input_scale},
    {".input_global_scale", Part::input_scale},
    {".bias", Part::other},
    {".k_scale", Part::other},
    {".v_scale", Part::other},
    {".pre_quant_scale", Part::other},
    {".weight_zero_point", Part::other},
    {".weight_g_idx", Part::other},
    {".input_zero_point", Part::other},
};

struct Named {
  std::string_view module;
  Part part;
};

Named split_name(std::string_view tensor) {
  for (const Suffix& suffix : kSuffixes) {
    if (!tensor.ends_with(suffix.text)) continue;
    return {tensor.substr(0, tensor.size() - suffix.text.size()), suffix.part};
  }
  return {tensor, Part::values};
}

void add_tensor(StoredModule& module, const TensorEntry& entry, Part part) {
  const auto place = [&](const TensorEntry*& slot) {
    if (slot == nullptr) {
      slot = &entry;
    } else {
      module.others.push_back(&entry);
    }
  };
  switch (part) {
    case Part::values:
      return place(module.values);
    case Part::scales:
      return place(module.scales);
    case Part::global_scale:
      return place(module.global_scale);
    case Part::input_scale:
      return place(module.input_scale);
    case Part::other:
      module.others.push_back(&entry);
  }
}

WeightFormat weight_format(const StoredModule& module) {
  if (module.values == nullptr) return WeightFormat::plain;
  if (module.values->dtype == DType::u8 && module.scales != nullptr) return WeightFormat::nvfp4;
  if (module.values->dtype != DType::f8_e4m3) return WeightFormat::plain;
  if (module.scales == nullptr || module.scales->shape.count() == 1) {
    return WeightFormat::fp8_tensor;
  }
  const Shape& scales = module.scales->shape;
  const bool per_row = scales.count() == module.values->shape[0];
  return per_row ? WeightFormat::fp8_channel : WeightFormat::fp8_block;
}

void settle_scheme(StoredModule& module, const QuantConfig& declared) {
  module.scheme.weights = weight_format(module);
  if (!module.quantized()) return;
  const bool packed = module.values->name.ends_with(".weight_packed");
  module.direction = packed ? GlobalScale::Direction::divide : GlobalScale::Direction::multiply;
  const DeclaredScheme* scheme = declared.find(module.name);
  if (scheme != nullptr) module.scheme.activations = scheme->activations;
}

}  // namespace

std::string_view module_kind_name(ModuleKind kind) {
  static constexpr std::array<std::string_view, kModuleKinds> kNames = {
      "experts", "shared expert", "dense MLP", "router", "attention", "delta-net",
      "norms",   "embedding",     "head",      "MTP",    "vision",    "other"};
  return kNames[static_cast<size_t>(kind)];
}

ModuleKind module_kind(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (is_mtp(name) || has(".mtp.")) return ModuleKind::mtp;
  if (has("visual.") || has("vision_tower.")) return ModuleKind::vision;
  if (has(".mlp.experts.")) return ModuleKind::expert;
  if (has(".shared_expert.")) return ModuleKind::shared_expert;
  if (has(".shared_expert_gate") || has(".mlp.gate.")) return ModuleKind::router;
  if (has("embed_tokens")) return ModuleKind::embedding;
  if (has("lm_head")) return ModuleKind::head;
  if (has("norm.")) return ModuleKind::norm;
  if (has(".self_attn.")) return ModuleKind::attention;
  if (has(".linear_attn.")) return ModuleKind::delta_net;
  if (has(".mlp.")) return ModuleKind::dense_mlp;
  return ModuleKind::other;
}

Shape StoredModule::shape() const {
  if (values == nullptr) return {};
  if (scheme.weights != WeightFormat::nvfp4 || values->shape.rank() == 0) return values->shape;
  std::vector<int64_t> sizes(values->shape.sizes().begin(), values->shape.sizes().end());
  sizes.back() *= 2;
  return Shape(sizes);
}

int64_t StoredModule::parameters() const {
  int64_t sum = values == nullptr ? 0 : shape().count();
  for (const TensorEntry* entry : others) {
    if (entry->name.ends_with(".bias")) sum += entry->shape.count();
  }
  return sum;
}

int64_t StoredModule::bytes() const {
  int64_t sum = 0;
  for (const TensorEntry* entry : {values, scales, global_scale, input_scale}) {
    if (entry != nullptr) sum += entry->bytes;
  }
  for (const TensorEntry* entry : others) sum += entry->bytes;
  return sum;
}

bool StoredModule::is_linear() const {
  if (values == nullptr) return false;
  if (kind == ModuleKind::embedding) return quantized();  // what is said of linears holds for it
  if (name.ends_with("pos_embed") || name.ends_with("embed")) return false;
  const bool stacked = name.ends_with(".gate_up_proj") || name.ends_with(".down_proj");
  const int rank = values->shape.rank();
  return quantized() || rank == 2 || (rank == 3 && stacked);
}

std::vector<StoredModule> stored_modules(const Checkpoint& checkpoint,
                                         const QuantConfig& declared) {
  std::map<std::string_view, StoredModule> by_name;
  for (const TensorEntry& entry : checkpoint.entries()) {
    const Named named = split_name(entry.name);
    StoredModule& module = by_name[named.module];
    module.name = named.module;
    module.kind = module_kind(entry.name);
    add_tensor(module, entry, named.part);
  }
  std::vector<StoredModule> modules;
  for (auto& [name, module] : by_name) {
    settle_scheme(module, declared);
    modules.push_back(std::move(module));
  }
  return modules;
}

std::string scheme_text(const StoredModule& module) {
  const bool high = module.scheme.activations == ActivationFormat::high;
  switch (module.scheme.weights) {
    case WeightFormat::plain:
      return module.values == nullptr ? "?" : std::string(dtype_info(module.values->dtype).name);
    case WeightFormat::nvfp4:
      return high ? "NVFP4 W4A16" : "NVFP4 W4A4";
    case WeightFormat::fp8_tensor:
      return high ? "FP8 tensor W8A16" : "FP8 tensor W8A8";
    case WeightFormat::fp8_channel:
      return high ? "FP8 channel W8A16" : "FP8 channel W8A8";
    case WeightFormat::fp8_block:
      return high ? "FP8 128x128 W8A16" : "FP8 128x128 W8A8";
  }
  CHECK(false, "weight format ", static_cast<int>(module.scheme.weights));
}

}  // namespace nibble
