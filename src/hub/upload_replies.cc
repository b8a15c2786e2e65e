// Members are read by their types; what is missing is one error in words.
#include "hub/upload_replies.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "hub/blob_hash.h"
#include "hub/hub_name.h"
#include "hub/hub_replies.h"

namespace nibble {
namespace {

constexpr JsonLimits kLimits = {
    .bytes_max = kHubReplyBytesMax, .depth_max = 32, .duplicate_keys = DuplicateKeys::keep_last};
constexpr size_t kPartsMax = 10'000;

Error malformed(std::string_view expected) {
  return make_error(
      ErrorCode::corrupt,
      {.what = "the hub's reply to an upload", .expected = expected, .found = "something else"});
}

/// A member that is a text; empty: there is none.
std::string text_of(const Json* object, std::string_view key) {
  const Json* found = object == nullptr ? nullptr : object->find(key);
  return found != nullptr && found->is_string() ? found->as_string() : std::string();
}

Result<UploadChoice> read_choice(const Json& row) {
  UploadChoice choice{.path = text_of(&row, "path")};
  const std::string mode = text_of(&row, "uploadMode");
  const Json* ignored = row.find("shouldIgnore");
  if (choice.path.empty() || (mode != "lfs" && mode != "regular"))
    return malformed("\"path\", and \"lfs\" or \"regular\" as \"uploadMode\"");
  choice.way = mode == "lfs" ? UploadWay::lfs : UploadWay::regular;
  if (ignored != nullptr && ignored->is_bool() && ignored->as_bool())
    choice.way = UploadWay::ignored;
  return choice;
}

/// The addresses of parts: the members of the header whose keys are 1, 2, 3 ...
Result<std::vector<std::string>> read_parts(const Json& header) {
  std::map<uint64_t, std::string> found;
  for (const Json::Member& member : header.as_object())
    if (const auto number = parse_byte_count(member.key); number && member.value.is_string())
      found[*number] = member.value.as_string();
  std::vector<std::string> parts;
  for (auto& [number, url] : found) {
    if (number != parts.size() + 1 || number > kPartsMax) return malformed("parts 1, 2, 3 ...");
    parts.push_back(std::move(url));
  }
  return parts;
}

Result<LfsUpload> read_object(const Json& row) {
  LfsUpload upload{.sha256 = text_of(&row, "oid")};
  if (hash_kind_of(upload.sha256) != BlobHashKind::sha256) return malformed("a SHA-256 as \"oid\"");
  if (const Json* error = row.find("error"))
    return make_error(ErrorCode::io, {.what = concat("the hub refuses object ", upload.sha256),
                                      .found = Json(text_of(error, "message")).dump()});
  const Json* actions = row.find("actions");
  const Json* action = actions == nullptr ? nullptr : actions->find("upload");
  if (action == nullptr || action->is_null()) return upload;
  upload.url = text_of(action, "href");
  if (upload.url.empty()) return malformed("an address as \"href\"");
  upload.verify_url = text_of(actions->find("verify"), "href");
  const Json* header = action->find("header");
  const auto bytes = parse_byte_count(text_of(header, "chunk_size"));
  if (header == nullptr || !header->is_object() || !bytes) return upload;
  upload.part_bytes = *bytes;
  upload.parts = TRY(read_parts(*header));
  if (upload.part_bytes == 0 || upload.parts.empty()) return malformed("parts of an upload");
  return upload;
}

/// The rows of an array, each read by `read`.
template <typename Row>
Result<std::vector<Row>> read_rows(std::string_view text, std::string_view key,
                                   Result<Row> (*read)(const Json&)) {
  const Json reply = TRY(parse_json(text, "the hub's reply to an upload", kLimits));
  const Json* rows = reply.find(key);
  if (rows == nullptr || !rows->is_array()) return malformed(concat("an array \"", key, "\""));
  std::vector<Row> out;
  for (const Json& row : rows->as_array()) out.push_back(TRY(read(row)));
  return out;
}

}  // namespace

Result<std::vector<UploadChoice>> parse_preupload_reply(std::string_view text) {
  return read_rows(text, "files", &read_choice);
}

Result<std::vector<LfsUpload>> parse_lfs_batch_reply(std::string_view text) {
  return read_rows(text, "objects", &read_object);
}

Result<CommitReply> parse_commit_reply(std::string_view text) {
  const Json reply = TRY(parse_json(text, "the hub's reply to a commit", kLimits));
  CommitReply commit{.commit = text_of(&reply, "commitOid"), .url = text_of(&reply, "commitUrl")};
  if (!is_hub_commit(commit.commit)) return malformed("a commit as \"commitOid\"");
  return commit;
}

}  // namespace nibble
