// The safetensors header of one or more F32 matrices, and their rows after it.
#include "eval/logits_file.h"

#include <cstring>

#include "base/json.h"

namespace nibble {
namespace {

std::filesystem::path partial_name(std::filesystem::path path) {
  path += ".partial";
  return path;
}

/// 8 bytes of length, then the JSON padded with spaces to a multiple of 8.
std::string header_bytes(std::span<const int64_t> rows, int64_t vocab_rows) {
  Json header = Json::Object{};
  int64_t offset = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t end = offset + rows[i] * vocab_rows * static_cast<int64_t>(sizeof(float));
    Json tensor = Json::Object{};
    tensor.set("dtype", "F32");
    tensor.set("shape", Json::Array{rows[i], vocab_rows});
    tensor.set("data_offsets", Json::Array{offset, end});
    header.set(rows.size() == 1 ? "logits" : concat("logits.", i), tensor);
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 255U));
  return bytes + text;
}

}  // namespace

LogitsFile::LogitsFile(File file, std::filesystem::path path, uint64_t begin, uint64_t end)
    : file_(std::move(file)),
      path_(std::move(path)),
      partial_(partial_name(path_)),
      offset_(begin),
      end_(end) {}

Result<LogitsFile> LogitsFile::create(const std::filesystem::path& path,
                                      std::span<const int64_t> rows, int64_t vocab_rows) {
  if (std::filesystem::exists(path))
    return make_error(ErrorCode::invalid_argument, {.what = path.string(),
                                                    .expected = "a name that is not in use",
                                                    .found = "an existing file",
                                                    .advice = "remove it or choose another name"});
  const std::string header = header_bytes(rows, vocab_rows);
  uint64_t end = header.size();
  for (const int64_t count : rows) end += static_cast<uint64_t>(count * vocab_rows) * sizeof(float);
  std::error_code ignored;
  std::filesystem::remove(partial_name(path), ignored);  // of an interrupted run
  File file = TRY(File::create_new(partial_name(path)));
  LogitsFile result(std::move(file), path, header.size(), end);
  TRY(result.file_->reserve(end));
  TRY(result.file_->write_at(std::as_bytes(std::span(header)), 0));
  return result;
}

LogitsFile::~LogitsFile() {
  if (!file_ || partial_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

Result<void> LogitsFile::append(std::span<const float> logits) {
  CHECK(offset_ + logits.size_bytes() <= end_, "more logits than announced");
  TRY(file_->write_at(std::as_bytes(logits), offset_));
  offset_ += logits.size_bytes();
  return {};
}

Result<void> LogitsFile::finish() {
  CHECK(offset_ == end_, "logits end at ", offset_, ", expected ", end_);
  TRY(file_->sync());
  std::error_code failure;
  std::filesystem::rename(partial_, path_, failure);
  if (failure)
    return make_error(ErrorCode::io, {.what = path_.string(),
                                      .expected = "a place for the finished file",
                                      .found = failure.message()});
  file_.reset();
  return {};
}

}  // namespace nibble
