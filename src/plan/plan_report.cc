// The report of one plan, as lines of at most 100 columns.
#include "plan/plan_report.h"

#include "model/batch.h"
#include "plan/plan_text.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

using Cells = std::vector<std::string>;
constexpr ColumnSide kLeft = ColumnSide::left;
constexpr ColumnSide kRight = ColumnSide::right;

std::string card_text(const PlannedCard& card) {
  std::string text = concat("card: ", card.name, ", ", card.label);
  if (card.capability > 0)
    text += concat(", compute capability ", capability_text(card.capability), ", multiplies ",
                   native_formats(card.capability));
  text += concat("\n  memory ", card.memory_bytes >> 20, " MiB for programs (", card.memory_source);
  if (card.reserved_bytes > 0)
    text += concat(", less ", card.reserved_bytes >> 20, " MiB for driver and desktop");
  text += ")";
  if (card.bandwidth_bytes > 0)
    text += concat("\n  bandwidth ", fixed_text(card.bandwidth_bytes / 1e9, 0), " GB/s (",
                   card.bandwidth_source, ")");
  text += "\n";
  if (card.memory == CardMemoryKind::unified)
    text += "  CPU and GPU share this memory: what other programs use is missing from it\n";
  return text;
}

std::string head_text(const PlanReport& report) {
  std::string text = concat("model: ", report.model, " (", report.made_of, ")\n");
  if (report.written_bytes)
    text += concat("quantize would write ", plan_megabytes(*report.written_bytes), " of tensors\n");
  return text;
}

void add_weights(const PlanReport& report, std::vector<Cells>& rows) {
  rows.push_back({"weights", "", plan_megabytes(report.plan.weight_bytes), ""});
  for (const WeightRow& row : report.weights)
    rows.push_back(
        {concat("  ", weight_kind_name(row.kind)), std::string(weight_format_name(row.format)),
         plan_megabytes(row.bytes),
         concat(fixed_text(static_cast<double>(row.parameters) / 1e6, 1), " M parameters")});
  if (report.plan.mapped_bytes > 0)
    rows.push_back({"  of all, in mapped files", "", plan_megabytes(report.plan.mapped_bytes),
                    "page cache, shared by processes"});
}

std::string not_loaded_text(const PlanReport& report) {
  std::string text;
  if (report.unread_bytes > 0)
    text += concat("  not loaded: tensors that nothing reads, ",
                   plan_megabytes(report.unread_bytes), " in the file\n");
  if (report.others.vision_bytes > 0)
    text += concat("  not loaded: vision tower, ", plan_megabytes(report.others.vision_bytes),
                   " in the file; ", report.way_to_tower, "\n");
  if (report.others.mtp_bytes > 0)
    text += concat("  not loaded: MTP head, ", plan_megabytes(report.others.mtp_bytes),
                   " in the file; --speculative-config loads it\n");
  return text;
}

/// The parts in the order of claims.
std::string memory_text(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  const MemoryRequest& request = report.request;
  std::vector<Cells> rows;
  add_weights(report, rows);
  if (report.card) {
    rows.push_back({"CUDA context", "", plan_megabytes(report.context_bytes), "estimate"});
    rows.push_back(
        {"recorded passes (CUDA graphs)", "", plan_megabytes(report.recorded_bytes), "estimate"});
  }
  rows.push_back({"rotary tables", "", plan_megabytes(plan.table_bytes), ""});
  rows.push_back({"workspace of a pass", "", plan_megabytes(plan.workspace_bytes),
                  concat(plan.pools.rows_max, " rows")});
  if (plan.media_bytes > 0) {
    rows.push_back({"workspace of the vision tower", "",
                    plan_megabytes(plan.media_bytes - request.media_cache_bytes),
                    concat(plan.pools.vision_rows, " patches")});
    rows.push_back({"encoded images", "", plan_megabytes(request.media_cache_bytes),
                    concat(plan.pools.media_rows, " tokens")});
  }
  rows.push_back({"states of sequences", "",
                  plan_megabytes(plan.sequences_max * request.slot_bytes),
                  concat(plan.sequences_max, " of ", plan_megabytes(request.slot_bytes))});
  rows.push_back({"snapshots of the prefix cache", "",
                  plan_megabytes(plan.snapshots * request.slot_bytes), concat(plan.snapshots)});
  const std::string tokens = concat(int64_t{plan.pools.pages} * kPageTokens, " tokens of ",
                                    request.page_bytes / kPageTokens, " bytes");
  rows.push_back({"KV cache", report.kv_format, plan_megabytes(plan.kv_bytes), tokens});
  rows.push_back({"total", "", plan_megabytes(plan.total_bytes()),
                  concat("of ", plan_megabytes(plan.memory_bytes))});
  std::string text = concat("\nmemory\n", text_table(rows, {kLeft, kLeft, kRight, kLeft}));
  return text + not_loaded_text(report);
}

