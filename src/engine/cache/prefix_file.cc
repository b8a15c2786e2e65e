// The bytes of a prefix file: what parses is consistent in all its sizes.
#include "engine/cache/prefix_file.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/hash.h"

namespace nibble {
namespace {

static_assert(std::endian::native == std::endian::little, "prefix files are little-endian");

constexpr uint64_t kMagic = 0x4658455250424E1AU;  // "\x1aNBPREXF"
constexpr uint64_t kTokensMax = 1ULL << 30;
constexpr size_t kMediaBytes = 24;
constexpr size_t kLanes = 4;  // lanes of the checksum, so that it runs at the speed of memory

using Words = std::array<uint64_t, kPrefixHeaderBytes / 8>;

Error corrupt(std::string_view what, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::corrupt, {.what = concat("prefix file: ", what),
                                         .expected = expected,
                                         .found = found,
                                         .advice = "it is computed again when asked for"});
}
Error stale(std::string_view what) {
  return make_error(ErrorCode::unsupported,
                    {.what = concat("prefix file: ", what), .advice = "it is dropped"});
}

}  // namespace

void Checksum::add(std::span<const std::byte> bytes) {
  uint64_t lanes[kLanes] = {hash_, 1, 2, 3};
  size_t at = 0;
  for (; at + kLanes * 8 <= bytes.size(); at += kLanes * 8) {
    uint64_t words[kLanes];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mixed_hash(lanes[lane], words[lane]);
  }
  uint64_t hash = 0;
  for (const uint64_t lane : lanes) hash = mixed_hash(hash, lane);
  for (; at < bytes.size(); ++at) hash = mixed_hash(hash, static_cast<uint64_t>(bytes[at]));
  hash_ = mixed_hash(hash, bytes.size());
}

std::vector<std::byte> prefix_media_bytes(std::span<const MediaSpan> media) {
  std::vector<std::byte> out(media.size() * kMediaBytes);
  for (size_t i = 0; i < media.size(); ++i) {
    std::byte* at = out.data() + i * kMediaBytes;
    std::memcpy(at, &media[i].begin, 4);
    std::memcpy(at + 4, &media[i].count, 4);
    std::memcpy(at + 8, media[i].digest.data(), 16);
  }
  return out;
}

std::array<std::byte, kPrefixHeaderBytes> prefix_header_bytes(const PrefixFileHeader& header,
                                                              const PrefixStoreOptions& options) {
  Words words = {kMagic, kPrefixFileVersion};
  std::ranges::copy(options.fingerprint, words.begin() + 2);
  words[6] = header.salt;
  words[7] = header.tokens;
  words[8] = header.media;
  words[9] = header.page_bytes;
  words[10] = header.state_bytes;
  words[11] = header.checksum;
  Checksum sum;
  sum.add(std::as_bytes(std::span(words).first(words.size() - 1)));
  words.back() = sum.value();
  return std::bit_cast<std::array<std::byte, kPrefixHeaderBytes>>(words);
}

Result<PrefixFileHeader> parse_prefix_header(std::span<const std::byte> bytes, uint64_t file_bytes,
                                             const PrefixStoreOptions& options) {
  if (bytes.size() < kPrefixHeaderBytes || file_bytes < kPrefixHeaderBytes)
    return corrupt("too short", concat(kPrefixHeaderBytes, " bytes"), concat(bytes.size()));
  Words words;
  std::memcpy(words.data(), bytes.data(), kPrefixHeaderBytes);
  if (words[0] != kMagic) return corrupt("no prefix file", "its magic", "something else");
  if (words[1] != kPrefixFileVersion)
    return stale(concat("version ", words[1], ", this program writes ", kPrefixFileVersion));
  Checksum sum;
  sum.add(bytes.first(kPrefixHeaderBytes - 8));
  if (sum.value() != words.back()) return corrupt("damaged header", "its checksum", "another");
  if (!std::ranges::equal(std::span(words).subspan(2, 4), options.fingerprint))
    return stale("made by another model, quantization, program or kind of device");
  const PrefixFileHeader header{words[6], words[7], words[8], words[9], words[10], words[11]};
  if (header.tokens == 0 || header.tokens % kPageTokens != 0 || header.tokens > kTokensMax)
    return corrupt("tokens", "whole pages", concat(header.tokens));
  if (header.media > header.tokens) return corrupt("media spans", "few", concat(header.media));
  const uint64_t pages = header.tokens / kPageTokens;
  if (header.page_bytes != pages * static_cast<uint64_t>(options.page_bytes) ||
      header.state_bytes != static_cast<uint64_t>(options.state_slot_bytes))
    return stale(concat("pages of ", header.page_bytes / pages, " and a state of ",
                        header.state_bytes, " bytes"));
  if (file_bytes != kPrefixHeaderBytes + header.body_bytes())
    return corrupt("wrong length", concat(kPrefixHeaderBytes + header.body_bytes(), " bytes"),
                   concat(file_bytes));
  return header;
}

Result<PrefixBytes> parse_prefix_body(const PrefixFileHeader& header,
                                      std::span<const std::byte> body) {
  if (body.size() != header.body_bytes())
    return corrupt("wrong length", concat(header.body_bytes(), " bytes"), concat(body.size()));
  const auto take = [&body](uint64_t bytes) {
    const auto part = body.first(bytes);
    body = body.subspan(bytes);
    return part;
  };
  const auto tokens = take(header.tokens * 4);
  const auto media = take(header.media * kMediaBytes);
  const auto pages = take(header.page_bytes);
  Checksum sum;
  for (const auto part : {tokens, media, pages, body}) sum.add(part);
  if (sum.value() != header.checksum) return corrupt("damaged", "its checksum", "another");
  PrefixBytes out;
  out.salt = header.salt;
  out.tokens.resize(header.tokens);
  std::memcpy(out.tokens.data(), tokens.data(), tokens.size());
  out.media.resize(header.media);
  int64_t end = 0;
  for (size_t i = 0; i < out.media.size(); ++i) {
    MediaSpan& span = out.media[i];
    const std::byte* at = media.data() + i * kMediaBytes;
    std::memcpy(&span.begin, at, 4);
    std::memcpy(&span.count, at + 4, 4);
    std::memcpy(span.digest.data(), at + 8, 16);
    const int64_t begin = span.begin;
    if (begin < end || begin >= static_cast<int64_t>(header.tokens) || span.count < 1 ||
        begin + span.count > std::numeric_limits<int32_t>::max())
      return corrupt("media span", "ascending ones", concat(begin, " + ", span.count));
    end = begin + span.count;
  }
  out.pages.assign(pages.begin(), pages.end());
  out.state.assign(body.begin(), body.end());
  return out;
}

}  // namespace nibble
