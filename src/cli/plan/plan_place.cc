// Three flags to one place.
#include "cli/plan/plan_place.h"

#include "plan/card_limit.h"

namespace nibble {
namespace {

Result<Place> on(Result<PlannedCard> card) {
  PlannedCard found = TRY(std::move(card));
  return Place{.kind = Place::Kind::card, .card = std::move(found)};
}

/// --card-limit: a number means bytes there.
Result<Place> limited(const std::string& text) {
  const CardLimit limit = TRY(card_limit(text));
  if (limit.shared_bytes > 0) return on(find_card(text));
  return on(find_card_or_size("--card-limit", concat(limit.memory_bytes >> 20)));
}

Error contradiction(const std::string& backend, const std::string& gpu) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--backend ", backend),
                     .expected = concat("auto, or the backend of --gpu ", gpu),
                     .found = backend});
}

}  // namespace

Result<Place> read_place(const Arguments& arguments) {
  const std::string backend = *arguments.text(kBackendOption.name);
  const auto gpu = arguments.text(kGpuOption.name);
  const auto limit = arguments.text(kCardLimitOption.name);
  if (backend == "reference")
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--backend", .expected = "auto, cuda or cpu", .found = backend});
  const Place host = {.kind = Place::Kind::host, .card = {}};
  if (gpu) {
    const bool cpu = *gpu == "cpu";
    if (backend == (cpu ? "cuda" : "cpu")) return contradiction(backend, *gpu);
    return cpu ? Result<Place>(host) : on(find_card_or_size("--gpu", *gpu));
  }
  if (backend == "cpu") return host;
  if (limit && !limit->empty()) return limited(*limit);
  return Place{};
}

}  // namespace nibble
