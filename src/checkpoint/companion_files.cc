// A deny list, because what a tokenizer or processor needs changes with every model family.
#include "checkpoint/companion_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/file.h"

namespace nibble {

namespace {

namespace fs = std::filesystem;

constexpr int kDepthMax = 16;
constexpr size_t kFilesMax = 20'000;

bool is_weight(std::string_view name) {
  static constexpr std::array<std::string_view, 13> kEndings = {
      ".safetensors", ".index.json", ".bin",     ".pt",  ".pth", ".ckpt",  ".gguf",
      ".onnx",        ".h5",         ".msgpack", ".npz", ".ot",  ".tflite"};
  return std::ranges::any_of(kEndings, [&](auto end) { return name.ends_with(end); });
}

bool is_hidden(std::string_view name) { return name.starts_with('.'); }

/// A file of the checkpoint itself, which its writer makes anew.
bool is_own(const fs::path& relative) {
  return relative == "config.json" || relative == "hf_quant_config.json";
}

struct Listing {
  std::vector<fs::path> files;
  std::vector<fs::path> folders;  // that are no links
  bool weights = false;
};

Result<Listing> list(const fs::path& folder, const fs::path& relative) {
  Listing listing;
  std::error_code failure;
  fs::directory_iterator at(folder / relative, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    const std::string name = at->path().filename().string();
    if (is_hidden(name)) continue;
    if (at->is_directory(gone) && !at->is_symlink(gone)) listing.folders.push_back(relative / name);
    if (!at->is_regular_file(gone)) continue;
    listing.weights = listing.weights || is_weight(name);
    if (!is_weight(name) && !is_own(relative / name)) listing.files.push_back(relative / name);
  }
  if (!failure) return listing;
  return Error{ErrorCode::io, concat("cannot list ", folder.string(), ": ", failure.message())};
}

Result<void> list_into(const fs::path& folder, const fs::path& relative, int depth,
                       std::vector<fs::path>& out) {
  const Listing listing = TRY(list(folder, relative));
  if (depth > 0 && listing.weights) return {};  // another model
  out.insert(out.end(), listing.files.begin(), listing.files.end());
  if (depth == kDepthMax || out.size() > kFilesMax)
    return make_error(ErrorCode::unsupported,
                      {.what = concat("files beside the weights of ", folder.string()),
                       .expected = concat("at most ", kFilesMax, " in ", kDepthMax, " levels"),
                       .found = "more",
                       .advice = "move what is not of the model elsewhere"});
  for (const fs::path& one : listing.folders) TRY(list_into(folder, one, depth + 1, out));
  return {};
}

}  // namespace

Result<std::vector<fs::path>> companion_files(const fs::path& folder) {
  std::vector<fs::path> out;
  TRY(list_into(folder, "", 0, out));
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
