// The protocol is git LFS's batch interface with parts as the hub has them, then the hub's own
// commit of one JSON document a line.
#include "hub/folder_upload.h"

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "hub/base64.h"
#include "hub/blob_hash.h"
#include "hub/hub_name.h"
#include "hub/hub_replies.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRowsMax = 256;  // of a request, as huggingface_hub sends them
constexpr uint64_t kSampleBytes = 512;
constexpr uint64_t kCommitBytesMax = uint64_t{256} << 20;  // of small files, before base64

Result<std::string> post(const HubSession& session, const std::string& url, const std::string& type,
                         std::string body) {
  HubConnection connection;
  HubRequest request{.method = "POST", .url = url};
  request.headers = {concat("Content-Type: ", type), concat("Accept: ", type)};
  request.body = std::move(body);
  request.body_bytes_max = kHubReplyBytesMax;
  const HubReply reply = TRY(session.call(connection, request, Redirects::on_hub));
  return reply.body;
}

constexpr const char* kJson = "application/json";
constexpr const char* kLfsJson = "application/vnd.git-lfs+json";

Result<std::string> read_beginning(const fs::path& path, uint64_t bytes) {
  const File file = TRY(File::open_read(path));
  std::string text(std::min(bytes, TRY(file.size())), '\0');
  TRY(file.read_at(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

/// Counts bytes of all files towards one total.
class Counter {
 public:
  Counter(const UploadProgress& progress, uint64_t total) : progress_(progress), total_(total) {}
  void add(uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(std::min(done_, total_), total_);
  }

 private:
  const UploadProgress& progress_;
  uint64_t total_;
  uint64_t done_ = 0;
};

Result<std::string> hash_file(const HubSession& session, const fs::path& path) {
  const File file = TRY(File::open_read(path));
  const uint64_t bytes = TRY(file.size());
  BlobHasher hasher(BlobHashKind::sha256, bytes);
  std::vector<std::byte> chunk(std::min<uint64_t>(bytes, uint64_t{8} << 20));
  for (uint64_t at = 0; at < bytes;) {
    if (session.settings().stop && session.settings().stop())
      return Error{ErrorCode::cancelled, "stopped"};
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), bytes - at));
    TRY(file.read_at(part, at));
    hasher.add(part);
    at += part.size();
  }
  return hasher.hex();
}

Result<std::vector<LfsUpload>> ask_storage(const HubSession& session, const UploadTarget& target,
                                           std::span<const UploadFile* const> files) {
  Json objects{Json::Array{}};
  for (const UploadFile* file : files)
    objects.push_back(json_object({{"oid", file->sha256}, {"size", file->bytes}}));
  const Json body = json_object({{"operation", "upload"},
                                 {"transfers", Json(Json::Array{Json("basic"), Json("multipart")})},
                                 {"objects", std::move(objects)},
                                 {"hash_algo", "sha256"},
                                 {"ref", json_object({{"name", target.revision}})}});
  const std::string text =
      TRY(post(session, session.url(concat(target.repository, ".git/info/lfs/objects/batch")),
               kLfsJson, body.dump()));
  return parse_lfs_batch_reply(text);
}

/// Sends one part; returns its ETag.
Result<std::string> put(const HubSession& session, const std::string& url, const File& file,
                        uint64_t offset, uint64_t bytes) {
  HubConnection connection;
  HubRequest request{.method = "PUT", .url = url};
  request.upload = &file;
  request.upload_offset = offset;
  request.upload_bytes = bytes;
  const HubReply reply = TRY(session.call(connection, request, Redirects::all));
  return std::string(reply.header("etag"));
}