std::string contexts_text(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  std::vector<Cells> rows = {{"tokens a request", "requests in the KV cache", "at once"}};
  for (const int64_t tokens : report.contexts) {
    const double held = requests_held(plan.kv_bytes, tokens, report.request.page_bytes, 0);
    rows.push_back({concat(tokens), fixed_text(held, 2), fixed_text(plan.concurrency(tokens), 1)});
  }
  return concat("\nlongest request: ", report.longest_context, " tokens",
                plan.context_max == report.longest_context
                    ? ""
                    : concat("; ", plan.context_max, " with these flags"),
                "\n", text_table(rows, {kRight, kRight, kRight}));
}

std::string effects_text(const PlanReport& report) {
  if (report.effects.empty()) return {};
  std::vector<Cells> rows = {{"with", "frees", "KV tokens", "longest", "at once"}};
  for (const FlagEffect& effect : report.effects) {
    if (effect.trouble.empty())
      rows.push_back({effect.flag, plan_megabytes(effect.freed_bytes), concat(effect.kv_tokens),
                      concat(effect.context), concat(effect.sequences)});
    else
      rows.push_back({effect.flag, "does not fit", "-", "-", "-"});
  }
  return concat("\nwhat other flags would free, for more pages\n",
                text_table(rows, {kLeft, kRight, kRight, kRight, kRight}));
}

std::string speeds_text(const PlanReport& report) {
  if (report.speeds.empty()) return {};
  const bool known = report.card && report.card->bandwidth_bytes > 0;
  std::vector<Cells> rows = {{"streams", "context", "experts", "other weights", "states", "KV",
                              "bytes a token", known ? "tokens/s at most" : ""}};
  for (const SpeedRow& row : report.speeds) {
    const StepBytes& b = row.bytes;
    rows.push_back({concat(row.load.streams), concat(row.load.context), plan_megabytes(b.experts),
                    plan_megabytes(b.other_weights), plan_megabytes(b.state), plan_megabytes(b.kv),
                    plan_megabytes(b.total() / row.load.streams),
                    known ? fixed_text(row.tokens_per_second, 0) : ""});
  }
  return concat("\nbound of generation, computed from the bytes of a step",
                known ? " and the bandwidth" : "", "; no measurement\n",
                text_table(rows, std::vector<ColumnSide>(8, kRight)));
}

std::string expected_text(const PlanReport& report) {
  if (report.expected.empty()) return {};
  std::vector<Cells> rows = {
      {"tokens/s of", "weight-only", "products of FP8 codes", "of 4-bit codes"}};
  for (const ExpectedRow& row : report.expected)
    rows.push_back(
        {row.streams > 0
             ? concat(row.streams, row.streams == 1 ? " stream at " : " streams at ", row.tokens)
             : concat("a prompt of ", row.tokens),
         fixed_text(row.weight_only, 0), fixed_text(row.fp8, 0), fixed_text(row.native, 0)});
  return concat(
      "\nexpected speed, computed: the shares of bounds that kernels of the same structure\n"
      "reached on an H100 and an H200; products of codes are off on this card as yet, and need\n"
      "a checkpoint that declares such activations (of 8 bits: and --activations declared)\n",
      text_table(rows, {kLeft, kRight, kRight, kRight}));
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  return concat(head_text(report), report.card ? card_text(*report.card) : "", memory_text(report),
                contexts_text(report), effects_text(report), speeds_text(report),
                expected_text(report), "\nas `nibble serve` says it:\n", report.plan.table(),
                report.speculation, "\n");
}

std::vector<int64_t> fit_streams() { return {1, 32}; }

std::string fits_text(const PlanReport& report, const std::vector<CardFit>& fits) {
  std::vector<Cells> weights;
  for (const WeightRow& row : report.weights)
    weights.push_back({std::string(weight_kind_name(row.kind)),
                       std::string(weight_format_name(row.format)), plan_megabytes(row.bytes)});
  weights.push_back({"weights on a card", "", plan_megabytes(total_bytes(report.weights))});
  std::vector<Cells> rows = {{"card", "MiB", "longest", "KV tokens", "at once", "1 stream",
                              concat(fit_streams().back(), " streams")}};
  for (const CardFit& fit : fits) {
    Cells row = {fit.card.name, concat(fit.card.memory_bytes >> 20)};
    if (fit.plan) {
      row.push_back(concat(fit.plan->context_max));
      row.push_back(concat(int64_t{fit.plan->pools.pages} * kPageTokens));
      row.push_back(concat(fit.plan->sequences_max));
      for (const double rate : fit.tokens_per_second) row.push_back(fixed_text(rate, 0));
    } else {
      row.emplace_back("does not fit");
    }
    rows.push_back(std::move(row));
  }
  return concat(head_text(report), "\n", text_table(weights, {kLeft, kLeft, kRight}),
                "\nwith KV in ", report.kv_format,
                "; tokens/s at most, computed from bytes and bandwidth\n",
                text_table(rows, {kLeft, kRight, kRight, kRight, kRight, kRight, kRight}),
                "\n--gpu CARD shows one of them whole; --gpu cpu this machine's own memory\n");
}

}  // namespace nibble
