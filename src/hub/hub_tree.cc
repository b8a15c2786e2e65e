// Members are read by their types; what is not there or has another type is one error in words.
#include "hub/hub_tree.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "hub/hub_name.h"
#include "hub/hub_replies.h"

namespace nibble {
namespace {

constexpr JsonLimits kLimits = {
    .bytes_max = kHubReplyBytesMax, .depth_max = 32, .duplicate_keys = DuplicateKeys::keep_last};
constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;
constexpr size_t kSha256Digits = 64;

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Error malformed(std::string_view what, std::string_view expected) {
  return make_error(
      ErrorCode::corrupt,
      {.what = concat("the hub's ", what), .expected = expected, .found = "something else"});
}

/// A member that is a string; empty for none or null; an error for another type.
Result<std::string> text_member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  if (found == nullptr || found->is_null()) return std::string();
  if (!found->is_string()) return malformed("list of files", concat("a text as \"", key, "\""));
  return found->as_string();
}

Result<uint64_t> bytes_member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  if (found == nullptr || !found->is_int() || found->as_int() < 0 ||
      static_cast<uint64_t>(found->as_int()) > kFileBytesMax)
    return malformed("list of files", concat("a number of bytes as \"", key, "\""));
  return static_cast<uint64_t>(found->as_int());
}

Result<HubFile> read_row(const Json& row) {
  HubFile file;
  file.path = TRY(text_member(row, "path"));
  TRY(check_hub_path(file.path));
  file.bytes = TRY(bytes_member(row, "size"));
  file.blob_id = TRY(text_member(row, "oid"));
  file.xet_hash = TRY(text_member(row, "xetHash"));
  const Json* lfs = row.find("lfs");
  if (lfs == nullptr || lfs->is_null()) return file;
  file.lfs_sha256 = TRY(text_member(*lfs, "oid"));
  file.lfs_bytes = TRY(bytes_member(*lfs, "size"));
  if (!is_hex(file.lfs_sha256, kSha256Digits))
    return malformed("list of files", "64 hexadecimal digits as SHA-256 of an LFS file");
  return file;
}

Result<HubFile> read_entry(const Json::Member& member) {
  HubFile file;
  file.path = member.key;
  TRY(check_hub_path(file.path));
  file.bytes = TRY(bytes_member(member.value, "size"));
  file.blob_id = TRY(text_member(member.value, "blob_id"));
  file.xet_hash = TRY(text_member(member.value, "xet_hash"));
  file.lfs_sha256 = TRY(text_member(member.value, "lfs_sha256"));
  if (!file.lfs_sha256.empty()) file.lfs_bytes = TRY(bytes_member(member.value, "lfs_size"));
  return file;
}

/// A JSON string as Python's json writes it: ASCII alone.
std::string ascii_json_string(std::string_view text) {
  std::string utf8;
  append_json_string(utf8, text);
  std::string out;
  const auto escape = [&](uint32_t unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[unit >> shift & 15];
  };
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead == 0x7F) {
      escape(lead);
      ++i;
      continue;
    }
    if (lead < 0x80) {
      out += utf8[i++];
      continue;
    }
    const int more = lead >= 0xF0 ? 3 : (lead >= 0xE0 ? 2 : 1);
    uint32_t point = lead & (0x3F >> more);
    for (int k = 1; k <= more && i + k < utf8.size(); ++k)
      point = point << 6 | (static_cast<unsigned char>(utf8[i + k]) & 0x3F);
    i += static_cast<size_t>(more) + 1;
    if (point < 0x10000) {
      escape(point);
      continue;
    }
    escape(0xD800 + ((point - 0x10000) >> 10));
    escape(0xDC00 + ((point - 0x10000) & 0x3FF));
  }
  return out;
}

}  // namespace

Result<std::vector<HubFile>> parse_tree_page(std::string_view text) {
  const Json page = TRY(parse_json(text, "the hub's list of files", kLimits));
  if (!page.is_array()) return malformed("list of files", "an array");
  std::vector<HubFile> files;
  for (const Json& row : page.as_array()) {
    const std::string type = TRY(text_member(row, "type"));
    if (type == "directory") continue;
    if (type != "file") return malformed("list of files", "\"file\" or \"directory\" as \"type\"");
    files.push_back(TRY(read_row(row)));
  }
  return files;
}

Result<void> check_tree(const std::vector<HubFile>& files) {
  std::set<std::string_view> paths;
  for (const HubFile& file : files)
    if (!paths.insert(file.path).second)
      return malformed("list of files", concat(Json(file.path).dump(), " once"));
  for (const HubFile& file : files)
    for (size_t slash = file.path.find('/'); slash != file.path.npos;
         slash = file.path.find('/', slash + 1))
      if (paths.contains(std::string_view(file.path).substr(0, slash)))
        return malformed("list of files", concat(Json(file.path.substr(0, slash)).dump(),
                                                 " as a file or as a folder, not both"));
  return {};
}

std::string tree_file_text(const std::vector<HubFile>& files) {
  std::vector<HubFile> sorted = files;
  std::ranges::sort(sorted, {}, &HubFile::path);
  std::string text = "{\n \"format_version\": 1,\n \"files\": {";
  const auto member = [&](std::string_view key, const std::string& value) {
    text += concat(",\n   \"", key, "\": ", value);
  };
  for (size_t i = 0; i < sorted.size(); ++i) {
    const HubFile& file = sorted[i];
    text += concat(i == 0 ? "" : ",", "\n  ", ascii_json_string(file.path),
                   ": {\n   \"size\": ", file.bytes);
    member("blob_id", ascii_json_string(file.blob_id));
    if (!file.lfs_sha256.empty()) {
      member("lfs_sha256", ascii_json_string(file.lfs_sha256));
      member("lfs_size", concat(file.lfs_bytes));
    }
    if (!file.xet_hash.empty()) member("xet_hash", ascii_json_string(file.xet_hash));
    text += "\n  }";
  }
  return text + (sorted.empty() ? "}\n}" : "\n }\n}");
}

Result<std::vector<HubFile>> parse_tree_file(std::string_view text) {
  const Json tree = TRY(parse_json(text, "list of files in the cache", kLimits));
  const Json* version = tree.find("format_version");
  const Json* entries = tree.find("files");
  if (version == nullptr || !version->is_int() || version->as_int() != 1 || entries == nullptr ||
      !entries->is_object())
    return malformed("list of files in the cache", "\"format_version\" 1 and \"files\"");
  std::vector<HubFile> files;
  for (const Json::Member& member : entries->as_object()) files.push_back(TRY(read_entry(member)));
  return files;
}

}  // namespace nibble
