// The report of a plan for programs. Bytes are whole numbers; what is unknown is null or missing.
#include "model/batch.h"
#include "plan/plan_report.h"

namespace nibble {
namespace {

Json weights_json(const PlanReport& report) {
  Json rows{Json::Array{}};
  for (const WeightRow& row : report.weights)
    rows.push_back(json_object({{"kind", weight_kind_name(row.kind)},
                                {"format", weight_format_name(row.format)},
                                {"parameters", row.parameters},
                                {"bytes", row.bytes}}));
  return rows;
}

Json card_json(const PlannedCard& card) {
  return json_object({{"name", card.name},
                      {"label", card.label},
                      {"compute_capability",
                       card.capability == 0 ? Json() : Json(capability_text(card.capability))},
                      {"native_formats", native_formats(card.capability)},
                      {"memory_bytes", card.memory_bytes},
                      {"memory_source", card.memory_source},
                      {"reserved_bytes", card.reserved_bytes},
                      {"unified_memory", card.memory == CardMemoryKind::unified},
                      {"bandwidth_bytes_per_second",
                       card.bandwidth_bytes > 0 ? Json(card.bandwidth_bytes) : Json()},
                      {"bandwidth_source", card.bandwidth_source}});
}

Json memory_json(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  return json_object({{"weights", plan.weight_bytes},
                      {"mapped_weights", plan.mapped_bytes},
                      {"tables", plan.table_bytes},
                      {"driver", plan.driver_bytes},
                      {"context", report.context_bytes},
                      {"recorded_passes", report.recorded_bytes},
                      {"workspace", plan.workspace_bytes},
                      {"images", plan.media_bytes},
                      {"states", plan.sequences_max * report.request.slot_bytes},
                      {"snapshots", plan.snapshots * report.request.slot_bytes},
                      {"kv_cache", plan.kv_bytes},
                      {"total", plan.total_bytes()},
                      {"available", plan.memory_bytes},
                      {"host_tier", plan.host_bytes}});
}

Json sizes_json(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  return json_object({{"sequences", plan.sequences_max},
                      {"snapshots", plan.snapshots},
                      {"pages", plan.pools.pages},
                      {"kv_tokens", int64_t{plan.pools.pages} * kPageTokens},
                      {"page_bytes", report.request.page_bytes},
                      {"state_bytes", report.request.slot_bytes},
                      {"rows", plan.pools.rows_max},
                      {"kv_format", report.kv_format}});
}

Json contexts_json(const PlanReport& report) {
  Json rows{Json::Array{}};
  for (const int64_t tokens : report.contexts)
    rows.push_back(
        json_object({{"tokens", tokens},
                     {"requests_in_kv_cache",
                      requests_held(report.plan.kv_bytes, tokens, report.request.page_bytes, 0)},
                     {"at_once", report.plan.concurrency(tokens)}}));
  return rows;
}

Json effects_json(const PlanReport& report) {
  Json rows{Json::Array{}};
  for (const FlagEffect& effect : report.effects) {
    Json row = json_object({{"flag", effect.flag}});
    if (effect.trouble.empty()) {
      row.set("freed_bytes", effect.freed_bytes);
      row.set("kv_tokens", effect.kv_tokens);
      row.set("longest_request", effect.context);
      row.set("sequences", effect.sequences);
    } else {
      row.set("trouble", effect.trouble);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json speeds_json(const PlanReport& report) {
  Json rows{Json::Array{}};
  for (const SpeedRow& speed : report.speeds) {
    Json row = json_object({{"streams", speed.load.streams},
                            {"context", speed.load.context},
                            {"experts", speed.bytes.experts},
                            {"other_weights", speed.bytes.other_weights},
                            {"states", speed.bytes.state},
                            {"kv", speed.bytes.kv},
                            {"step_bytes", speed.bytes.total()}});
    if (speed.tokens_per_second > 0) row.set("tokens_per_second", speed.tokens_per_second);
    rows.push_back(std::move(row));
  }
  return json_object({{"computed", true}, {"rows", std::move(rows)}});
}

Json expected_json(const PlanReport& report) {
  Json rows{Json::Array{}};
  for (const ExpectedRow& expected : report.expected) {
    Json row = json_object({{"work", expected.streams > 0 ? "generation" : "prompt"},
                            {"tokens", expected.tokens},
                            {"weight_only_tokens_per_second", expected.weight_only},
                            {"fp8_tokens_per_second", expected.fp8},
                            {"fp4_tokens_per_second", expected.native}});
    if (expected.streams > 0) row.set("streams", expected.streams);
    rows.push_back(std::move(row));
  }
  return json_object({{"computed", true}, {"rows", std::move(rows)}});
}

/// This is what both documents begin with.
Json head_json(const PlanReport& report) {
  Json json = json_object({{"model", report.model}, {"made_of", report.made_of}});
  if (report.written_bytes) json.set("written_bytes", *report.written_bytes);
  json.set("weights", weights_json(report));
  json.set("not_loaded", json_object({{"vision_bytes", report.others.vision_bytes},
                                      {"mtp_bytes", report.others.mtp_bytes},
                                      {"unread_bytes", report.unread_bytes}}));
  return json;
}

}  // namespace

Json plan_json(const PlanReport& report) {
  Json json = head_json(report);
  json.set("card", report.card ? card_json(*report.card) : Json());
  json.set("memory", memory_json(report));
  json.set("speculation", report.speculation);
  json.set("sizes", sizes_json(report));
  json.set("longest_request", report.longest_context);
  json.set("context", report.plan.context_max);
  json.set("contexts", contexts_json(report));
  json.set("other_flags", effects_json(report));
  json.set("speed_bound", speeds_json(report));
  if (!report.expected.empty()) json.set("expected_speed", expected_json(report));
  return json;
}

Json fits_json(const PlanReport& report, const std::vector<CardFit>& fits) {
  Json json = head_json(report);
  Json cards{Json::Array{}};
  for (const CardFit& fit : fits) {
    Json row = json_object({{"card", card_json(fit.card)}, {"fits", fit.plan.has_value()}});
    if (fit.plan) {
      row.set("longest_request", fit.plan->context_max);
      row.set("kv_tokens", int64_t{fit.plan->pools.pages} * kPageTokens);
      row.set("sequences", fit.plan->sequences_max);
      Json rates{Json::Array{}};
      for (size_t i = 0; i < fit.tokens_per_second.size(); ++i)
        rates.push_back(json_object(
            {{"streams", fit_streams()[i]}, {"tokens_per_second", fit.tokens_per_second[i]}}));
      row.set("speed_bound", std::move(rates));
    } else {
      row.set("trouble", fit.trouble);
    }
    cards.push_back(std::move(row));
  }
  json.set("cards", std::move(cards));
  return json;
}

}  // namespace nibble
