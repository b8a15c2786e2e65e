// Fuzz entry: a range of addresses, a peer, and the headers that say who asks, by which name and
// from which page, a line each. Whatever they say, the answer is one client and one verdict.
#include <algorithm>

#include "base/check.h"
#include "server/http/client_address.h"
#include "server/http/site_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view taken = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return taken;
  };
  const std::string_view range_text = line(), peer = line(), forwarded = line(), host = line();
  const auto range = AddressRange::parse(range_text);
  if (!range.ok()) {
    CHECK(range.error().message.find('\n') == std::string::npos, range.error().message);
    return 0;
  }
  CHECK(range.value().contains(range.value().first), range_text);
  const std::span<const AddressRange> proxies(&range.value(), 1);
  const std::string client = client_behind(peer, forwarded, proxies);
  CHECK(client == peer || (is_trusted(peer, proxies) && ClientAddress::parse(client)), client);
  CHECK(!client_group(client).empty() || client.empty(), client);
  HttpRequest request{.method = "POST", .path = "/v1/models", .client = client};
  request.headers = {{"host", std::string(host)}, {"origin", std::string(rest)}};
  const SiteRules rules({.hosts = {"a.example"}, .origins = {}}, SiteRules::LocalNames::checked);
  if (const auto error = rules.refusal_of(request))
    CHECK(error->status == 403 && error->message.size() < 400, error->message);
  return 0;
}
