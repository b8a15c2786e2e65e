// Reading is the C library's: inet_pton takes no leading zeros, no ports, no zones.
#include "server/http/client_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/concat.h"

namespace nibble {

namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
constexpr int kNetworkBits = 64;  // the smallest IPv6 network of a customer (RFC 6177)

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// "10.0.0.1:80", "[::1]:80" and "[::1]" without what is not the address; some proxies add a port.
std::string_view without_port(std::string_view text) {
  if (text.starts_with('[')) return text.substr(1, text.find(']') - 1);
  const size_t colon = text.find(':');
  return colon == text.rfind(':') ? text.substr(0, colon) : text;
}

std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    items.push_back(trimmed(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return items;
}

}  // namespace

std::optional<ClientAddress> ClientAddress::parse(std::string_view text) {
  constexpr size_t kLongest = INET6_ADDRSTRLEN;
  ClientAddress address;
  const std::string word(text.substr(0, kLongest));
  if (::inet_pton(AF_INET, word.c_str(), address.bytes.data()) == 1) return address;
  if (::inet_pton(AF_INET6, word.c_str(), address.bytes.data()) != 1) return std::nullopt;
  address.v6 = !std::equal(kMapped.begin(), kMapped.end(), address.bytes.begin());
  if (address.v6) return address;
  std::ranges::rotate(address.bytes, address.bytes.begin() + kMapped.size());
  std::ranges::fill(std::span(address.bytes).subspan(4), uint8_t{0});
  return address;
}

Result<AddressRange> AddressRange::parse(std::string_view text) {
  const Error wrong = make_error(
      ErrorCode::invalid_argument,
      {.what = "a range of addresses",
       .expected = "an address, or one with the number of its leading bits, such as 10.0.0.0/8",
       .found = concat("\"", text.substr(0, 60), "\"")});
  const size_t slash = text.find('/');
  const auto first = ClientAddress::parse(text.substr(0, slash));
  if (!first) return wrong;
  AddressRange range{.first = *first, .bits = first->v6 ? 128 : 32};
  if (slash == std::string_view::npos) return range;
  const std::string_view bits = text.substr(slash + 1);
  const int most = range.bits;
  const auto end = std::from_chars(bits.data(), bits.data() + bits.size(), range.bits);
  const bool whole = end.ec == std::errc() && end.ptr == bits.data() + bits.size();
  if (!whole || range.bits < 0 || range.bits > most) return wrong;
  return range;
}

bool AddressRange::contains(const ClientAddress& address) const {
  if (address.v6 != first.v6) return false;
  for (int bit = 0; bit < bits; ++bit) {
    const auto at = static_cast<size_t>(bit) / 8;
    if (((address.bytes[at] ^ first.bytes[at]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

bool is_trusted(std::string_view address, std::span<const AddressRange> proxies) {
  if (proxies.empty()) return false;
  const auto parsed = ClientAddress::parse(address);
  return parsed && std::ranges::any_of(
                       proxies, [&](const AddressRange& range) { return range.contains(*parsed); });
}

std::string client_behind(std::string_view peer, std::string_view forwarded_for,
                          std::span<const AddressRange> proxies) {
  std::string_view client = peer;
  std::vector<std::string_view> hops = items_of(forwarded_for);
  while (is_trusted(client, proxies) && !hops.empty()) {
    const std::string_view hop = without_port(hops.back());
    if (!ClientAddress::parse(hop)) break;
    client = hop;
    hops.pop_back();
  }
  return std::string(client);
}

std::string client_group(std::string_view address) {
  auto parsed = ClientAddress::parse(address);
  if (!parsed) return std::string(address);
  char text[INET6_ADDRSTRLEN] = {};
  if (!parsed->v6) return ::inet_ntop(AF_INET, parsed->bytes.data(), text, sizeof text);
  std::ranges::fill(std::span(parsed->bytes).subspan(kNetworkBits / 8), uint8_t{0});
  return concat(::inet_ntop(AF_INET6, parsed->bytes.data(), text, sizeof text), "/", kNetworkBits);
}

bool is_loopback(std::string_view address) {
  const auto parsed = ClientAddress::parse(address);
  if (!parsed) return false;
  if (!parsed->v6) return parsed->bytes[0] == 127;
  return parsed == ClientAddress::parse("::1");
}

}  // namespace nibble