Result<void> send_parts(const HubSession& session, const LfsUpload& upload, const File& file,
                        uint64_t bytes, Counter& counter) {
  if ((bytes + upload.part_bytes - 1) / upload.part_bytes != upload.parts.size())
    return make_error(ErrorCode::corrupt,
                      {.what = "the hub's reply to an upload",
                       .expected = concat("parts for ", bytes, " bytes"),
                       .found = concat(upload.parts.size(), " of ", upload.part_bytes)});
  Json parts{Json::Array{}};
  for (size_t i = 0; i < upload.parts.size(); ++i) {
    const uint64_t offset = i * upload.part_bytes;
    const uint64_t size = std::min(upload.part_bytes, bytes - offset);
    const std::string etag = TRY(put(session, upload.parts[i], file, offset, size));
    parts.push_back(json_object({{"partNumber", i + 1}, {"etag", etag}}));
    counter.add(size);
  }
  const Json body = json_object({{"oid", upload.sha256}, {"parts", std::move(parts)}});
  TRY(post(session, upload.url, kLfsJson, body.dump()));
  return {};
}

Result<void> send_object(const HubSession& session, const fs::path& path, const UploadFile& file,
                         const LfsUpload& upload, Counter& counter) {
  if (upload.url.empty()) {
    counter.add(file.bytes);
    return {};
  }
  const File source = TRY(File::open_read(path));
  if (upload.parts.empty()) {
    TRY(put(session, upload.url, source, 0, file.bytes));
    counter.add(file.bytes);
  } else {
    TRY(send_parts(session, upload, source, file.bytes, counter));
  }
  if (upload.verify_url.empty()) return {};
  const Json body = json_object({{"oid", upload.sha256}, {"size", file.bytes}});
  TRY(post(session, upload.verify_url, kJson, body.dump()));
  return {};
}

Result<void> send_large(const HubSession& session, const fs::path& folder,
                        const UploadTarget& target, std::vector<UploadFile>& files,
                        const UploadProgress& progress) {
  std::map<std::string, const UploadFile*> by_hash;  // equal files are one object
  uint64_t total = 0;
  for (UploadFile& file : files) {
    if (file.way != UploadWay::lfs) continue;
    file.sha256 = TRY(hash_file(session, folder / file.path));
    if (by_hash.emplace(file.sha256, &file).second) total += file.bytes;
  }
  std::vector<const UploadFile*> wanted;
  for (const auto& [hash, file] : by_hash) wanted.push_back(file);
  Counter counter(progress, total);
  for (size_t at = 0; at < wanted.size(); at += kRowsMax) {
    const auto some = std::span<const UploadFile* const>(wanted).subspan(at).first(
        std::min(kRowsMax, wanted.size() - at));
    for (const LfsUpload& upload : TRY(ask_storage(session, target, some))) {
      const auto found = by_hash.find(upload.sha256);
      if (found == by_hash.end())
        return make_error(ErrorCode::corrupt, {.what = "the hub's reply to an upload",
                                               .expected = "an object that was announced",
                                               .found = upload.sha256});
      const UploadFile& file = *found->second;
      TRY(send_object(session, folder / file.path, file, upload, counter));
    }
  }
  return {};
}

Result<std::string> commit_lines(const fs::path& folder, const UploadTarget& target,
                                 const std::vector<UploadFile>& files) {
  const auto line = [](std::string_view key, Json value) {
    return json_object({{"key", key}, {"value", std::move(value)}}).dump() + "\n";
  };
  std::string lines =
      line("header", json_object({{"summary", target.message}, {"description", ""}}));
  uint64_t bytes = 0;
  for (const UploadFile& file : files) {
    if (file.way == UploadWay::lfs)
      lines += line("lfsFile", json_object({{"path", file.path},
                                            {"algo", "sha256"},
                                            {"oid", file.sha256},
                                            {"size", file.bytes}}));
    if (file.way != UploadWay::regular) continue;
    bytes += file.bytes;
    if (bytes > kCommitBytesMax)
      return make_error(ErrorCode::unsupported,
                        {.what = "small files of one commit",
                         .expected = concat("at most ", kCommitBytesMax, " bytes in all"),
                         .found = "more"});
    const std::string text = TRY(read_text_file(folder / file.path, kCommitBytesMax));
    lines +=
        line("file",
             json_object({{"content", base64(text)}, {"path", file.path}, {"encoding", "base64"}}));
  }
  return lines;
}

}  // namespace

