// Headers to facts.
#include "quantize/verify/inspect.h"

#include <algorithm>
#include <map>

namespace nibble {

namespace {

std::string text_member(const Json& object, std::string_view key) {
  const Json* member = object.find(key);
  return member != nullptr && member->is_string() ? member->as_string() : "";
}

std::string architecture_of(const Json& config) {
  const Json* names = config.find("architectures");
  const bool listed = names != nullptr && names->is_array() && !names->as_array().empty() &&
                      names->as_array()[0].is_string();
  return listed ? names->as_array()[0].as_string() : "unknown architecture";
}

std::string quantization_of(const Json& config) {
  const Json* section = config.find("quantization_config");
  if (section == nullptr) return "";
  const std::string method = text_member(*section, "quant_method");
  const std::string format = text_member(*section, "format");
  const std::string algorithm = text_member(*section, "quant_algo");
  return concat(method, format.empty() ? "" : ", ", format, algorithm.empty() ? "" : ", ",
                algorithm);
}

std::string cache_scales_of(const Checkpoint& checkpoint) {
  const Json* section = checkpoint.config().find("quantization_config");
  const Json* scheme = section == nullptr ? nullptr : section->find("kv_cache_scheme");
  const bool declared = scheme != nullptr && !scheme->is_null();
  const auto count = [&](std::string_view ending) {
    return std::ranges::count_if(checkpoint.entries(), [&](const TensorEntry& entry) {
      return entry.name.ends_with(ending);
    });
  };
  const auto keys = count(".k_scale");
  const auto values = count(".v_scale");
  if (!declared && keys + values == 0) return "";
  return concat(declared ? concat("declared as ", scheme->dump(), ", ") : "", keys, " k_scale and ",
                values, " v_scale; pages have scale 1 unless --kv-scales checkpoint is given");
}

/// Rows in the order of ModuleKind, then by storage.
std::vector<InspectRow> group_rows(const std::vector<StoredModule>& modules) {
  std::map<std::pair<ModuleKind, std::string>, InspectRow> rows;
  for (const StoredModule& module : modules) {
    const std::string stored_as = scheme_text(module);
    InspectRow& row = rows[{module.kind, stored_as}];
    row.kind = module.kind;
    row.stored_as = stored_as;
    ++row.modules;
    row.parameters += module.parameters();
    row.bytes += module.bytes();
    const Shape shape = module.shape();
    const bool known = std::ranges::find(row.shapes, shape) != row.shapes.end();
    if (!known && row.shapes.size() <= kInspectShapes) row.shapes.push_back(shape);
  }
  std::vector<InspectRow> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  return out;
}

/// The share of a row's parameters that one token meets, as a fraction.
std::pair<int64_t, int64_t> active_share(const InspectRow& row, const ModelConfig& config,
                                         bool embedding_is_head) {
  switch (row.kind) {
    case ModuleKind::mtp:
    case ModuleKind::vision:
    case ModuleKind::other:
      return {0, 1};
    case ModuleKind::embedding:
      return {embedding_is_head ? config.vocab_rows : 1, config.vocab_rows};
    case ModuleKind::expert:
      return config.moe ? std::pair<int64_t, int64_t>{config.moe->top_k, config.moe->experts}
                        : std::pair<int64_t, int64_t>{1, 1};
    default:
      return {1, 1};
  }
}

ActiveCost active_cost(const std::vector<InspectRow>& rows, const ModelConfig& config) {
  const bool has_head = std::ranges::find(rows, ModuleKind::head, &InspectRow::kind) != rows.end();
  ActiveCost cost;
  for (const InspectRow& row : rows) {
    const auto [part, whole] = active_share(row, config, config.tied_head && !has_head);
    cost.parameters += row.parameters / whole * part;
    cost.bytes += row.bytes / whole * part;
  }
  return cost;
}

}  // namespace

Result<Inspection> inspect_checkpoint(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  Inspection out;
  out.folder = folder.string();
  out.architecture = architecture_of(checkpoint.config());
  out.quantization = quantization_of(checkpoint.config());
  out.cache_scales = cache_scales_of(checkpoint);
  auto config = ModelConfig::parse(checkpoint.config());
  if (config.ok()) {
    out.config = std::move(config).value();
  } else {
    out.config_trouble = config.error().message;
  }
  const auto declared = QuantConfig::read(checkpoint);
  if (!declared.ok()) out.config_trouble = declared.error().message;
  out.rows =
      group_rows(stored_modules(checkpoint, declared.ok() ? declared.value() : QuantConfig()));
  for (const InspectRow& row : out.rows) {
    out.parameters += row.parameters;
    out.bytes += row.bytes;
  }
  for (const TensorEntry& entry : checkpoint.entries()) {
    out.stored_elements += entry.shape.count();
    out.tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes,
                           checkpoint.files()[static_cast<size_t>(entry.file)]});
  }
  if (out.config) out.per_token = active_cost(out.rows, *out.config);
  return out;
}

}  // namespace nibble
