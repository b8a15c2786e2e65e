// An inspection for people and for programs.
#include <algorithm>
#include <cstdio>

#include "quantize/verify/inspect.h"

namespace nibble {

namespace {

using Cells = std::vector<std::string>;

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// 35.95 G, 13.9 M, 4.1 k: decimal.
std::string scaled(int64_t count, std::string_view unit) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return concat(fixed(value / 1e9, 2), " G", unit);
  if (count >= 1'000'000) return concat(fixed(value / 1e6, 2), " M", unit);
  if (count >= 1'000) return concat(fixed(value / 1e3, 1), " k", unit);
  return concat(count, " ", unit);
}

double bits_per_parameter(int64_t bytes, int64_t parameters) {
  return parameters == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

std::string shapes_text(const std::vector<Shape>& shapes) {
  if (shapes.size() > kInspectShapes) return "various";
  std::string text;
  for (const Shape& shape : shapes) text += concat(text.empty() ? "" : " ", shape.text());
  return text;
}

/// Facts of the architecture as name and text; also the order of the printed list.
std::vector<std::pair<std::string, std::string>> facts_of(const ModelConfig& config) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto& a = config.attention;
  const int delta_layers = config.count(LayerKind::delta_net);
  facts.emplace_back("layers", concat(config.layer_count(), ": ", delta_layers, " delta-net, ",
                                      config.count(LayerKind::attention), " attention"));
  facts.emplace_back("width", concat(config.hidden));
  facts.emplace_back(
      "attention", concat(a.q_heads, " query and ", a.kv_heads, " key/value heads of ", a.head_dim,
                          a.output_gate ? ", gated" : ""));
  if (delta_layers > 0) {
    const auto& d = config.delta_net;
    facts.emplace_back("delta-net", concat(d.k_heads, " key heads of ", d.k_dim, ", ", d.v_heads,
                                           " value heads of ", d.v_dim));
  }
  if (config.moe) {
    const auto& m = *config.moe;
    const std::string shared =
        m.shared_width == 0 ? "" : concat("; shared expert of ", m.shared_width);
    facts.emplace_back("feed-forward", concat(m.experts, " experts of ", m.expert_width, ", top ",
                                              m.top_k, shared));
  } else {
    facts.emplace_back("feed-forward", concat("dense, ", config.dense_width));
  }
  facts.emplace_back("vocabulary", concat(config.vocab_rows, " rows, head ",
                                          config.tied_head ? "tied" : "of its own"));
  facts.emplace_back("context", concat(config.max_positions, " tokens"));
  if (config.mtp_layers > 0) facts.emplace_back("MTP", concat(config.mtp_layers, " layer"));
  return facts;
}

std::string table_text(const Inspection& inspection) {
  std::vector<Cells> rows = {
      {"kind", "stored as", "modules", "parameters", "bytes", "bits", "shapes"}};
  for (const InspectRow& row : inspection.rows) {
    rows.push_back({std::string(module_kind_name(row.kind)), row.stored_as, concat(row.modules),
                    scaled(row.parameters, ""), scaled(row.bytes, "B"),
                    fixed(bits_per_parameter(row.bytes, row.parameters), 2),
                    shapes_text(row.shapes)});
  }
  rows.push_back({"all", "", "", scaled(inspection.parameters, ""), scaled(inspection.bytes, "B"),
                  fixed(bits_per_parameter(inspection.bytes, inspection.parameters), 2), ""});
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      const bool words = i < 2 || i + 1 == row.size();
      line += concat(i == 0 ? "" : "  ", words ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

Json shape_json(const Shape& shape) {
  Json sizes{Json::Array{}};
  for (const int64_t size : shape.sizes()) sizes.push_back(size);
  return sizes;
}

Json row_json(const InspectRow& row) {
  Json json;
  json.set("kind", module_kind_name(row.kind));
  json.set("stored_as", row.stored_as);
  json.set("modules", row.modules);
  json.set("parameters", row.parameters);
  json.set("bytes", row.bytes);
  json.set("bits_per_parameter", bits_per_parameter(row.bytes, row.parameters));
  return json;
}

Json tensor_json(const InspectTensor& tensor) {
  Json json;
  json.set("name", tensor.name);
  json.set("dtype", dtype_info(tensor.dtype).name);
  json.set("shape", shape_json(tensor.shape));
  json.set("bytes", tensor.bytes);
  json.set("file", tensor.file);
  return json;
}

}  // namespace

std::string inspection_text(const Inspection& inspection) {
  std::string text = concat(inspection.folder, ": ", inspection.architecture, "\n");
  std::vector<std::pair<std::string, std::string>> facts;
  if (inspection.config) facts = facts_of(*inspection.config);
  if (!inspection.quantization.empty()) {
    facts.emplace_back("quantization", inspection.quantization);
  }
  if (!inspection.cache_scales.empty()) facts.emplace_back("KV cache", inspection.cache_scales);
  if (!inspection.config_trouble.empty()) facts.emplace_back("note", inspection.config_trouble);
  if (inspection.per_token) {
    facts.emplace_back("per token",
                       concat(scaled(inspection.per_token->parameters, ""), " parameters active, ",
                              scaled(inspection.per_token->bytes, "B"), " read"));
  }
  if (inspection.stored_elements != inspection.parameters)
    facts.emplace_back("stored",
                       concat(scaled(inspection.stored_elements, ""),
                              " elements, what hub pages count: two 4-bit weights are one "
                              "byte, and scales count"));
  for (const auto& [name, fact] : facts) {
    text +=
        concat("  ", name, std::string(14 - std::min<size_t>(13, name.size()), ' '), fact, "\n");
  }
  return concat(text, "\n", table_text(inspection));
}

std::string tensor_list_text(const Inspection& inspection) {
  std::string text;
  for (const InspectTensor& tensor : inspection.tensors) {
    text += concat(tensor.name, "  ", dtype_info(tensor.dtype).name, "  ", tensor.shape.text(),
                   "  ", tensor.bytes, "  ", tensor.file, "\n");
  }
  return text;
}

Json inspection_json(const Inspection& inspection, TensorList list) {
  Json json;
  json.set("folder", inspection.folder);
  json.set("architecture", inspection.architecture);
  json.set("quantization", inspection.quantization);
  if (!inspection.cache_scales.empty()) json.set("kv_cache", inspection.cache_scales);
  if (!inspection.config_trouble.empty()) json.set("note", inspection.config_trouble);
  if (inspection.config) {
    Json facts;
    for (const auto& [name, fact] : facts_of(*inspection.config)) facts.set(name, fact);
    json.set("facts", std::move(facts));
  }
  json.set("tensors_count", inspection.tensors.size());
  json.set("parameters", inspection.parameters);
  json.set("bytes", inspection.bytes);
  json.set("bits_per_parameter", bits_per_parameter(inspection.bytes, inspection.parameters));
  json.set("stored_elements", inspection.stored_elements);
  if (inspection.per_token) {
    Json cost;
    cost.set("parameters", inspection.per_token->parameters);
    cost.set("bytes", inspection.per_token->bytes);
    json.set("per_token", std::move(cost));
  }
  Json rows{Json::Array{}};
  for (const InspectRow& row : inspection.rows) rows.push_back(row_json(row));
  json.set("rows", std::move(rows));
  if (list == TensorList::left_out) return json;
  Json tensors{Json::Array{}};
  for (const InspectTensor& tensor : inspection.tensors) tensors.push_back(tensor_json(tensor));
  json.set("tensors", std::move(tensors));
  return json;
}

}  // namespace nibble
