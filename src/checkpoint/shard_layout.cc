// Fills shards in plan order; a shard closes when the next tensor would pass the limit.
#include "checkpoint/shard_layout.h"

#include <algorithm>
#include <map>

#include "base/json.h"

namespace nibble {

namespace {

int64_t plan_bytes(const TensorPlan& tensor) {
  return dtype_bytes(tensor.dtype, tensor.shape.count());
}

std::vector<std::vector<int>> fill_shards(std::span<const TensorPlan> plan, int64_t bytes_max) {
  std::vector<std::vector<int>> shards(1);
  int64_t filled = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].file.empty()) continue;
    const int64_t bytes = plan_bytes(plan[i]);
    if (!shards.back().empty() && filled + bytes > bytes_max) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(static_cast<int>(i));
    filled += bytes;
  }
  return shards;
}

/// Tensors with a file of their own, by file, in order of appearance.
std::vector<std::pair<std::string, std::vector<int>>> own_files(std::span<const TensorPlan> plan) {
  std::vector<std::pair<std::string, std::vector<int>>> files;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].file.empty()) continue;
    auto found = std::ranges::find(files, plan[i].file, &decltype(files)::value_type::first);
    if (found == files.end()) found = files.insert(files.end(), {plan[i].file, {}});
    found->second.push_back(static_cast<int>(i));
  }
  return files;
}

/// Readers take a "model.safetensors" for the whole, so one of several files is never called that.
std::string shard_file(size_t number, size_t count, size_t others) {
  if (count == 1 && others == 0) return "model.safetensors";
  const auto five = [](size_t value) {
    const std::string digits = concat(value);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return concat("model-", five(number + 1), "-of-", five(count), ".safetensors");
}

/// {"__metadata__":{"format":"pt"},...} padded with spaces to a multiple of 8, after its length.
/// transformers refuses files without the format entry.
std::string header_bytes(std::span<const TensorPlan> plan, const std::vector<int>& order) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const int i : order) {
    const TensorPlan& tensor = plan[static_cast<size_t>(i)];
    const int64_t end = offset + plan_bytes(tensor);
    json += ",";
    append_json_string(json, tensor.name);
    json += concat(R"(:{"dtype":")", dtype_info(tensor.dtype).name, R"(","shape":[)");
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
      json += concat(axis > 0 ? "," : "", tensor.shape[axis]);
    }
    json += concat(R"(],"data_offsets":[)", offset, ",", end, "]}");
    offset = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string head;
  for (size_t i = 0; i < 8; ++i) head.push_back(static_cast<char>(json.size() >> (8 * i) & 255));
  return head + json;
}

}  // namespace

CheckpointLayout lay_out_shards(std::span<const TensorPlan> plan, int64_t shard_bytes_max) {
  CheckpointLayout layout;
  layout.places.resize(plan.size());
  auto shards = fill_shards(plan, shard_bytes_max);
  const auto own = own_files(plan);
  if (shards.front().empty()) shards.clear();  // all have files of their own, or none are written
  std::vector<std::string> names;
  for (size_t number = 0; number < shards.size(); ++number)
    names.push_back(shard_file(number, shards.size(), own.size()));
  for (const auto& [stem, tensors] : own) {
    names.push_back(stem + ".safetensors");
    shards.push_back(tensors);
  }
  for (size_t number = 0; number < shards.size(); ++number) {
    std::vector<int>& order = shards[number];
    std::ranges::sort(order, [&](int a, int b) {
      const TensorPlan& x = plan[static_cast<size_t>(a)];
      const TensorPlan& y = plan[static_cast<size_t>(b)];
      const int x_bits = dtype_info(x.dtype).bits;
      const int y_bits = dtype_info(y.dtype).bits;
      return x_bits != y_bits ? x_bits > y_bits : x.name < y.name;
    });
    ShardLayout shard = {.file = names[number],
                         .head = header_bytes(plan, order),
                         .data_bytes = 0,
                         .tensors = order};
    for (const int i : order) {
      const int64_t bytes = plan_bytes(plan[static_cast<size_t>(i)]);
      layout.places[static_cast<size_t>(i)] = {
          .shard = static_cast<int>(number),
          .offset = shard.head.size() + static_cast<uint64_t>(shard.data_bytes),
          .bytes = bytes};
      shard.data_bytes += bytes;
    }
    layout.shards.push_back(std::move(shard));
  }
  return layout;
}

std::string index_text(std::span<const TensorPlan> plan, const CheckpointLayout& layout,
                       std::span<const LinkedFile> linked) {
  std::map<std::string_view, std::string> files;
  double total = 0;  // a float, as in Qwen3.6's own index
  for (size_t i = 0; i < plan.size(); ++i) {
    total += static_cast<double>(layout.places[i].bytes);
    files[plan[i].name] = layout.shards[static_cast<size_t>(layout.places[i].shard)].file;
  }
  for (const LinkedFile& file : linked) {
    total += static_cast<double>(file.bytes);
    for (const std::string& tensor : file.tensors) files[tensor] = file.path.filename().string();
  }
  Json::Object map;
  for (const auto& [tensor, file] : files) map.push_back({std::string(tensor), file});
  Json metadata;
  metadata.set("total_size", total);
  Json index;
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(map));
  return index.dump_pretty();
}

}  // namespace nibble
