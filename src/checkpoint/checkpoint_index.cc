// Names from the index become paths, so only plain names pass.
#include "checkpoint/checkpoint_index.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"
#include "checkpoint/safetensors_header.h"

namespace nibble {

namespace {

bool plain_file_name(std::string_view name) {
  return name.size() <= 255 && name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Error bad_index(std::string_view what, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::corrupt, {.what = concat(kIndexFile, ": ", what),
                                         .expected = expected,
                                         .found = found,
                                         .advice = "download or copy the file again"});
}

}  // namespace

Result<CheckpointIndex> parse_checkpoint_index(std::string_view text) {
  const JsonLimits limits = {.bytes_max = kSafetensorsHeaderBytesMax, .depth_max = 8};
  const Json json = TRY(parse_json(text, kIndexFile, limits));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return bad_index("no usable weight_map", "an object of tensor names and file names",
                     map == nullptr     ? "none"
                     : map->is_object() ? "an empty one"
                                        : map->type_name());
  }
  CheckpointIndex index;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string() || !plain_file_name(file.as_string())) {
      return bad_index(concat("bad file of tensor ", quoted_name(tensor)),
                       "a plain file name that ends in .safetensors",
                       file.is_string() ? quoted_name(file.as_string()) : file.type_name());
    }
    index.files.push_back(file.as_string());
  }
  std::ranges::sort(index.files);
  index.files.erase(std::ranges::unique(index.files).begin(), index.files.end());
  for (const auto& [tensor, file] : map->as_object()) {
    const auto found = std::ranges::lower_bound(index.files, file.as_string());
    index.places.push_back({tensor, static_cast<int>(found - index.files.begin())});
  }
  std::ranges::sort(index.places, {}, &CheckpointIndex::Place::tensor);
  return index;
}

std::vector<std::string> weight_files_of(const std::vector<std::string>& names) {
  if (std::ranges::find(names, kSingleFile) != names.end()) return {std::string(kSingleFile)};
  std::vector<std::string> files;
  std::ranges::copy_if(names, std::back_inserter(files), plain_file_name);
  std::ranges::sort(files);
  return files;
}

Result<std::vector<std::string>> list_safetensors(const std::filesystem::path& folder) {
  std::error_code failure;
  std::vector<std::string> names;
  std::filesystem::directory_iterator at(folder, failure);
  for (; !failure && at != std::filesystem::directory_iterator(); at.increment(failure))
    names.push_back(at->path().filename().string());
  if (failure) {
    return Error{ErrorCode::io, concat("cannot list ", folder.string(), ": ", failure.message())};
  }
  std::vector<std::string> files = weight_files_of(names);
  if (files.empty()) {
    return make_error(ErrorCode::not_found,
                      {.what = concat(folder.string(), " holds no weights"),
                       .expected = concat(kIndexFile, " or *.safetensors"),
                       .found = "neither",
                       .advice = "other weight formats (.bin, .pt, .gguf) are not read"});
  }
  return files;
}

}  // namespace nibble
