// Page tables, slots and batches for tests.
#include "testing/test_session.h"

#include <algorithm>

#include "model/forward.h"

namespace nibble {
namespace {

/// 0..count-1 in a fixed scattered order.
std::vector<int32_t> scattered(int32_t count) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < count; ++i) order.push_back(i);
  uint64_t state = 12345;
  for (size_t i = order.size(); i > 1; --i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::swap(order[i - 1], order[(state >> 33) % i]);
  }
  return order;
}

}  // namespace

TestSession::TestSession(Backend& backend, const ModelConfig& config, const SessionLimits& limits)
    : backend_(backend), config_(config) {
  const auto count = static_cast<size_t>(limits.sequences);
  const int pages_each = (limits.tokens_max + kPageTokens - 1) / kPageTokens;
  sizes_ = {.pages = limits.sequences * pages_each + 3,
            .state_slots = 3 * limits.sequences + 1,
            .rows_max = limits.rows_max,
            .host_slots = 1,
            .replay_rows = limits.replay_rows,
            .media_rows = limits.media_rows,
            .host_media_rows = limits.media_rows,
            .vision_rows = limits.vision_rows};
  backend_.reserve(sizes_).value();
  for (int32_t page = 0; page < sizes_.pages; ++page) backend_.poison_page(page);
  for (int32_t slot = 0; slot < sizes_.state_slots; ++slot) backend_.poison_state(slot);
  free_pages_ = scattered(sizes_.pages);
  free_slots_ = scattered(sizes_.state_slots);
  lengths_.resize(count);
  replays_.resize(count);
  positions_.resize(count);
  pages_.resize(count);
  snapshots_.assign(count, -1);
  snapshot_lengths_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    slots_.push_back(free_slot());
    backend_.zero_state(slots_.back());
  }
}

int32_t TestSession::free_slot() {
  CHECK(!free_slots_.empty(), "no free slot");
  const int32_t slot = free_slots_.front();
  free_slots_.erase(free_slots_.begin());
  return slot;
}

void TestSession::add_rows(Batch& batch, const Feed& feed) {
  const auto sequence = static_cast<size_t>(feed.sequence);
  if (feed.snapshot_after >= 0) {
    if (snapshots_[sequence] < 0) snapshots_[sequence] = free_slot();
    snapshot_lengths_[sequence] = lengths_[sequence] + feed.snapshot_after + 1;
    batch.snapshots.push_back(
        {.row = batch.rows() + feed.snapshot_after, .slot = snapshots_[sequence]});
  }
  for (size_t i = 0; i < feed.media.size(); ++i)
    if (feed.media[i] >= 0)
      batch.embeddings.push_back(
          {.row = batch.rows() + static_cast<int32_t>(i), .place = feed.media[i]});
  batch.tokens.insert(batch.tokens.end(), feed.tokens.begin(), feed.tokens.end());
}

