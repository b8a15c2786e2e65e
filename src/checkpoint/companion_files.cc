// A deny list, because what a tokenizer or processor needs changes with every model family.
#include "checkpoint/companion_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/file.h"

namespace nibble {

namespace {

constexpr std::string_view kTemplatesFolder = "additional_chat_templates";

bool is_companion(std::string_view name) {
  static constexpr std::array<std::string_view, 2> kOwn = {"config.json", "hf_quant_config.json"};
  static constexpr std::array<std::string_view, 13> kWeightEndings = {
      ".safetensors", ".index.json", ".bin",     ".pt",  ".pth", ".ckpt",  ".gguf",
      ".onnx",        ".h5",         ".msgpack", ".npz", ".ot",  ".tflite"};
  return !name.starts_with('.') && std::ranges::find(kOwn, name) == kOwn.end() &&
         std::ranges::none_of(kWeightEndings, [&](auto end) { return name.ends_with(end); });
}

Result<void> list_into(const std::filesystem::path& folder, const std::filesystem::path& relative,
                       std::vector<std::filesystem::path>& out) {
  std::error_code failure;
  std::filesystem::directory_iterator at(folder / relative, failure);
  for (; !failure && at != std::filesystem::directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    const std::string name = at->path().filename().string();
    if (at->is_regular_file(gone) && is_companion(name)) out.push_back(relative / name);
  }
  if (!failure) return {};
  return Error{ErrorCode::io, concat("cannot list ", folder.string(), ": ", failure.message())};
}

}  // namespace

Result<std::vector<std::filesystem::path>> companion_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  TRY(list_into(folder, "", out));
  std::error_code failure;
  if (std::filesystem::is_directory(folder / kTemplatesFolder, failure)) {
    TRY(list_into(folder, kTemplatesFolder, out));
  }
  std::ranges::sort(out);
  return out;
}

Result<void> copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to) {
  const File source = TRY(File::open_read(from));
  const uint64_t size = TRY(source.size());
  File target = TRY(File::create_new(to));
  std::vector<std::byte> chunk(std::min<uint64_t>(size, uint64_t{1} << 20));
  for (uint64_t done = 0; done < size;) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), size - done));
    TRY(source.read_at(part, done));
    TRY(target.write_at(part, done));
    done += part.size();
  }
  return target.sync();
}

}  // namespace nibble
