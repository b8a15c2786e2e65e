// GET /stats: what the engine holds and does, as the page shows it. Counts only: no text, no ids,
// no client. For machines that watch a fleet there is /metrics.
#include <chrono>

#include "server/routes/route_handlers.h"
#include "server/server_state.h"

namespace nibble {

namespace {

constexpr size_t kRequestsShownMax = 200;

std::string_view api_word(Api api) {
  switch (api) {
    case Api::chat:
      return "chat";
    case Api::completions:
      return "completions";
    case Api::messages:
      return "messages";
    case Api::responses:
      return "responses";
  }
  CHECK(false, "API ", static_cast<int>(api));
}

Json pools_json(const EngineStats& stats) {
  Json::Array pools;
  for (const auto& [name, pool] : {std::pair{"pages", stats.pages},
                                   {"state_slots", stats.slots},
                                   {"host_pages", stats.host_pages},
                                   {"host_state_slots", stats.host_slots}})
    pools.push_back(json_object(
        {{"name", Json(name)}, {"used", Json(pool.used)}, {"total", Json(pool.total)}}));
  return Json(std::move(pools));
}

Json memory_json(const std::vector<MemoryPart>& parts) {
  Json::Array rows;
  for (const MemoryPart& part : parts)
    rows.push_back(
        json_object({{"name", Json(part.name)},
                     {"place", Json(part.place == MemoryPart::Place::host ? "host" : "device")},
                     {"bytes", Json(part.bytes)}}));
  return Json(std::move(rows));
}

Json requests_json(const ServerState& server) {
  Json::Array rows;
  const auto now = Metrics::Time::clock::now();
  for (const auto& [id, live] : server.sequences) {
    if (rows.size() == kRequestsShownMax) break;
    const Metrics::Progress progress = server.metrics.progress(id, now);
    rows.push_back(json_object({{"api", Json(api_word(live.generation->api()))},
                                {"seconds", Json(progress.seconds)},
                                {"generated_tokens", Json(progress.generated)}}));
  }
  return Json(std::move(rows));
}

int64_t seconds_since(int64_t created) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count() - created;
}

}  // namespace

void answer_stats(ServerState& server, Call call) {
  const EngineStats stats = server.engine->stats();
  const Metrics::Tokens tokens = server.metrics.tokens();
  const bool sleeping = server.engine->resting() == Engine::Rest::sleeping;
  const Json answer = json_object(
      {{"model", Json(server.model.names.front())},
       {"version", Json(NIBBLE_VERSION)},
       {"backend", Json(server.engine->backend().name())},
       {"state", Json(sleeping ? "asleep" : "awake")},
       {"uptime_seconds", Json(seconds_since(server.model.created))},
       {"max_model_len", Json(server.model.context_max)},
       {"sequences", json_object({{"prefill", Json(stats.prefill)},
                                  {"decode", Json(stats.decode)},
                                  {"waiting", Json(stats.waiting)},
                                  {"swapped", Json(stats.swapped)}})},
       {"tokens",
        json_object({{"generated", Json(tokens.generated)}, {"prompt", Json(tokens.prompt)}})},
       {"prefix", json_object({{"lookup_tokens", Json(tokens.prompt)},
                               {"hit_tokens", Json(tokens.cached)},
                               {"pages_evicted", Json(stats.prefix.pages_evicted)}})},
       {"passes", json_object({{"count", Json(stats.engine.passes)},
                               {"drafted", Json(stats.engine.drafted)},
                               {"drafts_right", Json(stats.engine.drafts_right)}})},
       {"first_token_ms", Json(stats.first_token_ms)},
       {"pools", pools_json(stats)},
       {"memory", memory_json(server.options.memory_map)},
       {"device_allocations", Json(server.engine->backend().device_allocations())},
       {"requests", requests_json(server)}});
  call.exchange->respond({.body = answer.dump()});
}

}  // namespace nibble