void TestSession::add_pages(int sequence, int end, std::vector<int32_t>& pages) {
  auto& table = pages_[static_cast<size_t>(sequence)];
  while (static_cast<int>(table.size()) * kPageTokens < end) {
    CHECK(!free_pages_.empty(), "no free page");
    table.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  pages.insert(pages.end(), table.begin(), table.end());
}

std::array<int32_t, 3> TestSession::last_position(size_t sequence) const {
  const auto length = static_cast<size_t>(lengths_[sequence]);
  return length == 0 ? std::array<int32_t, 3>{-7, -7, -7} : positions_[sequence][length - 1];
}

std::vector<float> TestSession::pass(const std::vector<Feed>& feeds) {
  Batch batch;
  std::vector<std::array<int32_t, 3>> positions;
  for (const auto& feed : feeds) {
    const auto at = static_cast<size_t>(feed.sequence);
    BatchSequence sequence{.row_begin = batch.rows(),
                           .row_count = static_cast<int32_t>(feed.tokens.size()),
                           .kv_begin = lengths_[at],
                           .page_begin = static_cast<int32_t>(batch.pages.size()),
                           .state_in = slots_[at],
                           .state_out = free_slot(),
                           .arithmetic = feed.arithmetic,
                           .replay = replays_[at],
                           .write = feed.write,
                           .position_before = last_position(at)};
    positions_[at].resize(static_cast<size_t>(lengths_[at]));
    for (int i = 0; i < sequence.row_count; ++i) {
      const int32_t p = lengths_[at] + i;
      positions.push_back(feed.positions.empty() ? std::array<int32_t, 3>{p, p, p}
                                                 : feed.positions[static_cast<size_t>(i)]);
      positions_[at].push_back(positions.back());
    }
    add_rows(batch, feed);
    add_pages(feed.sequence, lengths_[at] + sequence.row_count, batch.pages);
    sequence.page_count = static_cast<int32_t>(batch.pages.size()) - sequence.page_begin;
    batch.sequences.push_back(sequence);
  }
  for (size_t axis = 0; axis < 3; ++axis)
    for (const auto& position : positions) batch.positions.push_back(position[axis]);
  for (int row = 0; row < batch.rows(); ++row) batch.logit_rows.push_back(row);

  validate_batch(batch, config_, sizes_);
  const HeadOutput output = forward(backend_, config_, batch);
  std::vector<float> logits(output.logits.begin(), output.logits.end());
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto at = static_cast<size_t>(feeds[i].sequence);
    backend_.poison_state(slots_[at]);
    free_slots_.push_back(slots_[at]);
    slots_[at] = batch.sequences[i].state_out;
    replays_[at] = 0;
    if (feeds[i].write == StateWrite::rows) lengths_[at] += batch.sequences[i].row_count;
  }
  return logits;
}

TestSession::Drafted TestSession::draft(const std::vector<Newest>& newest) {
  DraftBatch batch;
  for (const Newest& one : newest) {
    const auto at = static_cast<size_t>(one.sequence);
    DraftSequence sequence{.kv_begin = lengths_[at],
                           .page_begin = static_cast<int32_t>(batch.pages.size()),
                           .state = slots_[at],
                           .replay = replays_[at],
                           .token = one.token,
                           .position_before = last_position(at),
                           .position = one.position < 0 ? lengths_[at] : one.position,
                           .count = one.count};
    add_pages(one.sequence, lengths_[at] + one.count, batch.pages);
    sequence.page_count = static_cast<int32_t>(batch.pages.size()) - sequence.page_begin;
    batch.sequences.push_back(sequence);
  }
  batch.wants_logits = true;
  validate_draft(batch, config_, sizes_);
  const DraftOutput output = backend_.draft(batch);
  Drafted drafted{.tokens = {}, .logits = {output.logits.begin(), output.logits.end()}};
  const auto most = static_cast<size_t>(newest.front().count);
  for (size_t i = 0; i < newest.size(); ++i) {
    const auto row = output.tokens.subspan(i * most, static_cast<size_t>(newest[i].count));
    drafted.tokens.emplace_back(row.begin(), row.end());
  }
  return drafted;
}

void TestSession::accept(int sequence, int count) {
  const auto at = static_cast<size_t>(sequence);
  lengths_[at] += count;
  replays_[at] = count;
}

void TestSession::break_hidden_row(int sequence, std::span<const float> row) {
  const int32_t slot = slots_[static_cast<size_t>(sequence)];
  backend_.store_state(slot, 0);
  const auto bytes = std::as_bytes(row);
  std::ranges::copy(bytes, backend_.host_state(0).last(bytes.size()).begin());
  backend_.load_state(0, slot);
}

bool TestSession::finite(int sequence) {
  const auto at = static_cast<size_t>(sequence);
  const auto whole = static_cast<size_t>(lengths_[at] / kPageTokens);
  return backend_.finite(std::span(pages_[at]).first(whole), {&slots_[at], 1});
}

void TestSession::restore(int sequence) {
  const auto at = static_cast<size_t>(sequence);
  CHECK(snapshots_[at] >= 0, "sequence ", sequence, " has no snapshot");
  backend_.copy_state(snapshots_[at], slots_[at]);
  lengths_[at] = snapshot_lengths_[at];
  replays_[at] = 0;
}

}  // namespace nibble