Result<std::vector<UploadFile>> list_upload(const fs::path& folder) {
  std::vector<UploadFile> files;
  std::error_code failure;
  fs::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    std::error_code gone;
    const std::string name = at->path().filename().string();
    if (name.starts_with('.') && name != ".gitattributes") {
      if (at->is_directory(gone)) at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(gone)) continue;
    UploadFile file{.path = at->path().lexically_relative(folder).string()};
    file.bytes = at->file_size(gone);
    if (!check_hub_path(file.path).ok())
      return make_error(ErrorCode::invalid_argument,
                        {.what = "a file that the hub does not take",
                         .expected = "a name without backslashes and control characters",
                         .found = Json(file.path).dump()});
    files.push_back(std::move(file));
  }
  if (failure || files.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = folder.string(),
                       .expected = "a folder with files",
                       .found = failure ? failure.message() : "none in it"});
  std::ranges::sort(files, {}, &UploadFile::path);
  return files;
}

Result<bool> has_repository(const HubSession& session, const std::string& repository) {
  HubConnection connection;
  const HubRequest request{.url = session.url(concat("api/models/", repository)),
                           .body_bytes_max = kHubReplyBytesMax};
  const auto reply = session.call(connection, request, Redirects::on_hub);
  if (reply.ok()) return true;
  if (reply.error().code == ErrorCode::not_found) return false;
  return reply.error();
}

Result<void> make_repository(const HubSession& session, const std::string& repository,
                             Visibility visibility) {
  const size_t slash = repository.find('/');
  const bool is_private = visibility == Visibility::private_repository;
  const Json body = json_object({{"type", "model"},
                                 {"organization", repository.substr(0, slash)},
                                 {"name", repository.substr(slash + 1)},
                                 {"visibility", is_private ? "private" : "public"}});
  TRY(post(session, session.url("api/repos/create"), kJson, body.dump()));
  return {};
}

Result<void> choose_ways(const HubSession& session, const fs::path& folder,
                         const UploadTarget& target, std::vector<UploadFile>& files) {
  std::map<std::string, UploadWay> ways;
  for (size_t at = 0; at < files.size(); at += kRowsMax) {
    Json rows{Json::Array{}};
    for (const UploadFile& file :
         std::span(files).subspan(at).first(std::min(kRowsMax, files.size() - at))) {
      const std::string sample = TRY(read_beginning(folder / file.path, kSampleBytes));
      rows.push_back(
          json_object({{"path", file.path}, {"sample", base64(sample)}, {"size", file.bytes}}));
    }
    const std::string text = TRY(post(session,
                                      session.url(concat("api/models/", target.repository,
                                                         "/preupload/", url_path(target.revision))),
                                      kJson, json_object({{"files", std::move(rows)}}).dump()));
    for (UploadChoice& choice : TRY(parse_preupload_reply(text)))
      ways[std::move(choice.path)] = choice.way;
  }
  for (UploadFile& file : files) {
    const auto found = ways.find(file.path);
    if (found == ways.end())
      return make_error(ErrorCode::corrupt, {.what = "the hub's reply to an upload",
                                             .expected = concat("a way for ", file.path),
                                             .found = "none"});
    file.way =
        file.bytes == 0 && found->second == UploadWay::lfs ? UploadWay::regular : found->second;
  }
  return {};
}

Result<CommitReply> upload(const HubSession& session, const fs::path& folder,
                           const UploadTarget& target, std::vector<UploadFile>& files,
                           const UploadProgress& progress) {
  TRY(send_large(session, folder, target, files, progress));
  HubConnection connection;
  HubRequest request{.method = "POST",
                     .url = session.url(concat("api/models/", target.repository, "/commit/",
                                               url_path(target.revision)))};
  request.headers = {"Content-Type: application/x-ndjson"};
  request.body = TRY(commit_lines(folder, target, files));
  // It is asked for once: after a reply that was lost, another attempt would commit again.
  const HubReply reply = TRY(session.exchange(connection, request, Redirects::on_hub));
  if (reply.end != HubEnd::whole || reply.status >= 300)
    return session.error_of(reply, request.url);
  return parse_commit_reply(reply.body);
}

}  // namespace nibble
