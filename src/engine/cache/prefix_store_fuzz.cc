// Fuzz entry: a prefix file in memory, as it is and with its checksums made right, so that the
// checks after them are reached. What parses must hold what the prefix cache relies on.
#include <cstring>

#include "engine/cache/prefix_file.h"

namespace {

constexpr nibble::PrefixStoreOptions kOptions = {
    .fingerprint = {1, 2, 3, 4}, .page_bytes = 16, .state_slot_bytes = 8, .bytes_max = 1 << 20};

void parse(std::span<const std::byte> bytes) {
  const auto header = nibble::parse_prefix_header(bytes, bytes.size(), kOptions);
  if (!header.ok()) return;
  const auto body = bytes.subspan(nibble::kPrefixHeaderBytes);
  const auto prefix = nibble::parse_prefix_body(header.value(), body);
  if (!prefix.ok()) return;
  const nibble::PrefixBytes& p = prefix.value();
  const size_t pages = p.tokens.size() / nibble::kPageTokens;
  CHECK(pages > 0 && p.tokens.size() % nibble::kPageTokens == 0, p.tokens.size());
  CHECK(p.pages.size() == pages * 16 && p.state.size() == 8, p.pages.size());
  int64_t end = 0;
  for (const nibble::MediaSpan& span : p.media) {
    CHECK(span.begin >= end && span.count > 0, span.begin, " + ", span.count);
    end = int64_t{span.begin} + span.count;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto given = std::as_bytes(std::span(data, size));
  parse(given);
  if (size < nibble::kPrefixHeaderBytes) return 0;
  std::vector<std::byte> repaired(given.begin(), given.end());
  std::array<uint64_t, 5> sizes;  // tokens, media, pages, state, checksum of the body
  std::memcpy(sizes.data(), repaired.data() + 7 * 8, sizeof(sizes));
  std::span<const std::byte> body = std::span(repaired).subspan(nibble::kPrefixHeaderBytes);
  nibble::Checksum sum;
  for (const uint64_t part : {sizes[0] * 4, sizes[1] * 24, sizes[2]}) {
    const size_t length = std::min<uint64_t>(part, body.size());
    sum.add(body.first(length));
    body = body.subspan(length);
  }
  sum.add(body);
  const uint64_t body_sum = sum.value();
  std::memcpy(repaired.data() + 11 * 8, &body_sum, 8);
  nibble::Checksum head;
  head.add(std::span(repaired).first(nibble::kPrefixHeaderBytes - 8));
  const uint64_t head_sum = head.value();
  std::memcpy(repaired.data() + nibble::kPrefixHeaderBytes - 8, &head_sum, 8);
  parse(repaired);
  return 0;
}
