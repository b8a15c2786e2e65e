// One mutex for the file, its hash and what waits: the disk is one too.
#include "hub/segment_window.h"

#include <algorithm>

namespace nibble {

SegmentWindow::SegmentWindow(File& file, BlobHasher& hasher, const Sizes& sizes)
    : file_(file), hasher_(hasher), sizes_(sizes), next_begin_(sizes.written) {
  CHECK(sizes.segment_bytes > 0 && sizes.window_bytes >= sizes.segment_bytes, sizes.window_bytes);
}

std::optional<FileSegment> SegmentWindow::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const bool room = next_begin_ < sizes_.written + sizes_.window_bytes;
    return error_ || next_begin_ >= sizes_.file_bytes || (ranges_ != Ranges::asked && room);
  });
  if (error_ || next_begin_ >= sizes_.file_bytes) return std::nullopt;
  if (ranges_ == Ranges::unknown) ranges_ = Ranges::asked;
  FileSegment segment{.begin = next_begin_,
                      .end = std::min(next_begin_ + sizes_.segment_bytes, sizes_.file_bytes)};
  next_begin_ = segment.end;
  return segment;
}

void SegmentWindow::ranges_work() {
  const std::lock_guard lock(mutex_);
  if (ranges_ != Ranges::asked) return;
  ranges_ = Ranges::work;
  changed_.notify_all();
}

void SegmentWindow::ranges_absent(FileSegment& segment) {
  const std::lock_guard lock(mutex_);
  if (ranges_ != Ranges::asked) return;
  ranges_ = Ranges::absent;
  segment.end = sizes_.file_bytes;
  next_begin_ = sizes_.file_bytes;
  changed_.notify_all();
}

Result<void> SegmentWindow::write(std::span<const std::byte> bytes) {
  TRY(file_.write_at(bytes, sizes_.written));
  hasher_.add(bytes);
  sizes_.written += bytes.size();
  return {};
}

Result<void> SegmentWindow::add(FileSegment& segment, std::span<const std::byte> bytes) {
  bytes = bytes.first(std::min<uint64_t>(bytes.size(), segment.end - segment.position()));
  const std::lock_guard lock(mutex_);
  if (segment.position() != sizes_.written) {
    auto& waiting = waiting_[segment.begin];
    waiting.insert(waiting.end(), bytes.begin(), bytes.end());
    segment.received += bytes.size();
    return {};
  }
  TRY(write(bytes));
  segment.received += bytes.size();
  // The segments behind this one may have their bytes already. One that is not complete goes on
  // as the foremost, since its position is then what is written.
  for (auto next = waiting_.find(sizes_.written); next != waiting_.end();
       next = waiting_.find(sizes_.written)) {
    const std::vector<std::byte> kept = std::move(next->second);
    waiting_.erase(next);
    TRY(write(kept));
  }
  changed_.notify_all();
  return {};
}

void SegmentWindow::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

bool SegmentWindow::failed() {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

Result<void> SegmentWindow::result() {
  const std::lock_guard lock(mutex_);
  if (error_) return *error_;
  return {};
}

uint64_t SegmentWindow::written() {
  const std::lock_guard lock(mutex_);
  return sizes_.written;
}

}  // namespace nibble
