// Fuzz entry: by the first byte one of the hub's replies or headers. What is taken obeys its limits
// and survives being written again; all else is refused in one line.
#include "base/check.h"
#include "hub/cache_scan.h"
#include "hub/download_plan.h"
#include "hub/url_origin.h"
#include "hub/hub_name.h"
#include "hub/hub_replies.h"
#include "hub/hub_tree.h"
#include "hub/upload_replies.h"

namespace {

using namespace nibble;

void check_line(const Error& error) {
  CHECK(error.message.find('\n') == std::string::npos, error.message);
}

void read_tree(Result<std::vector<HubFile>> files) {
  if (!files.ok()) return check_line(files.error());
  for (const HubFile& file : files.value()) CHECK(check_hub_path(file.path).ok(), file.path);
  const bool sound = check_tree(files.value()).ok();
  if (!sound) return;
  const std::string text = tree_file_text(files.value());
  const auto again = parse_tree_file(text);
  CHECK(again.ok() && again.value().size() == files.value().size(), text);
  CHECK(tree_file_text(again.value()) == text, text);
}

void read_headers(std::string_view text) {
  if (const auto etag = parse_etag(text); etag.ok())
    CHECK(etag.value().find('/') == std::string::npos && etag.value().front() != '.');
  if (const auto range = parse_content_range(text))
    CHECK(range->begin < range->end && range->end <= range->total, text);
  parse_retry_after(text);
  hub_error_words(text);
  const auto next = parse_next_link(text);
  const auto url = resolved_url("https://hub/api", next ? *next : std::string(text));
  if (!url.ok()) return check_line(url.error());
  CHECK(url.value().starts_with("https://"), url.value());
}

void read_uploads(char kind, std::string_view text) {
  if (kind == 'p')
    if (const auto choices = parse_preupload_reply(text); !choices.ok())
      return check_line(choices.error());
  if (kind == 'm')
    if (const auto commit = parse_commit_reply(text); !commit.ok())
      return check_line(commit.error());
  if (kind != 'l') return;
  const auto uploads = parse_lfs_batch_reply(text);
  if (!uploads.ok()) return check_line(uploads.error());
  for (const LfsUpload& upload : uploads.value()) {
    CHECK(upload.sha256.size() == 64, upload.sha256);
    CHECK(upload.parts.empty() || upload.part_bytes > 0, upload.parts.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 't') read_tree(parse_tree_page(text));
  if (data[0] == 'c') read_tree(parse_tree_file(text));
  if (data[0] == 'h') read_headers(text);
  read_uploads(static_cast<char>(data[0]), text);
  if (data[0] != 'r') return 0;
  const auto commit = parse_revision_reply(text);
  if (!commit.ok()) check_line(commit.error());
  CHECK(!commit.ok() || is_hub_commit(commit.value()));
  return 0;
}
