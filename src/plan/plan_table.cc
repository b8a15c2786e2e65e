// The plan for people.
#include <cstdio>

#include "plan/memory_plan.h"
#include "plan/plan_text.h"

namespace nibble {
namespace {

std::string one_decimal(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

/// A line about the memory that other processes took from the share that was asked for, or empty.
std::string others_line(const MemoryPlan& plan) {
  if (plan.memory_bytes >= plan.asked_bytes) return {};
  return concat("--gpu-memory-utilization asks for ", plan_megabytes(plan.asked_bytes),
                " of the card, but other processes hold ", plan_megabytes(plan.others_bytes), ": ",
                plan_megabytes(plan.memory_bytes), " are planned\n");
}

/// Why fewer run at once than --max-num-seqs says, or nothing.
std::string sequences_line(const MemoryPlan& plan) {
  if (plan.sequences_max >= plan.sequences_asked) return {};
  return concat("sequences at once: ", plan.sequences_max, ", not ", plan.sequences_asked,
                ": the states of more would leave too little for pages "
                "(--state-dtype bf16 halves a state)\n");
}

std::string lengths_line(const MemoryPlan& plan) {
  std::string text =
      concat("context: ", plan.context_max, " tokens; full-length requests in the KV cache: ",
             one_decimal(plan.full_length_requests()), "; sequences at once by length:");
  int64_t tokens = plan.context_max;
  for (int row = 0; row < 4 && tokens >= 2; ++row, tokens /= 4) {
    text += concat(row == 0 ? " " : ", ", tokens, ": ", one_decimal(plan.concurrency(tokens)));
    if (plan.concurrency(tokens) >= plan.sequences_max) break;
  }
  return text + "\n";
}

}  // namespace

std::string plan_megabytes(int64_t bytes) {
  return concat(one_decimal(static_cast<double>(bytes) / 1e6), " MB");
}

std::string MemoryPlan::table() const {
  const std::string driver =
      driver_bytes > 0 ? concat(", driver ", plan_megabytes(driver_bytes)) : "";
  const std::string mapped =
      mapped_bytes > 0 ? concat(" (", plan_megabytes(mapped_bytes), " in mapped files)") : "";
  std::string text = concat(
      "memory: weights ", plan_megabytes(weight_bytes), mapped, driver, ", workspace ",
      plan_megabytes(workspace_bytes), " (", pools.rows_max, " rows a pass), ",
      media_bytes > 0 ? concat("images ", plan_megabytes(media_bytes), " (up to ", image_tokens_max,
                               " tokens each, ", pools.media_rows, " kept), ")
                      : "",
      "state ", plan_megabytes(state_bytes), " (", sequences_max, " sequences + ", snapshots,
      " snapshots), KV cache ", plan_megabytes(kv_bytes), " (", pools.pages, " pages, ",
      int64_t{pools.pages} * kPageTokens, " tokens); total ", plan_megabytes(total_bytes()), " of ",
      plan_megabytes(memory_bytes), "\n");
  text +=
      concat("in bytes: weights ", weight_bytes, ", rotary tables ", table_bytes, ", workspace ",
             workspace_bytes, media_bytes > 0 ? concat(", images ", media_bytes) : "", ", state ",
             state_bytes, ", KV cache ", kv_bytes, "\n");
  text += others_line(*this) + sequences_line(*this);
  if (host_bytes > 0)
    text += concat(
        "host tier: ", plan_megabytes(host_bytes), " (", pools.host_pages, " pages, ",
        pools.host_slots, " states",
        pools.host_media_rows > 0 ? concat(", ", pools.host_media_rows, " tokens of images") : "",
        ")\n");
  return text + lengths_line(*this);
}

}  // namespace nibble
